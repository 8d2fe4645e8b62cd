# SPDX-License-Identifier: Apache-2.0
"""STABLEHLO_SCATTER: windows of updates that go where constant indices say."""

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
_MOST_ELEMENTS = 1 << 22  # whose places are found before a run
# The body's one op, none for an update -> expression of stablehlo_scatter.cl
_HOW = {
    "": "UPDATE",
    "STABLEHLO_ADD": "SUM",
    "STABLEHLO_MULTIPLY": "PRODUCT",
    "STABLEHLO_MINIMUM": "LEAST",
    "STABLEHLO_MAXIMUM": "GREATEST",
}


@lowers("STABLEHLO_SCATTER", floats=roundings(Growth.UNBOUNDED))
def lower_stablehlo_scatter(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Combine elements with updates, in their order; those that go beyond the end are left out.

    Shapes:
        input (d0, d1, ...), indices (k..., coordinates at `index_vector_dim`, k...), updates with
        the sizes of a window at `update_window_dims`, k... elsewhere -> output (d0, d1, ...)
    Raises:
        Unsupported: computed indices, and those below 0, by which TFLite writes before its tensor;
            types without a kernel, options that do not fit, bodies of several ops.
    Source: tflite/kernels/stablehlo_scatter.cc
    """
    source, indices, updates, result = tensors_of(node, 3)
    require_types(source, result, _TYPES)
    require_types(updates, result)
    require_shape(result, source.shape)
    nodes = None if node.body is None else node.body.nodes
    if nodes is None or len(nodes) > 1 or (op := nodes[0].op if nodes else "") not in _HOW:
        raise Unsupported("a body of no op, or of one of STABLEHLO_ADD and the like, is needed")
    elements = elements_of(result)
    if max(elements, elements_of(updates)) > _MOST_ELEMENTS:
        raise Unsupported(f"more than {_MOST_ELEMENTS} elements: a verdict would take long")
    places = _places(node, source, indices, updates)
    table = np.flatnonzero(places >= 0)
    table = table[np.argsort(places[table], kind="stable")].astype(np.int32)
    firsts = np.searchsorted(places[table], np.arange(elements + 1)).astype(np.int32)
    if int(np.diff(firsts).max()) > HALF_ROUNDS:
        raise Unsupported(f"{np.diff(firsts).max()} updates of an element: more than are looked at")
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
    defines: Defines = {"ELEM": ELEM[kind], "WIDE": wide, "OP": _HOW[op]}
    file = "stablehlo_scatter"
    return (Alternative("plain", (launch_over(file, file, one_each(elements), params, defines),)),)


def _places(node: Node, source: Tensor, indices: Tensor, updates: Tensor) -> NDArray[np.int64]:
    """Return where each update goes, as an element of the source; -1 for nowhere.

    Raises:
        Unsupported: options that do not fit the shapes, indices that are computed or below 0.
    """
    if indices.dtype not in ("int32", "int64"):
        raise Unsupported(f"{indices.dtype} indices: only int32 and int64")
    values = require_constant(indices, "indices").astype(np.int64)
    vectors = integer(node.options, "index_vector_dim", 0)
    if not 0 <= vectors < values.ndim:
        raise Unsupported(
            f"index_vector_dim {vectors} of {shape_text(indices)}: it is no dimension"
        )
    window = _dims(node, "update_window_dims", len(updates.shape))
    inserted = _dims(node, "inserted_window_dims", len(source.shape))
    mapped = _dims(node, "scatter_dims_to_operand_dims", len(source.shape))
    starts = np.moveaxis(values, vectors, -1)
    others = [axis for axis in range(len(updates.shape)) if axis not in window]
    kept = [axis for axis in range(len(source.shape)) if axis not in inserted]
    shapes = f"indices {shape_text(indices)}, updates {shape_text(updates)} of {shape_text(source)}"
    if (
        inserted != sorted(inserted)
        or len(kept) != len(window)
        or len(mapped) != starts.shape[-1]
        or starts.ndim - 1 != len(others)
    ):
        raise Unsupported(f"{shapes}: the options do not fit")
    moved = tuple(updates.shape[axis] for axis in others)
    if starts.shape[:-1] != moved:
        many = any(count > known for count, known in zip(moved, starts.shape[:-1], strict=True))
        raise Unsupported(f"{shapes}: {'TFLite reads past the end' if many else 'too few updates'}")
    flat, is_inside = np.zeros(updates.shape, np.int64), np.ones(updates.shape, bool)
    for axis, (size, step) in enumerate(zip(source.shape, steps_of(source.shape), strict=True)):
        place = np.zeros(updates.shape, np.int64)
        if axis in mapped:
            own = starts[..., mapped.index(axis)]
            place += own.reshape(_along(updates.shape, others))
        if axis in kept:
            along = window[kept.index(axis)]
            count = updates.shape[along]
            place += np.arange(count).reshape(_along(updates.shape, [along]))
        if place.size and place.min() < 0:
            raise Unsupported(f"index {place.min()}: below 0 TFLite writes before its tensor")
        is_inside &= place < size
        flat += place * step
    return np.where(is_inside, flat, -1).reshape(-1)


def _along(shape: Sequence[int], axes: Sequence[int]) -> list[int]:
    """Return a shape that is broadcast along all other axes."""
    return [size if axis in axes else 1 for axis, size in enumerate(shape)]


def _dims(node: Node, option: str, rank: int) -> list[int]:
    """Return an option of different dimensions.

    Raises:
        Unsupported: it is none.
    """
    values = node.options.get(option, ())
    is_list = isinstance(values, Sequence) and all(isinstance(each, int) for each in values)
    if not is_list or not {*values} <= {*range(rank)} or len({*values}) != len(values):
        raise Unsupported(f"{option} {values!r}: not dimensions of {rank}")
    return [*values]
