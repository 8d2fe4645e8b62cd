# SPDX-License-Identifier: Apache-2.0
"""SPLIT_V: parts of named sizes of a tensor along one axis; only bytes move."""

from __future__ import annotations

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.indices import axis_of, scalar_of, vector_of
from delegate.ops._checks.node import inputs_of
from delegate.ops._launches.copy import moved, require_shape, require_types
from delegate.ops._launches.parts import part
from delegate.ops._registry import lowers
from delegate.ops.split import TYPES
from delegate.target import Target


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
    moves = []
    start = 0
    for size, result in zip(sizes, node.outputs, strict=True):
        require_types(source, result, TYPES)
        require_shape(result, (*source.shape[:axis], size, *source.shape[axis + 1 :]))
        moves.append(part(source, result, axis, start))
        start += size
    return moved(moves, target)
