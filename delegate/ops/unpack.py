# SPDX-License-Identifier: Apache-2.0
"""UNPACK: the layers of a tensor along one axis, each by itself; only bytes move."""

from __future__ import annotations

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.indices import axis_of
from delegate.ops._checks.node import inputs_of, integer
from delegate.ops._launches.copy import moved, require_same_scale, require_shape, require_types
from delegate.ops._launches.parts import peeled
from delegate.ops._registry import lowers
from delegate.target import Target

TYPES = ("uint8", "int8", "int16", "int32", "float16", "float32", "bool")


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
        require_types(source, result, TYPES)
        require_same_scale(source, result)
        require_shape(result, (*source.shape[:axis], *source.shape[axis + 1 :]))
    layers = enumerate(node.outputs)
    return moved([peeled(source, result, axis, place) for place, result in layers], target)
