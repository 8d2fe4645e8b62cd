# SPDX-License-Identifier: Apache-2.0
"""Parts of a tensor along one axis, as moves: what ops that cut or join tensors share."""

from __future__ import annotations

from delegate.graph.ir import Tensor
from delegate.ops._launches.copy import Box, Move, steps_of


def part(source: Tensor, result: Tensor, axis: int, start: int) -> Move:
    """Return the move of a result that is the source from `start` on along an axis."""
    steps = steps_of(source.shape)
    return Move(
        source, result, Box(result.shape, steps, steps_of(result.shape), start * steps[axis])
    )


def whole(source: Tensor, result: Tensor, axis: int, start: int) -> Move:
    """Return the move of a source that becomes the result from `start` on along an axis."""
    steps = steps_of(result.shape)
    return Move(
        source, result, Box(source.shape, steps_of(source.shape), steps, 0, start * steps[axis])
    )


def layer(source: Tensor, result: Tensor, axis: int, place: int) -> Move:
    """Return the move of a source that becomes layer `place` of a result with one more axis."""
    steps = steps_of(result.shape)
    rest = (*steps[:axis], *steps[axis + 1 :])
    return Move(
        source, result, Box(source.shape, steps_of(source.shape), rest, 0, place * steps[axis])
    )


def peeled(source: Tensor, result: Tensor, axis: int, place: int) -> Move:
    """Return the move of a result that is layer `place` of a source with one more axis."""
    steps = steps_of(source.shape)
    rest = (*steps[:axis], *steps[axis + 1 :])
    return Move(
        source, result, Box(result.shape, rest, steps_of(result.shape), place * steps[axis])
    )
