# SPDX-License-Identifier: Apache-2.0
"""STABLEHLO_SCATTER with constant indices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.float_results import Growth, roundings
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Defines, Params
from delegate.ops._checks.node import (
    elements_of,
    integer,
    require_constant,
    require_shape,
    require_types,
    shape_text,
    tensors_of,
)
from delegate.ops._launches.copy import steps_of
from delegate.ops._launches.tiles import HALF_ROUNDS, launch_over, one_each
from delegate.ops._launches.types import ELEM
from delegate.ops._registry import lowers
from delegate.target import Target

_TYPES = ("uint8", "int8", "int16", "int32", "float32")
_MOST_ELEMENTS = 1 << 22  # whose targets are computed when lowering
# The op of the body ("": none, an update replaces) -> expression of stablehlo_scatter.cl
_EXPRESSIONS = {
    "": "UPDATE",
    "STABLEHLO_ADD": "SUM",
    "STABLEHLO_MULTIPLY": "PRODUCT",
    "STABLEHLO_MINIMUM": "LEAST",
    "STABLEHLO_MAXIMUM": "GREATEST",
}


@lowers("STABLEHLO_SCATTER", floats=roundings(Growth.UNBOUNDED))
def lower_stablehlo_scatter(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Combine elements with updates, in order; updates out of bounds are skipped.

    Shapes:
        input (d0, d1, ...), indices (k..., coordinates at `index_vector_dim`, k...), updates with
        the sizes of a window at `update_window_dims`, k... elsewhere -> output (d0, d1, ...)
    Raises:
        Unsupported: indices that are not constant, or negative, with which TFLite writes out of
            bounds; types without a kernel, options that do not match the shapes, bodies of several
            ops.
    Source: tflite/kernels/stablehlo_scatter.cc
    """
    source, indices, updates, result = tensors_of(node, 3)
    require_types(source, result, _TYPES)
    require_types(updates, result)
    require_shape(result, source.shape)
    nodes = None if node.body is None else node.body.nodes
    if nodes is None or len(nodes) > 1 or (op := nodes[0].op if nodes else "") not in _EXPRESSIONS:
        raise Unsupported("the body must be empty, or one op such as STABLEHLO_ADD")
    elements = elements_of(result)
    if max(elements, elements_of(updates)) > _MOST_ELEMENTS:
        raise Unsupported(f"more than {_MOST_ELEMENTS} elements: lowering would take too long")
    targets = _targets(node, source, indices, updates)
    table = np.flatnonzero(targets >= 0)
    table = table[np.argsort(targets[table], kind="stable")].astype(np.int32)
    firsts = np.searchsorted(targets[table], np.arange(elements + 1)).astype(np.int32)
    if int(np.diff(firsts).max()) > HALF_ROUNDS:
        raise Unsupported(f"{np.diff(firsts).max()} updates of an element: too many to loop over")
    params: Params = {
        "input": source,
        "updates": updates,
        "output": result,
        "firsts": Constant(firsts.nbytes, lambda: firsts),
        "table": Constant(max(4, table.nbytes), lambda: table if table.size else np.zeros(1, "i4")),
        "elements": elements,
    }
    kind = result.dtype
    wide = "float" if kind == "float32" else "uint"
    defines: Defines = {"ELEM": ELEM[kind], "WIDE": wide, "OP": _EXPRESSIONS[op]}
    file = "stablehlo_scatter"
    return (Alternative("plain", (launch_over(file, file, one_each(elements), params, defines),)),)


def _targets(node: Node, source: Tensor, indices: Tensor, updates: Tensor) -> NDArray[np.int64]:
    """Return the element that each update is combined with; -1 if it is out of bounds.

    Raises:
        Unsupported: options that do not match the shapes, indices that are not constant or
            negative.
    """
    if indices.dtype not in ("int32", "int64"):
        raise Unsupported(f"{indices.dtype} indices: only int32 and int64")
    values = require_constant(indices, "indices").astype(np.int64)
    vector_axis = integer(node.options, "index_vector_dim", 0)
    if not 0 <= vector_axis < values.ndim:
        raise Unsupported(
            f"index_vector_dim {vector_axis} of {shape_text(indices)}: it is no dimension"
        )
    window = _dims(node, "update_window_dims", len(updates.shape))
    inserted = _dims(node, "inserted_window_dims", len(source.shape))
    mapped = _dims(node, "scatter_dims_to_operand_dims", len(source.shape))
    starts = np.moveaxis(values, vector_axis, -1)
    scatter_axes = [axis for axis in range(len(updates.shape)) if axis not in window]
    operand_axes = [axis for axis in range(len(source.shape)) if axis not in inserted]
    shapes = f"indices {shape_text(indices)}, updates {shape_text(updates)} of {shape_text(source)}"
    if (
        inserted != sorted(inserted)
        or len(operand_axes) != len(window)
        or len(mapped) != starts.shape[-1]
        or starts.ndim - 1 != len(scatter_axes)
    ):
        raise Unsupported(f"{shapes}: the options do not fit")
    outer = tuple(updates.shape[axis] for axis in scatter_axes)
    if starts.shape[:-1] != outer:
        many = any(count > known for count, known in zip(outer, starts.shape[:-1], strict=True))
        raise Unsupported(f"{shapes}: {'TFLite reads past the end' if many else 'too few updates'}")
    linear, is_inside = np.zeros(updates.shape, np.int64), np.ones(updates.shape, bool)
    for axis, (size, step) in enumerate(zip(source.shape, steps_of(source.shape), strict=True)):
        position = np.zeros(updates.shape, np.int64)
        if axis in mapped:
            coordinates = starts[..., mapped.index(axis)]
            position += coordinates.reshape(_broadcast_shape(updates.shape, scatter_axes))
        if axis in operand_axes:
            update_axis = window[operand_axes.index(axis)]
            count = updates.shape[update_axis]
            position += np.arange(count).reshape(_broadcast_shape(updates.shape, [update_axis]))
        if position.size and position.min() < 0:
            raise Unsupported(f"index {position.min()}: below 0 TFLite writes before its tensor")
        is_inside &= position < size
        linear += position * step
    return np.where(is_inside, linear, -1).reshape(-1)


def _broadcast_shape(shape: Sequence[int], axes: Sequence[int]) -> list[int]:
    """Return `shape` with 1 for all axes other than `axes`, for broadcasting."""
    return [size if axis in axes else 1 for axis, size in enumerate(shape)]


def _dims(node: Node, option: str, rank: int) -> list[int]:
    """Return an option that is a list of distinct dimensions.

    Raises:
        Unsupported: any other value.
    """
    values = node.options.get(option, ())
    is_list = isinstance(values, Sequence) and all(isinstance(each, int) for each in values)
    if not is_list or not {*values} <= {*range(rank)} or len({*values}) != len(values):
        raise Unsupported(f"{option} {values!r}: not dimensions of {rank}")
    return [*values]
