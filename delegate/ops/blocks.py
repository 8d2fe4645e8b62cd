# SPDX-License-Identifier: Apache-2.0
"""Rearrangements of pixel blocks between space and channels, or space and batch; only copies.

DEPTH_TO_SPACE, SPACE_TO_DEPTH, BATCH_TO_SPACE_ND, SPACE_TO_BATCH_ND.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from delegate.errors import Unsupported
from delegate.graph.float_results import COPIES
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative
from delegate.ops._checks.node import (
    ANY,
    integer,
    integers_of,
    require_same_scale,
    require_shape,
    shape_text,
    tensors_of,
    vector_of,
)
from delegate.ops._launches.copy import (
    Box,
    Move,
    by_moves,
    fill,
    inverse_move,
    steps_of,
    zero_of,
)
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("DEPTH_TO_SPACE", "SPACE_TO_DEPTH", floats=COPIES)
def lower_depth_and_space(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Move blocks of pixels from channels to height and width, or back.

    Shapes:
        deep (n, h, w, b * b * c) -> image (n, h * b, w * b, c), or image -> deep
    Raises:
        Unsupported: another rank, a depth, height or width that is no multiple of the block.
    Source: tflite/kernels/depth_to_space.cc, space_to_depth.cc
    """
    source, result = tensors_of(node, 1, ("uint8", "int8", "int32", "int64", "float32"))
    block = integer(node.options, "block_size", 0)
    is_deep = node.op == "DEPTH_TO_SPACE"
    divided = [(3, block * block)] if is_deep else [(1, block), (2, block)]
    if (
        len(source.shape) != 4
        or block < 1
        or any(source.shape[axis] % size for axis, size in divided)
    ):
        raise Unsupported(f"block {block} of {shape_text(source)}: only whole blocks of rank 4")
    n, h, w, depth = source.shape
    if is_deep:
        require_shape(result, (n, h * block, w * block, depth // (block * block)))
        return by_moves([_in_depth(source, result, block)], target)
    require_shape(result, (n, h // block, w // block, depth * block * block))
    return by_moves([inverse_move(_in_depth(result, source, block))], target)


def _in_depth(deep: Tensor, image: Tensor, block: int) -> Move:
    """Return the copy that DEPTH_TO_SPACE makes.

    Shapes:
        deep (n, h, w, block * block * c) -> image (n, h * block, w * block, c)
    """
    n, h, w, _ = deep.shape
    depth = image.shape[3]
    picture, row, pixel, _ = steps_of(deep.shape)
    out_picture, out_row, _, _ = steps_of(image.shape)
    return Move(
        deep,
        image,
        Box(
            (n, h, block, w, block * depth),
            (picture, row, block * depth, pixel, 1),
            (out_picture, block * out_row, out_row, block * depth, 1),
        ),
    )


@lowers("BATCH_TO_SPACE_ND", floats=COPIES)
def lower_batch_to_space_nd(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Interleave the images of a batch, then crop.

    Shapes:
        input (b0 * b1 * n, h, w, c) -> output (n, h * b0 - crops, w * b1 - crops, c); or without w
    Raises:
        Unsupported: non-constant blocks or crops, a batch that is no multiple of the blocks.
    Source: tflite/kernels/batch_to_space_nd.cc, internal/reference/batch_to_space_nd.h
    """
    source, result, blocks, crops = _parse(node, "crops")
    count = math.prod(blocks)
    if source.shape[0] % count:
        raise Unsupported(f"batch {source.shape[0]}: blocks of {count} do not divide it")
    sizes = [
        size * block - sum(pair)
        for size, block, pair in zip(source.shape[1:], blocks, crops, strict=False)
    ]
    require_shape(result, (source.shape[0] // count, *sizes, source.shape[-1]))
    return by_moves(_in_batch(source, result, blocks, [pair[0] for pair in crops]), target)


@lowers("SPACE_TO_BATCH_ND", floats=COPIES)
def lower_space_to_batch_nd(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Pad an image with its zero point, then split it into images of every b-th pixel.

    Shapes:
        input (n, h, w, c) -> output (b0 * b1 * n, (h + paddings) / b0, (w + paddings) / b1, c); or
        without w
    Raises:
        Unsupported: non-constant blocks or paddings, a size that is no multiple of the blocks.
    Source: tflite/kernels/space_to_batch_nd.cc, internal/reference/space_to_batch_nd.h
    """
    source, result, blocks, paddings = _parse(node, "paddings")
    sizes = [n + sum(pair) for n, pair in zip(source.shape[1:], paddings, strict=False)]
    if any(size % block for size, block in zip(sizes, blocks, strict=True)):
        raise Unsupported(f"{shape_text(source)} padded to {sizes}: blocks of {blocks} do not fit")
    out_sizes = [size // block for size, block in zip(sizes, blocks, strict=True)]
    require_shape(result, (source.shape[0] * math.prod(blocks), *out_sizes, source.shape[-1]))
    before = [pair[0] for pair in paddings]
    moves = [inverse_move(move) for move in _in_batch(result, source, blocks, before)]
    if any(map(any, paddings)):
        moves.insert(0, fill(zero_of(result), result, result.shape))
    return by_moves(moves, target)


def _parse(node: Node, what: str) -> tuple[Tensor, Tensor, list[int], list[list[int]]]:
    """Return the input, the output, and for each spatial dimension the block size and the margins.

    `what`: the name of the margins ("crops", "paddings"), for messages.

    Raises:
        Unsupported: a rank other than 3 and 4; non-constant block sizes or margins, or of a wrong
            shape; block sizes below 1, negative margins.
    """
    source, block, margins, result = tensors_of(node, 3, ANY)
    require_same_scale(source, result)
    rank = len(source.shape)
    if rank not in (3, 4):
        raise Unsupported(f"input {shape_text(source)}: only rank 3 and 4")
    blocks = vector_of(block, "block sizes", rank - 2)
    if min(blocks) < 1 or max(blocks) >= 2**31:
        raise Unsupported(f"block sizes {blocks}: at least 1 is needed")
    values = integers_of(margins, what)
    if values.shape != (rank - 2, 2) or values.min() < 0 or values.max() >= 2**31:
        given = f"{what} {values.tolist()} of {shape_text(source)}"
        raise Unsupported(f"{given}: {rank - 2} pairs of 0 or more are needed")
    return source, result, blocks, values.tolist()


def _in_batch(
    blocked: Tensor, image: Tensor, blocks: Sequence[int], before: Sequence[int]
) -> list[Move]:
    """Return the copies of BATCH_TO_SPACE_ND: several, as crops may cut through blocks.

    `before`: pixels cropped at the start of each spatial dimension.

    Shapes:
        blocked (product of blocks * n, h, w, c) -> image (n, ...), cropped from (n, h b0, w b1, c)
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
            start, number, place, whole, inside = span
            sizes += [whole, inside]
            inwards += [in_steps[axis], remainder]
            outwards += [block * out_steps[axis], out_steps[axis]]
            in_start += number * in_steps[axis] + place * remainder
            out_start += start * out_steps[axis]
        box = Box((*sizes, channels), (*inwards, 1), (*outwards, 1), in_start, out_start)
        moves.append(Move(blocked, image, box))
    return moves


def _spans(size: int, before: int, block: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Split pixels into a partial first block, whole blocks, and a partial last block, if any.

    Yields for each: the first pixel of the image, the index of its block, its offset in the block,
    the number of blocks, and the pixels taken of each.
    """
    at = 0
    while at < size:
        number, remainder = divmod(at + before, block)
        whole = 1 if remainder else (size - at) // block
        inside = block if whole and not remainder else min(block - remainder, size - at)
        yield at, number, remainder, max(whole, 1), inside
        at += max(whole, 1) * inside
