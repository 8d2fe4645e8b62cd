# SPDX-License-Identifier: Apache-2.0
"""DEPTH_TO_SPACE: each pixel's channels as a block of pixels; only bytes move."""

from __future__ import annotations

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.node import inputs_of, integer, output_of
from delegate.ops._checks.shapes import shape_text
from delegate.ops._launches.blocks import in_depth
from delegate.ops._launches.copy import moved, require_shape, require_types
from delegate.ops._registry import lowers
from delegate.target import Target

TYPES = ("uint8", "int8", "int32", "int64", "float32")


@lowers("DEPTH_TO_SPACE")
def lower_depth_to_space(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Spread channels over height and width.

    Shapes:
        input (n, h, w, b * b * c) -> output (n, h * b, w * b, c)
    Raises:
        Unsupported: another rank, a depth that the block does not divide.
    Source: tflite/kernels/depth_to_space.cc, internal/reference/depth_to_space.h
    """
    (source,), _ = inputs_of(node.inputs, 1)
    result = output_of(node.outputs)
    require_types(source, result, TYPES)
    block = integer(node.options, "block_size", 0)
    if len(source.shape) != 4 or block < 1 or source.shape[3] % (block * block):
        raise Unsupported(f"block {block} of {shape_text(source)}: only whole blocks of rank 4")
    n, h, w, depth = source.shape
    require_shape(result, (n, h * block, w * block, depth // (block * block)))
    return moved([in_depth(source, result, block)], target)
