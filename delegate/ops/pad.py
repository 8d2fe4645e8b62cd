# SPDX-License-Identifier: Apache-2.0
"""PAD, PADV2 and MIRROR_PAD: copies with a border of one value, or of the mirror image."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.float_results import COPIES
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch
from delegate.ops._checks.node import (
    ANY,
    integers_of,
    require_same_scale,
    require_shape,
    shape_text,
    tensors_of,
)
from delegate.ops._launches.copy import (
    Box,
    Move,
    by_moves,
    fill,
    group_size,
    steps_of,
    zero_of,
)
from delegate.ops._launches.tiles import over_elements
from delegate.ops._launches.types import type_of_bytes
from delegate.ops._registry import lowers
from delegate.target import Target

MOST_DIMENSIONS = 5  # TFLite's own limit
_SKIPPED = {"REFLECT": 1, "SYMMETRIC": 0}  # edge elements that are not repeated


@lowers("PAD", "PADV2", floats=COPIES)
def lower_pad(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Pad a tensor with zeros (the zero point if quantised), or with PADV2's value.

    If a work-group is one work-item, whole rows are copied.

    Shapes:
        input (d0, d1, ...), constant paddings (rank, 2) -> output (before0 + d0 + after0, ...)
    Raises:
        Unsupported: non-constant or negative paddings, more than 5 dimensions, scales that differ.
    Source: tflite/kernels/pad.cc, internal/reference/pad.h
    """
    source, padding_tensor, *values, result = tensors_of(node, 3 if node.op == "PADV2" else 2, ANY)
    paddings = _paddings_of(padding_tensor, source)
    rank = len(source.shape)
    if not 1 <= rank <= MOST_DIMENSIONS:
        raise Unsupported(f"{rank} dimensions: 1 to {MOST_DIMENSIONS} are implemented")
    require_shape(result, tuple(source.shape + paddings.sum(1)))
    require_same_scale(source, result)
    border = zero_of(result)
    for value in values:
        require_same_scale(value, result)
        if value.dtype != result.dtype or math.prod(value.shape) != 1:
            given = f"value {value.dtype} {shape_text(value)}"
            raise Unsupported(f"{given}: one {result.dtype} is needed")
        if value.data is None:
            raise Unsupported("value: not constant")
        border = np.asarray(value.data).reshape(1)
    before = paddings[:, 0].tolist()
    copies = by_moves(_moves(source, result, before, border), target)[0]
    if not copies.launches:
        return (copies,)
    fallback = Alternative("plain", (_launch(source, result, before, border, target),))
    return (fallback,) if target.group_items > 1 else (copies, fallback)


def _paddings_of(padding_tensor: Tensor, source: Tensor) -> NDArray[np.int64]:
    """Return the padding before and after, for each dimension.

    Raises:
        Unsupported: paddings that are not constant, negative, or of a wrong type or rank.
    """
    values = integers_of(padding_tensor, "paddings")
    if values.shape != (len(source.shape), 2) or values.min(initial=0) < 0:
        given = f"paddings {values.tolist()} of shape {shape_text(source)}"
        raise Unsupported(f"{given}: {len(source.shape)} pairs of 0 or more are needed")
    if values.max(initial=0) >= 2**31:
        raise Unsupported(f"paddings {values.tolist()}: beyond 32 bits")
    return values


def _moves(
    source: Tensor, result: Tensor, before: Sequence[int], border: NDArray[np.generic]
) -> list[Move]:
    """Return the moves that fill the border, slab by slab, and then copy the input."""
    steps = steps_of(result.shape)
    moves = []
    start = 0
    for axis, (first, size, step) in enumerate(zip(before, source.shape, steps, strict=True)):
        # Along the previous dimensions only the input's extent: the rest is filled already.
        for place, count in ((0, first), (first + size, result.shape[axis] - first - size)):
            shape = (*source.shape[:axis], count, *result.shape[axis + 1 :])
            moves.append(fill(border, result, shape, start + place * step))
        start += first * step
    box = Box(source.shape, steps_of(source.shape), steps, 0, start)
    return [*moves, Move(source, result, box)]


def _launch(
    source: Tensor,
    result: Tensor,
    before: Sequence[int],
    border: NDArray[np.generic],
    target: Target,
) -> Launch:
    missing = MOST_DIMENSIONS - len(before)
    width = np.dtype(source.dtype).itemsize
    group = group_size(width, source.shape[-1], result.shape[-1], before[-1])
    sizes = {
        "in": (*(1,) * missing, *source.shape),
        "out": (*(1,) * missing, *result.shape),
        "before": (*(0,) * missing, *before),
    }
    return over_elements(
        "pad",
        "pad",
        math.prod(result.shape) // group,
        target,
        {
            "input": source,
            "output": result,
            **{
                f"{name}_{i}": n // group if i == MOST_DIMENSIONS - 1 else n
                for name, numbers in sizes.items()
                for i, n in enumerate(numbers)
            },
            "border": Constant(width * group, lambda: np.repeat(border, group)),
        },
        {"ELEM": type_of_bytes(width * group)},
    )


@lowers("MIRROR_PAD", floats=COPIES)
def lower_mirror_pad(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Pad a tensor with its mirror image, with the edge repeated (SYMMETRIC) or not (REFLECT).

    Raises:
        Unsupported: paddings that are not constant, or larger than the input.
    Source: tflite/kernels/mirror_pad.cc
    """
    source, padding_tensor, result = tensors_of(node, 2, ANY)
    require_same_scale(source, result)
    mode = node.options.get("mode", "REFLECT")
    if mode not in tuple(_SKIPPED):
        raise Unsupported(f"mode {mode}: only {' and '.join(_SKIPPED)} exist")
    skipped = _SKIPPED[mode]
    values = _paddings_of(padding_tensor, source)
    for size, pair in zip(source.shape, values.tolist(), strict=True):
        if max(pair) > size - skipped:
            raise Unsupported(f"paddings {pair} of {size} elements: more than there are to mirror")
    require_shape(result, tuple(source.shape + values.sum(1)))
    steps = steps_of(result.shape)
    before = [int(number) for number in values[:, 0]]
    start = sum(first * step for first, step in zip(before, steps, strict=True))
    moves = [Move(source, result, Box(source.shape, steps_of(source.shape), steps, 0, start))]
    # Innermost axis first: the outer axes mirror whole rows of the output.
    for axis in reversed(range(len(before))):
        step, first, size = steps[axis], before[axis], source.shape[axis]
        start -= first * step
        after = first + size
        for count, out, mirrored, direction in (
            (first, first - 1, first + skipped, -1),
            (result.shape[axis] - after, after, after - 1 - skipped, 1),
        ):
            box = Box(
                (*source.shape[:axis], count, *result.shape[axis + 1 :]),
                (*steps[:axis], -direction * step, *steps[axis + 1 :]),
                (*steps[:axis], direction * step, *steps[axis + 1 :]),
                start + mirrored * step,
                start + out * step,
            )
            moves.append(Move(result, result, box))
    return by_moves(moves, target)
