# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE: the axes in another order; only bytes move."""

from __future__ import annotations

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.indices import axis_of, vector_of
from delegate.ops._checks.node import inputs_of, output_of
from delegate.ops._launches.copy import Box, Move, moved, require_shape, require_types, steps_of
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("TRANSPOSE")
def lower_transpose(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Reorder a tensor's elements so that output axis i is input axis order[i].

    Raises:
        Unsupported: an order that is computed, or does not name each axis once.
    Source: tflite/kernels/transpose.cc
    """
    (source, order), _ = inputs_of(node.inputs, 2)
    result = output_of(node.outputs)
    require_types(source, result)
    rank = len(source.shape)
    axes = [axis_of(axis, rank) for axis in vector_of(order, "order of axes", rank)]
    if len({*axes}) != rank:
        raise Unsupported(f"order of axes {axes}: one is there twice")
    require_shape(result, [source.shape[axis] for axis in axes])
    steps = steps_of(source.shape)
    box = Box(result.shape, tuple(steps[axis] for axis in axes), steps_of(result.shape))
    return moved([Move(source, result, box)], target)
