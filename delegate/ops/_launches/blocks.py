# SPDX-License-Identifier: Apache-2.0
"""Blocks of pixels that lie in channels or in a batch elsewhere, as moves."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from delegate.graph.ir import Tensor
from delegate.ops._launches.copy import Box, Move, steps_of


def in_depth(source: Tensor, result: Tensor, block: int) -> Move:
    """Return the move of DEPTH_TO_SPACE.

    Shapes:
        source (n, h, w, block * block * c) -> result (n, h * block, w * block, c)
    """
    n, h, w, _ = source.shape
    depth = result.shape[3]
    image, row, pixel, _ = steps_of(source.shape)
    out_image, out_row, _, _ = steps_of(result.shape)
    return Move(
        source,
        result,
        Box(
            (n, h, block, w, block * depth),
            (image, row, block * depth, pixel, 1),
            (out_image, block * out_row, out_row, block * depth, 1),
        ),
    )


def reversed_move(move: Move) -> Move:
    """Return the move that undoes one between two tensors."""
    assert isinstance(move.source, Tensor)
    box = move.box
    back = Box(box.sizes, box.out_steps, box.in_steps, box.out_start, box.in_start)
    return Move(move.result, move.source, back)


def in_batch(
    blocked: Tensor, image: Tensor, blocks: Sequence[int], before: Sequence[int]
) -> list[Move]:
    """Return the moves of BATCH_TO_SPACE_ND: a few, as rows of blocks may begin and end inside one.

    `before`: pixels that the first blocks have before the image, along each spatial dimension.

    Shapes:
        blocked (product of blocks * n, h, w, c) -> image (n, ...), a part of (n, h b0, w b1, c)
    """
    n, channels = image.shape[0], image.shape[-1]
    spatial = range(1, 1 + len(blocks))
    in_steps, out_steps = steps_of(blocked.shape), steps_of(image.shape)
    remainders = [n * in_steps[0] * step for step in steps_of(blocks)]
    moves = []
    for spans in itertools.product(
        *(
            _spans(image.shape[axis], first, block)
            for axis, first, block in zip(spatial, before, blocks, strict=True)
        )
    ):
        sizes, inwards, outwards = [n], [in_steps[0]], [out_steps[0]]
        in_start = out_start = 0
        for axis, block, remainder, span in zip(spatial, blocks, remainders, spans, strict=True):
            sizes += [span.whole, span.inside]
            inwards += [in_steps[axis], remainder]
            outwards += [block * out_steps[axis], out_steps[axis]]
            in_start += span.block * in_steps[axis] + span.remainder * remainder
            out_start += span.start * out_steps[axis]
        box = Box((*sizes, channels), (*inwards, 1), (*outwards, 1), in_start, out_start)
        moves.append(Move(blocked, image, box))
    return moves


@dataclass(frozen=True, slots=True)
class _Span:
    start: int  # the first pixel of the image
    block: int  # the block that it lies in
    remainder: int  # its place in it
    whole: int  # blocks
    inside: int  # pixels of each


def _spans(size: int, before: int, block: int) -> Iterator[_Span]:
    """Cut pixels into a first part of a block, whole blocks, and a last part, where there are."""
    at = 0
    while at < size:
        number, remainder = divmod(at + before, block)
        whole = 1 if remainder else (size - at) // block
        inside = block if whole and not remainder else min(block - remainder, size - at)
        yield _Span(at, number, remainder, max(whole, 1), inside)
        at += max(whole, 1) * inside
