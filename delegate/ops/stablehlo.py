# SPDX-License-Identifier: Apache-2.0
"""STABLEHLO_PAD and STABLEHLO_GATHER, which only copy elements."""

from __future__ import annotations

import math

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.float_results import SELECTS
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Defines, Params
from delegate.ops._checks.node import (
    ANY,
    elements_of,
    integer,
    require_shape,
    require_types,
    shape_text,
    tensors_of,
)
from delegate.ops._launches.copy import Box, Move, by_moves, fill, group_size, steps_of
from delegate.ops._launches.tiles import HALF_ROUNDS, by_elements, launch_over
from delegate.ops._launches.types import type_of_bytes
from delegate.ops._numbers import ceil_div
from delegate.ops._registry import lowers
from delegate.target import Target

_MOST_RANK = 8  # TFLite's own limit
_MOST_DIMENSIONS = 6  # after merging


def _integers_of(node: Node, name: str, least: int = 0) -> list[int]:
    """Return an option that is a list of integers.

    Raises:
        Unsupported: any other value, or a number below `least` or beyond 32 bits.
    """
    values = node.options.get(name, ())
    if not isinstance(values, (list, tuple)) or not all(
        isinstance(value, int) and least <= value < 2**31 for value in values
    ):
        raise Unsupported(f"{name} is {values!r}: int32 numbers are needed")
    return list(values)


