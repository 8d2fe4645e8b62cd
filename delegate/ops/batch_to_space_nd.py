# SPDX-License-Identifier: Apache-2.0
"""BATCH_TO_SPACE_ND: pictures of a batch as the pixels of blocks of one; only bytes move."""

from __future__ import annotations

import math

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative
from delegate.ops._checks.indices import integers_of, vector_of
from delegate.ops._checks.node import inputs_of, output_of
from delegate.ops._checks.shapes import shape_text
from delegate.ops._launches.blocks import in_batch
from delegate.ops._launches.copy import moved, require_same_scale, require_shape, require_types
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("BATCH_TO_SPACE_ND")
def lower_batch_to_space_nd(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Interleave the pictures of a batch, and cut off a border.

    Shapes:
        input (b0 * b1 * n, h, w, c) -> output (n, h * b0 - crops, w * b1 - crops, c); without w too
    Raises:
        Unsupported: computed blocks or crops, a batch that they do not divide.
    Source: tflite/kernels/batch_to_space_nd.cc, internal/reference/batch_to_space_nd.h
    """
    (source, block, crop), _ = inputs_of(node.inputs, 3)
    result = output_of(node.outputs)
    require_types(source, result)
    require_same_scale(source, result)
    blocks, crops = blocks_of(source, block), amounts_of(source, crop, "crops")
    count = math.prod(blocks)
    if source.shape[0] % count:
        raise Unsupported(f"batch {source.shape[0]}: blocks of {count} do not divide it")
    sizes = [
        size * block - sum(pair)
        for size, block, pair in zip(source.shape[1:], blocks, crops, strict=False)
    ]
    require_shape(result, (source.shape[0] // count, *sizes, source.shape[-1]))
    return moved(in_batch(source, result, blocks, [pair[0] for pair in crops]), target)


def blocks_of(source: Tensor, block: Tensor) -> list[int]:
    """Return a block's size along each spatial dimension.

    Raises:
        Unsupported: a rank other than 3 and 4, computed sizes, one below 1.
    """
    rank = len(source.shape)
    if rank not in (3, 4):
        raise Unsupported(f"input {shape_text(source)}: only rank 3 and 4")
    blocks = vector_of(block, "block sizes", rank - 2)
    if min(blocks) < 1 or max(blocks) >= 2**31:
        raise Unsupported(f"block sizes {blocks}: at least 1 is needed")
    return blocks


def amounts_of(source: Tensor, amounts: Tensor, what: str) -> list[list[int]]:
    """Return how many pixels come before and after, along each spatial dimension.

    Raises:
        Unsupported: they are computed, negative, or of another shape.
    """
    values = integers_of(amounts, what)
    if values.shape != (len(source.shape) - 2, 2) or values.min() < 0 or values.max() >= 2**31:
        raise Unsupported(f"{what} {values.tolist()} of {shape_text(source)}")
    pairs: list[list[int]] = values.tolist()
    return pairs
