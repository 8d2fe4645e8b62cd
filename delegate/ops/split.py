# SPDX-License-Identifier: Apache-2.0
"""SPLIT: equal parts of a tensor along one axis; only bytes move."""

from __future__ import annotations

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.indices import axis_of, scalar_of
from delegate.ops._checks.node import inputs_of
from delegate.ops._launches.copy import moved, require_shape, require_types
from delegate.ops._launches.parts import part
from delegate.ops._registry import lowers
from delegate.target import Target

TYPES = ("uint8", "int8", "int16", "int32", "int64", "float32")


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
    moves = []
    for number, result in enumerate(node.outputs):
        require_types(source, result, TYPES)
        require_shape(result, (*source.shape[:axis], size, *source.shape[axis + 1 :]))
        moves.append(part(source, result, axis, number * size))
    return moved(moves, target)
