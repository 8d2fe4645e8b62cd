# SPDX-License-Identifier: Apache-2.0
"""MIRROR_PAD: a copy whose border is its own mirror image; only bytes move."""

from __future__ import annotations

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.node import inputs_of, output_of
from delegate.ops._launches.copy import (
    Box,
    Move,
    moved,
    require_same_scale,
    require_shape,
    require_types,
    steps_of,
)
from delegate.ops._registry import lowers
from delegate.ops.pad import paddings_of
from delegate.target import Target

_SKIPPED = {"REFLECT": 1, "SYMMETRIC": 0}  # elements at the mirror that are not repeated


@lowers("MIRROR_PAD")
def lower_mirror_pad(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Surround a tensor with what lies inside of its edge, the edge itself again or not.

    Raises:
        Unsupported: computed paddings, or some that reach further than the input.
    Source: tflite/kernels/mirror_pad.cc
    """
    (source, amounts), _ = inputs_of(node.inputs, 2)
    result = output_of(node.outputs)
    require_types(source, result)
    require_same_scale(source, result)
    mode = node.options.get("mode", "REFLECT")
    if mode not in tuple(_SKIPPED):
        raise Unsupported(f"mode {mode}: only {' and '.join(_SKIPPED)} exist")
    skipped = _SKIPPED[mode]
    values = paddings_of(amounts, source)
    for size, pair in zip(source.shape, values.tolist(), strict=True):
        if max(pair) > size - skipped:
            raise Unsupported(f"paddings {pair} of {size} elements: more than there are to mirror")
    require_shape(result, tuple(source.shape + values.sum(1)))
    steps = steps_of(result.shape)
    before = [int(number) for number in values[:, 0]]
    start = sum(first * step for first, step in zip(before, steps, strict=True))
    moves = [Move(source, result, Box(source.shape, steps_of(source.shape), steps, 0, start))]
    # The innermost axis first; each further one mirrors whole rows of the output itself.
    for axis in reversed(range(len(before))):
        step, first, size = steps[axis], before[axis], source.shape[axis]
        start -= first * step
        after = first + size
        for count, out, mirrored, way in (
            (first, first - 1, first + skipped, -1),
            (result.shape[axis] - after, after, after - 1 - skipped, 1),
        ):
            box = Box(
                (*source.shape[:axis], count, *result.shape[axis + 1 :]),
                (*steps[:axis], -way * step, *steps[axis + 1 :]),
                (*steps[:axis], way * step, *steps[axis + 1 :]),
                start + mirrored * step,
                start + out * step,
            )
            moves.append(Move(result, result, box))
    return moved(moves, target)
