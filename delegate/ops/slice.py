# SPDX-License-Identifier: Apache-2.0
"""SLICE: a box out of a tensor; only bytes move."""

from __future__ import annotations

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.indices import vector_of
from delegate.ops._checks.node import inputs_of, output_of
from delegate.ops._checks.shapes import shape_text
from delegate.ops._launches.copy import Box, Move, moved, require_shape, require_types, steps_of
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("SLICE")
def lower_slice(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Copy so many elements from a place on, along each dimension; -1 are all that are left.

    Raises:
        Unsupported: a computed place or size, or one outside of the input.
    Source: tflite/kernels/slice.cc
    """
    (source, place, amounts), _ = inputs_of(node.inputs, 3)
    result = output_of(node.outputs)
    require_types(source, result)
    rank = len(source.shape)
    begin, sizes = vector_of(place, "begin", rank), vector_of(amounts, "sizes", rank)
    sizes = [
        whole - first if size == -1 else size
        for whole, first, size in zip(source.shape, begin, sizes, strict=True)
    ]
    for whole, first, size in zip(source.shape, begin, sizes, strict=True):
        if first < 0 or size < 0 or first + size > whole:
            raise Unsupported(f"{sizes} elements from {begin} on of {shape_text(source)}")
    require_shape(result, sizes)
    steps = steps_of(source.shape)
    start = sum(first * step for first, step in zip(begin, steps, strict=True))
    return moved([Move(source, result, Box(result.shape, steps, steps_of(sizes), start))], target)
