# SPDX-License-Identifier: Apache-2.0
"""DYNAMIC_UPDATE_SLICE, SCATTER_ND and SEGMENT_SUM.

Constant indices are resolved when lowering; kernels read all others at run time.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.float_results import SELECTS, Growth, sums
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Defines, Params
from delegate.ops._checks.indices import constant_rows, require_inside
from delegate.ops._checks.node import (
    ANY,
    elements_of,
    require_shape,
    require_types,
    shape_text,
    tensors_of,
    vector_of,
)
from delegate.ops._launches.copy import Box, Move, by_copies, steps_of
from delegate.ops._launches.tiles import HALF_ROUNDS, by_elements, launch_over, over_elements
from delegate.ops._launches.types import ELEM, copy_type
from delegate.ops._registry import lowers
from delegate.target import Target

_MOST_AXES = 6
_SUM_TYPES = ("float32", "uint8", "int8", "int32", "int64", "bool")  # of SCATTER_ND


@lowers("DYNAMIC_UPDATE_SLICE", floats=SELECTS)
def lower_dynamic_update_slice(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Write an update into a copy of the operand; the start is clamped so that the update fits.

    Shapes:
        operand (d0, d1, ...), update of at most these sizes, starts (rank,)
        -> output (d0, d1, ...)
    Raises:
        Unsupported: types that differ, an update larger than the operand, more than 6 dimensions.
    Source: tflite/kernels/dynamic_update_slice.cc
    """
    operand, update, starts, result = tensors_of(node, 3, ANY)
    require_types(update, result)
    require_shape(result, operand.shape)
    if starts.dtype not in ("int32", "int64"):
        raise Unsupported(f"{starts.dtype} starts: only int32 and int64")
    rank = len(operand.shape)
    if not 1 <= rank <= _MOST_AXES:
        raise Unsupported(f"{rank} dimensions: 1 to {_MOST_AXES} are implemented")
    if len(update.shape) != rank or starts.shape != (rank,):
        raise Unsupported(
            f"update {shape_text(update)} and starts {shape_text(starts)} for "
            f"{shape_text(operand)}: they do not fit"
        )
    most = [size - part for size, part in zip(operand.shape, update.shape, strict=True)]
    if min(most) < 0:
        raise Unsupported(f"update {shape_text(update)}: larger than {shape_text(operand)}")
    steps = steps_of(result.shape)
    whole = Move(operand, result, Box(operand.shape, steps, steps))
    if starts.data is not None:
        start_vector = np.clip(vector_of(starts, "starts", rank), 0, most)
        start = int(start_vector @ np.array(steps))
        part = Box(update.shape, steps_of(update.shape), steps, 0, start)
        copies = by_copies((whole, Move(update, result, part)), target)
        return tuple(replace(each, copied=(operand, result)) for each in copies)
    params: Params = {"update": update, "starts": starts, "output": result, "axes": rank}
    missing = _MOST_AXES - rank
    for name, values in (
        ("size", (*update.shape, *(1,) * missing)),
        ("step", (*steps, *(0,) * missing)),
        ("most", (*most, *(0,) * missing)),
    ):
        params |= {f"{name}_{axis}": value for axis, value in enumerate(values)}
    defines: Defines = {"ELEM": copy_type(result), "WORDS": _words(starts)}
    if target.group_items == 1:
        params["run"], defines = _run_of(update.shape, most), {**defines, "ALONE": 1}
    file, elements = "dynamic_update_slice", elements_of(update)
    launch = over_elements(file, file, elements, target, params, defines)
    return tuple(
        Alternative(copy.name, (*copy.launches, launch), copied=(operand, result))
        for copy in by_copies((whole,), target)
    )


def _run_of(shape: tuple[int, ...], most: list[int]) -> int:
    """Return the length of runs of an update that are contiguous in the operand, too.

    `most`: by how much the operand is larger, along each dimension.
    """
    run = 1
    for size, excess in zip(reversed(shape), reversed(most), strict=True):
        run *= size
        if excess:
            break
    return run


def _words(tensor: Tensor) -> int:
    return 2 if tensor.dtype == "int64" else 1


