# SPDX-License-Identifier: Apache-2.0
"""BROADCAST_TO: a tensor broadcast to a shape; only bytes move."""

from __future__ import annotations

from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.indices import vector_of
from delegate.ops._checks.node import inputs_of, output_of
from delegate.ops._launches.broadcast import broadcast
from delegate.ops._launches.copy import Box, Move, moved, require_shape, require_types, steps_of
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("BROADCAST_TO")
def lower_broadcast_to(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Repeat a tensor along its dimensions of size 1, and along new ones before them.

    Raises:
        Unsupported: a computed shape, or one that the input cannot be broadcast to.
    Source: tflite/kernels/broadcast_to.cc
    """
    (source, shape), _ = inputs_of(node.inputs, 2)
    result = output_of(node.outputs)
    require_types(source, result)
    require_shape(result, vector_of(shape, "shape"))
    sizes, (in_steps,) = broadcast(result, source)
    return moved([Move(source, result, Box(sizes, in_steps, steps_of(sizes)))], target)
