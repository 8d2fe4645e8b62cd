# SPDX-License-Identifier: Apache-2.0
"""SPACE_TO_BATCH_ND: the pixels of blocks as pictures of a batch; only bytes move."""

from __future__ import annotations

import math

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.node import inputs_of, output_of
from delegate.ops._checks.shapes import shape_text
from delegate.ops._launches.blocks import in_batch, reversed_move
from delegate.ops._launches.copy import (
    fill,
    moved,
    require_same_scale,
    require_shape,
    require_types,
    zero_of,
)
from delegate.ops._registry import lowers
from delegate.ops.batch_to_space_nd import amounts_of, blocks_of
from delegate.target import Target


@lowers("SPACE_TO_BATCH_ND")
def lower_space_to_batch_nd(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Surround a picture with zero points and take it apart into pictures of every b-th pixel.

    Shapes:
        input (n, h, w, c) -> output (b0 * b1 * n, (h + paddings) / b0, (w + paddings) / b1, c);
        without w too
    Raises:
        Unsupported: computed blocks or paddings, a size that the blocks do not divide.
    Source: tflite/kernels/space_to_batch_nd.cc, internal/reference/space_to_batch_nd.h
    """
    (source, block, padding), _ = inputs_of(node.inputs, 3)
    result = output_of(node.outputs)
    require_types(source, result)
    require_same_scale(source, result)
    blocks, paddings = blocks_of(source, block), amounts_of(source, padding, "paddings")
    sizes = [n + sum(pair) for n, pair in zip(source.shape[1:], paddings, strict=False)]
    if any(size % block for size, block in zip(sizes, blocks, strict=True)):
        raise Unsupported(f"{shape_text(source)} padded to {sizes}: blocks of {blocks} do not fit")
    rest = [size // block for size, block in zip(sizes, blocks, strict=True)]
    require_shape(result, (source.shape[0] * math.prod(blocks), *rest, source.shape[-1]))
    moves = [
        reversed_move(move)
        for move in in_batch(result, source, blocks, [pair[0] for pair in paddings])
    ]
    if any(map(any, paddings)):
        moves.insert(0, fill(zero_of(result), result, result.shape))
    return moved(moves, target)
