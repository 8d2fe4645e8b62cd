# SPDX-License-Identifier: Apache-2.0
"""SPLIT, SPLIT_V, UNPACK: parts of a tensor along one axis; only bytes move."""

from __future__ import annotations

from collections.abc import Sequence

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative
from delegate.ops._checks.node import (
    axis_of,
    inputs_of,
    integer,
    require_same_scale,
    require_shape,
    require_types,
    scalar_of,
    vector_of,
)
from delegate.ops._launches.copy import Move, moved, part
from delegate.ops._registry import lowers
from delegate.target import Target

_TYPES = ("uint8", "int8", "int16", "int32", "int64", "float32")


@lowers("SPLIT")
def lower_split(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Cut a tensor into as many parts as there are outputs.

    Shapes:
        axis, input (..., n, ...) -> outputs (..., n / outputs, ...)
    Raises:
        Unsupported: a computed axis, no output, a size that their number does not divide.
    Source: tflite/kernels/split.cc
    """
    (where, source), _ = inputs_of(node.inputs, 2)
    axis = axis_of(scalar_of(where, "axis"), len(source.shape))
    count = len(node.outputs)
    if not count:
        raise Unsupported("0 outputs: at least 1 is expected")
    if node.options.get("num_splits", count) != count:
        raise Unsupported(f"{node.options['num_splits']} parts, {count} outputs: not equal")
    size, rest = divmod(source.shape[axis], count)
    if rest:
        raise Unsupported(f"{source.shape[axis]} elements in {count} parts: they are not equal")
    return moved(_parts(source, node.outputs, axis, [size] * count), target)


@lowers("SPLIT_V")
def lower_split_v(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Cut a tensor into parts of these sizes, one of which may be -1: what is left.

    Raises:
        Unsupported: computed sizes or axis, sizes that do not add up, empty parts.
    Source: tflite/kernels/split_v.cc
    """
    (source, amounts, where), _ = inputs_of(node.inputs, 3)
    axis = axis_of(scalar_of(where, "axis"), len(source.shape))
    sizes = vector_of(amounts, "sizes", len(node.outputs))
    if sizes.count(-1) == 1:
        rest = source.shape[axis] - sum(sizes) - 1
        sizes = [rest if size == -1 else size for size in sizes]
    if sum(sizes) != source.shape[axis] or min(sizes, default=0) < 0:
        raise Unsupported(f"parts of {sizes} elements: {source.shape[axis]} are there")
    return moved(_parts(source, node.outputs, axis, sizes), target)


def _parts(
    source: Tensor, results: Sequence[Tensor], axis: int, sizes: Sequence[int]
) -> list[Move]:
    moves = []
    start = 0
    for size, result in zip(sizes, results, strict=True):
        require_types(source, result, _TYPES)
        require_shape(result, (*source.shape[:axis], size, *source.shape[axis + 1 :]))
        moves.append(part(source, result, axis, start, size))
        start += size
    return moves


@lowers("UNPACK")
def lower_unpack(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Take a tensor apart along one axis, which the outputs no longer have.

    Raises:
        Unsupported: an axis out of range, another number of outputs than layers.
    Source: tflite/kernels/unpack.cc
    """
    (source,), _ = inputs_of(node.inputs, 1)
    axis = axis_of(integer(node.options, "axis", 0), len(source.shape))
    count = len(node.outputs)
    if count != source.shape[axis] or node.options.get("num", count) != count:
        raise Unsupported(f"{source.shape[axis]} layers, {count} outputs: not equal")
    for result in node.outputs:
        require_types(
            source, result, ("uint8", "int8", "int16", "int32", "float16", "float32", "bool")
        )
        require_same_scale(source, result)
        require_shape(result, (*source.shape[:axis], *source.shape[axis + 1 :]))
    layers = enumerate(node.outputs)
    return moved([part(source, result, axis, place, 1) for place, result in layers], target)