@lowers("SEGMENT_SUM", floats=sums(Growth.UNBOUNDED))
def lower_segment_sum(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Add the slices of each segment, in order; segment numbers must ascend from 0 without gaps.

    Shapes:
        data (n, inner...), constant segments (n,) -> output (segments, inner...)
    Raises:
        Unsupported: other types, segments that are not constant or that TFLite fails on.
    Source: tflite/kernels/segment_sum.cc, internal/reference/reference_ops.h SegmentSum
    """
    data, segments, result = tensors_of(node, 2)
    require_types(data, result, ("float32", "int32"))
    numbers = np.array(vector_of(segments, "segments"), np.int64)
    if data.shape[:1] != numbers.shape or not numbers.size:
        raise Unsupported(f"segments of {numbers.size} layers: {shape_text(data)} has others")
    if numbers[0] or not set(np.diff(numbers)) <= {0, 1}:
        raise Unsupported("segments that are not numbered from 0 upwards")
    count = int(numbers[-1]) + 1
    require_shape(result, (count, *data.shape[1:]))
    row = math.prod(data.shape[1:])
    if len(numbers) > HALF_ROUNDS:
        raise Unsupported(f"{len(numbers)} layers: too many for a work-item")
    elements = elements_of(result)
    params: Params = {"updates": data, "output": result, "row": row, "elements": elements}
    params |= _by_row(numbers, count)
    tiling = by_elements(elements, target, most=HALF_ROUNDS // len(numbers))
    defines: Defines = {"ELEM": ELEM[result.dtype], "IS_BOOL": 0, "WORDS": 1}
    launch = launch_over("scatter_nd", "scatter_nd", tiling, params, defines)
    return (Alternative("plain", (launch,)),)


@lowers("SCATTER_ND", floats=sums(Growth.STEADY))
def lower_scatter_nd(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Scatter rows into zeros by indices; rows with equal indices are added, in order.

    Shapes:
        indices (k..., coordinates), updates (k..., inner...), shape (rank,)
        -> output of that shape (n0, n1, ..., inner...)
    Raises:
        Unsupported: other types, a non-constant shape, a constant index out of range, on which
            TFLite fails at run time.
    Source: tflite/kernels/scatter_nd.cc, internal/reference/reference_ops.h ScatterNd
    """
    indices, updates, shape, result = tensors_of(node, 3)
    require_types(updates, result, _SUM_TYPES)
    if indices.dtype != "int32" or shape.dtype != "int32":
        raise Unsupported(f"{indices.dtype} indices, {shape.dtype} shape: only int32")
    require_shape(result, vector_of(shape, "sizes"))
    count = indices.shape[-1] if indices.shape else 0
    if not 1 <= count <= len(result.shape):
        raise Unsupported(
            f"{count} coordinates of {shape_text(result)}: 1 to {len(result.shape)} are needed"
        )
    outer, sizes, inner = indices.shape[:-1], result.shape[:count], result.shape[count:]
    if updates.shape != (*outer, *inner):
        raise Unsupported(f"updates {shape_text(updates)}: not one for each index")
    elements_of(indices)
    coordinates = constant_rows(indices, sizes)
    update_count, row, rows = math.prod(outer), math.prod(inner), math.prod(sizes)
    steps = np.array(steps_of(sizes), np.int32)
    params: Params = {"updates": updates, "output": result, "row": row}
    kernel, rounds = "scatter_nd", update_count
    if coordinates is not None:
        params |= _by_row(coordinates @ steps.astype(np.int64), rows)
    else:
        kernel, rounds = "scatter_nd_computed", update_count * (count + 1)
        params |= {"indices": indices, "picks": update_count, "axes": count}
        params["steps"] = Constant(steps.nbytes, lambda: steps)
    if rounds > HALF_ROUNDS:
        raise Unsupported(f"{update_count} updates: too many for a work-item")
    kind = result.dtype
    defines: Defines = {"ELEM": ELEM[kind], "IS_BOOL": int(kind == "bool"), "WORDS": _words(result)}
    elements = elements_of(result)
    tiling = by_elements(elements, target, most=HALF_ROUNDS // rounds)
    params["elements"] = elements
    launch = launch_over("scatter_nd", kernel, tiling, params, defines)
    requirements = require_inside(indices, sizes)
    return (Alternative("plain", (launch,), requirements=requirements),)


def _by_row(targets: NDArray[np.int64], rows: int) -> Params:
    """Return the fields that map each result row to its updates, in order.

    `targets`: the result row of each update.
    """
    table = np.argsort(targets, kind="stable").astype(np.int32)
    firsts = np.searchsorted(targets[table], np.arange(rows + 1)).astype(np.int32)
    return {
        "firsts": Constant(firsts.nbytes, lambda: firsts),
        "table": Constant(table.nbytes, lambda: table),
    }
