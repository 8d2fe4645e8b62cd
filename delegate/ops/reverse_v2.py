# SPDX-License-Identifier: Apache-2.0
"""REVERSE_V2: a tensor backwards along some axes; only bytes move."""

from __future__ import annotations

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.indices import axis_of, vector_of
from delegate.ops._checks.node import inputs_of, output_of
from delegate.ops._launches.copy import Box, Move, moved, require_shape, require_types, steps_of
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("REVERSE_V2")
def lower_reverse_v2(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Copy a tensor with the order of its elements turned round along each of the axes.

    Raises:
        Unsupported: computed axes, one out of range or there twice.
    Source: tflite/kernels/reverse.cc
    """
    (source, where), _ = inputs_of(node.inputs, 2)
    result = output_of(node.outputs)
    require_types(source, result)
    require_shape(result, source.shape)
    axes = [axis_of(axis, len(source.shape)) for axis in vector_of(where, "axes")]
    if len({*axes}) != len(axes):
        raise Unsupported(f"axes {axes}: one is there twice")
    if target.rules.reverses_first_axis:
        del axes[1:]
    elif axes and max(axes) - min(axes) >= len(axes):
        raise Unsupported(f"axes {axes}: TFLite fails on some that are not neighbours")
    steps = [*steps_of(source.shape)]
    start = 0
    for axis in axes:
        start += (source.shape[axis] - 1) * steps[axis]
        steps[axis] = -steps[axis]
    box = Box(source.shape, tuple(steps), steps_of(result.shape), start)
    return moved([Move(source, result, box)], target)
