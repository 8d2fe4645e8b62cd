# SPDX-License-Identifier: Apache-2.0
"""TILE: a tensor again and again along each axis; only bytes move."""

from __future__ import annotations

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.indices import vector_of
from delegate.ops._checks.node import inputs_of, output_of
from delegate.ops._launches.copy import Box, Move, moved, require_shape, require_types, steps_of
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("TILE")
def lower_tile(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Repeat a tensor so many times along each dimension.

    Raises:
        Unsupported: computed numbers of times, or one below 1.
    Source: tflite/kernels/tile.cc
    """
    (source, multiples), _ = inputs_of(node.inputs, 2)
    result = output_of(node.outputs)
    require_types(source, result)
    times = vector_of(multiples, "multiples", len(source.shape))
    if min(times, default=1) < 1:
        raise Unsupported(f"multiples {times}: at least 1 is needed")
    require_shape(result, [n * size for n, size in zip(times, source.shape, strict=True)])
    sizes: list[int] = []
    in_steps: list[int] = []
    out_steps: list[int] = []
    rows = zip(times, source.shape, steps_of(source.shape), steps_of(result.shape), strict=True)
    for count, size, inwards, outwards in rows:
        sizes += [count, size]
        in_steps += [0, inwards]
        out_steps += [size * outwards, outwards]
    return moved(
        [Move(source, result, Box(tuple(sizes), tuple(in_steps), tuple(out_steps)))], target
    )
