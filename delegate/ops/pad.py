# SPDX-License-Identifier: Apache-2.0
"""PAD, PADV2: a copy with a border of one value; of any type, as only bytes move."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch
from delegate.ops._checks.indices import integers_of
from delegate.ops._checks.node import inputs_of, output_of
from delegate.ops._checks.shapes import shape_text
from delegate.ops._launches.copy import (
    Box,
    Move,
    fill,
    joined,
    moved,
    require_same_scale,
    require_shape,
    require_types,
    steps_of,
    zero_of,
)
from delegate.ops._launches.tiles import by_elements, launch_over
from delegate.ops._launches.types import type_of_bytes
from delegate.ops._registry import lowers
from delegate.target import Target

MOST_DIMENSIONS = 5  # TFLite's own limit


@dataclass(frozen=True, slots=True, eq=False)
class Padding:
    """A checked border around a tensor."""

    source: Tensor
    result: Tensor
    before: tuple[int, ...]  # elements of the border, along each dimension
    border: NDArray[np.generic]  # its one value


@lowers("PAD", "PADV2")
def lower_pad(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Surround a tensor with zero points, zeros where it is not quantised, or PADV2's own value.

    Shapes:
        input (d0, d1, ...), constant paddings (rank, 2) -> output (before0 + d0 + after0, ...)
    Raises:
        Unsupported: computed or negative paddings, more than 5 dimensions, other scales.
    Source: tflite/kernels/pad.cc, internal/reference/pad.h
    """
    return alternatives(decode(node), target)


def decode(node: Node) -> Padding:
    """Return what a node pads, checked.

    Raises:
        Unsupported: see `lower_pad`.
    """
    inputs, _ = inputs_of(node.inputs, 3 if node.op == "PADV2" else 2)
    source, amounts = inputs[:2]
    result = output_of(node.outputs)
    require_types(source, result)
    values = paddings_of(amounts, source)
    rank = len(source.shape)
    if not 1 <= rank <= MOST_DIMENSIONS:
        raise Unsupported(f"{rank} dimensions: 1 to {MOST_DIMENSIONS} are implemented")
    require_shape(result, tuple(source.shape + values.sum(1)))
    require_same_scale(source, result)
    border = zero_of(result)
    if node.op == "PADV2":
        require_same_scale(inputs[2], result)
        if inputs[2].dtype != result.dtype or math.prod(inputs[2].shape) != 1:
            raise Unsupported(
                f"value {inputs[2].dtype} {shape_text(inputs[2])}: one {result.dtype}"
            )
        if inputs[2].data is None:
            raise Unsupported("computed value: only constant")
        border = np.asarray(inputs[2].data).reshape(1)
    return Padding(source, result, tuple(values[:, 0].tolist()), border)


def alternatives(padding: Padding, target: Target) -> tuple[Alternative, ...]:
    """Return the moves of rows, where a group is one work-item, then the plain launch."""
    first = moved(_moves(padding), target)[0]
    if not first.launches:
        return (first,)
    plain = Alternative("plain", (_launch(padding, target),))
    return (plain,) if target.group_items > 1 else (first, plain)


def paddings_of(amounts: Tensor, source: Tensor) -> NDArray[np.int64]:
    """Return how many elements come before and after a tensor's own, for each dimension.

    Raises:
        Unsupported: they are computed, negative, of another type or rank.
    """
    values = integers_of(amounts, "paddings")
    if values.shape != (len(source.shape), 2) or values.min(initial=0) < 0:
        raise Unsupported(f"paddings {values.tolist()} of shape {shape_text(source)}")
    if values.max(initial=0) >= 2**31:
        raise Unsupported(f"paddings {values.tolist()}: beyond 32 bits")
    return values


def _moves(padding: Padding) -> list[Move]:
    """Return the moves that fill the border, slab by slab, and then copy the input."""
    source, result = padding.source, padding.result
    steps = steps_of(result.shape)
    moves = []
    start = 0
    for axis, (first, size, step) in enumerate(
        zip(padding.before, source.shape, steps, strict=True)
    ):
        # Of the dimensions before, only what the input covers: the rest is filled already.
        for place, count in ((0, first), (first + size, result.shape[axis] - first - size)):
            shape = (*source.shape[:axis], count, *result.shape[axis + 1 :])
            moves.append(fill(padding.border, result, shape, start + place * step))
        start += first * step
    box = Box(source.shape, steps_of(source.shape), steps, 0, start)
    return [*moves, Move(source, result, box)]


def _launch(padding: Padding, target: Target) -> Launch:
    source, result, before = padding.source, padding.result, padding.before
    missing = MOST_DIMENSIONS - len(before)
    width = np.dtype(source.dtype).itemsize
    times = joined(width, source.shape[-1], result.shape[-1], before[-1])
    elements = math.prod(result.shape) // times
    tiling = by_elements(elements, target)
    sizes = {
        "in": (*(1,) * missing, *source.shape),
        "out": (*(1,) * missing, *result.shape),
        "before": (*(0,) * missing, *before),
    }
    return launch_over(
        "pad",
        "pad",
        tiling,
        {
            "input": source,
            "output": result,
            **{
                f"{name}_{i}": n // times if i == MOST_DIMENSIONS - 1 else n
                for name, numbers in sizes.items()
                for i, n in enumerate(numbers)
            },
            "border": Constant(width * times, lambda: np.repeat(padding.border, times)),
            "elements": elements,
        },
        {"ELEM": type_of_bytes(width * times)},
    )