@lowers("STABLEHLO_PAD", floats=SELECTS)
def lower_stablehlo_pad(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Pad a tensor with a value around and between its elements; negative padding crops.

    Shapes:
        input (d0, d1, ...), value ()
        -> output (low0 + (d0 - 1) * (inner0 + 1) + 1 + high0, ...)
    Raises:
        Unsupported: types that differ, another shape, more than 8 dimensions.
    Source: tflite/kernels/stablehlo_pad.cc
    """
    source, value, result = tensors_of(node, 2, ANY)
    require_types(value, result)
    if math.prod(value.shape) != 1:
        raise Unsupported(f"value {shape_text(value)}: one number is needed")
    rank = len(source.shape)
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    low, high, interior = (_integers_of(node, name, -(2**31)) for name in names)
    if not 1 <= rank <= _MOST_RANK or not len(low) == len(high) == len(interior) == rank:
        raise Unsupported(
            f"paddings of {len(low)}, {len(high)} and {len(interior)} dimensions for "
            f"{shape_text(source)}: as many are needed, 1 to {_MOST_RANK}"
        )
    if min(interior) < 0:
        raise Unsupported(f"interior_padding {min(interior)}: 0 or more is needed")
    rows = [*zip(source.shape, low, high, interior, strict=True)]
    require_shape(result, [first + (n - 1) * (gap + 1) + 1 + last for n, first, last, gap in rows])
    moves = []
    if max(*low, *high, *interior) > 0:
        moves.append(_fill(value, result))
    box = _copied_box(source, result, rows)
    if min(box.sizes) > 0:
        moves.append(Move(source, result, box))
    return by_moves(moves, target)


def _fill(value: Tensor, result: Tensor) -> Move:
    if value.data is not None:
        return fill(np.asarray(value.data).reshape(1), result, result.shape)
    nowhere = (0,) * len(result.shape)
    return Move(value, result, Box(result.shape, nowhere, steps_of(result.shape)))


def _copied_box(source: Tensor, result: Tensor, rows: list[tuple[int, int, int, int]]) -> Box:
    """Return the box of elements that are not cropped.

    `rows`: per dimension the size, and the padding before, after and between the elements.
    """
    sizes, in_start, out_start, out_steps = [], 0, 0, []
    for (size, low, high, gap), inwards, outwards in zip(
        rows, steps_of(source.shape), steps_of(result.shape), strict=True
    ):
        spacing = gap + 1
        before, after = ceil_div(max(0, -low), spacing), ceil_div(max(0, -high), spacing)
        sizes.append(size - before - after)
        in_start += before * inwards
        out_start += (before * spacing + low) * outwards
        out_steps.append(spacing * outwards)
    return Box(tuple(sizes), steps_of(source.shape), tuple(out_steps), in_start, out_start)


@lowers("STABLEHLO_GATHER", floats=SELECTS)
def lower_stablehlo_gather(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Copy slices of one size from given starts, clamped so that each slice fits.

    Shapes:
        input (d0, d1, ...), indices (k..., coordinates at `index_vector_dim`, k...)
        -> output with the slice's sizes at `offset_dims`, k... elsewhere
    Raises:
        Unsupported: types that differ, options that do not match the shapes.
    Source: tflite/kernels/stablehlo_gather.cc
    """
    source, indices, result = tensors_of(node, 2, ANY)
    if indices.dtype not in ("int32", "int64"):
        raise Unsupported(f"{indices.dtype} indices: only int32 and int64")
    elements_of(indices)
    vector_axis = integer(node.options, "index_vector_dim", 0)
    if not 0 <= vector_axis < len(indices.shape):
        raise Unsupported(
            f"index_vector_dim {vector_axis} of {shape_text(indices)}: TFLite reads past its shape"
        )
    mapped, slices = _integers_of(node, "start_index_map"), _integers_of(node, "slice_sizes")
    _require_slices(source, mapped, slices, indices.shape[vector_axis])
    columns = _columns(node, source, indices, slices, vector_axis, result)
    steps = [steps_of(source.shape)[axis] for axis in mapped]
    most = [source.shape[axis] - slices[axis] for axis in mapped]
    width = np.dtype(source.dtype).itemsize
    group = 1
    if columns and columns[-1][1:] == (1, 0):
        group = group_size(width, columns[-1][0], *steps, *(inner for _, inner, _ in columns[:-1]))
        columns = [(n, inner // group, index) for n, inner, index in columns[:-1]] + [
            (columns[-1][0] // group, 1, 0)
        ]
    table = np.array([*zip(most, [step // group for step in steps], strict=True)], np.int32)
    params: Params = {
        "input": source,
        "indices": indices,
        "output": result,
        "table": Constant(table.nbytes, lambda: table),
        "axes": len(mapped),
        "coordinate": steps_of(indices.shape)[vector_axis],  # stride between coordinates
        "dims": len(columns),
    }
    missing = _MOST_DIMENSIONS - len(columns)
    for place, column in enumerate((*reversed(columns), *((1, 0, 0),) * missing)):
        named = zip(("size", "in", "index"), column, strict=True)
        params |= {f"{name}_{place}": number for name, number in named}
    defines: Defines = {
        "ELEM": type_of_bytes(width * group),
        "WORDS": 2 if indices.dtype == "int64" else 1,
    }
    elements = math.prod(result.shape) // group
    params["elements"] = elements
    tiling = by_elements(elements, target, most=HALF_ROUNDS // (1 + len(mapped)))
    file = "stablehlo_gather"
    return (Alternative("plain", (launch_over(file, file, tiling, params, defines),)),)


def _require_slices(source: Tensor, mapped: list[int], slices: list[int], count: int) -> None:
    """Check that slices fit a tensor, and that each of `count` coordinates has a dimension."""
    rank = len(source.shape)
    is_inside = len(slices) == rank and all(
        1 <= size <= whole for size, whole in zip(slices, source.shape, strict=True)
    )
    if not 1 <= rank <= _MOST_RANK or not is_inside:
        raise Unsupported(f"slices {slices} of {shape_text(source)}: they do not fit")
    if len({*mapped}) != count or len(mapped) != count or max(mapped) >= rank:
        raise Unsupported(
            f"start_index_map {mapped} for {count} coordinates of {shape_text(source)}: "
            "each needs a dimension of its own"
        )


def _columns(
    node: Node, source: Tensor, indices: Tensor, slices: list[int], vector_axis: int, result: Tensor
) -> list[tuple[int, int, int]]:
    """Return the size of each output dimension, and its strides in the input and in the indices.

    Dimensions with compatible strides are merged.

    Raises:
        Unsupported: an output shape that does not match the slices, too many dimensions.
    """
    names = ("offset_dims", "collapsed_slice_dims")
    offsets, dropped = (_integers_of(node, name) for name in names)
    slice_axes = [axis for axis in range(len(slices)) if axis not in dropped]
    index_axes = [axis for axis in range(len(indices.shape)) if axis != vector_axis]
    rank = len(slice_axes) + len(index_axes)
    inside = len({*offsets}) == len(offsets) == len(slice_axes) and all(n < rank for n in offsets)
    if not inside or any(n >= len(slices) for n in dropped):
        raise Unsupported(
            f"offset_dims {offsets}, collapsed_slice_dims {dropped}: "
            f"{len(slices)} dimensions of slices and {rank} of the output"
        )
    slice_columns = iter([(slices[axis], steps_of(source.shape)[axis], 0) for axis in slice_axes])
    index_columns = iter([(indices.shape[n], 0, steps_of(indices.shape)[n]) for n in index_axes])
    unmerged = [next(slice_columns if axis in offsets else index_columns) for axis in range(rank)]
    require_shape(result, [size for size, _, _ in unmerged])
    columns: list[tuple[int, int, int]] = []
    for size, inwards, index in unmerged:
        if size == 1:
            continue
        if columns and columns[-1][1:] == (inwards * size, index * size):
            size *= columns.pop()[0]
        columns.append((size, inwards, index))
    if len(columns) > _MOST_DIMENSIONS:
        raise Unsupported(f"{len(columns)} dimensions that differ: at most {_MOST_DIMENSIONS}")
    return columns
