# SPDX-License-Identifier: Apache-2.0
"""Ops that move the bytes of one box each: BROADCAST_TO, FILL, REVERSE_V2, TILE, TRANSPOSE."""

from __future__ import annotations

import math

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.node import (
    ANY,
    axis_of,
    require_same_scale,
    require_shape,
    require_types,
    shape_text,
    tensors_of,
    vector_of,
)
from delegate.ops._launches.broadcast import broadcast
from delegate.ops._launches.copy import Box, Move, moved, steps_of
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("BROADCAST_TO")
def lower_broadcast_to(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Repeat a tensor along its dimensions of size 1, and along new ones before them.

    Raises:
        Unsupported: a computed shape, or one that the input cannot be broadcast to.
    Source: tflite/kernels/broadcast_to.cc
    """
    source, shape, result = tensors_of(node, 2, ANY)
    require_shape(result, vector_of(shape, "shape"))
    sizes, (in_steps,) = broadcast(result, source)
    return moved([Move(source, result, Box(sizes, in_steps, steps_of(sizes)))], target)


@lowers("FILL")
def lower_fill(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Repeat one value, which may be computed, over a shape, which may not.

    Raises:
        Unsupported: a computed shape, several values.
    Source: tflite/kernels/fill.cc
    """
    shape, value, result = tensors_of(node, 2)
    require_types(value, result)
    require_same_scale(value, result)
    if math.prod(value.shape) != 1:
        raise Unsupported(f"value {shape_text(value)}: one number is needed")
    require_shape(result, vector_of(shape, "shape"))
    nowhere = (0,) * len(result.shape)
    box = Box(result.shape, nowhere, steps_of(result.shape))
    return moved([Move(value, result, box)], target)


@lowers("REVERSE_V2")
def lower_reverse_v2(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Copy a tensor with the order of its elements turned round along each of the axes.

    Raises:
        Unsupported: computed axes, one out of range or there twice.
    Source: tflite/kernels/reverse.cc
    """
    source, where, result = tensors_of(node, 2, ANY)
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


@lowers("TILE")
def lower_tile(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Repeat a tensor so many times along each dimension.

    Raises:
        Unsupported: computed numbers of times, or one below 1.
    Source: tflite/kernels/tile.cc
    """
    source, multiples, result = tensors_of(node, 2, ANY)
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
    box = Box(tuple(sizes), tuple(in_steps), tuple(out_steps))
    return moved([Move(source, result, box)], target)


@lowers("TRANSPOSE")
def lower_transpose(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Reorder a tensor's elements so that output axis i is input axis order[i].

    Raises:
        Unsupported: an order that is computed, or does not name each axis once.
    Source: tflite/kernels/transpose.cc
    """
    source, order, result = tensors_of(node, 2, ANY)
    rank = len(source.shape)
    axes = [axis_of(axis, rank) for axis in vector_of(order, "order of axes", rank)]
    if len({*axes}) != rank:
        raise Unsupported(f"order of axes {axes}: one is there twice")
    require_shape(result, [source.shape[axis] for axis in axes])
    steps = steps_of(source.shape)
    box = Box(result.shape, tuple(steps[axis] for axis in axes), steps_of(result.shape))
    return moved([Move(source, result, box)], target)
