# SPDX-License-Identifier: Apache-2.0
"""SPACE_TO_DEPTH: each block of pixels as the channels of one; only bytes move."""

from __future__ import annotations

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.node import inputs_of, integer, output_of
from delegate.ops._checks.shapes import shape_text
from delegate.ops._launches.blocks import in_depth, reversed_move
from delegate.ops._launches.copy import moved, require_shape, require_types
from delegate.ops._registry import lowers
from delegate.ops.depth_to_space import TYPES
from delegate.target import Target


@lowers("SPACE_TO_DEPTH")
def lower_space_to_depth(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Gather height and width into channels.

    Shapes:
        input (n, h * b, w * b, c) -> output (n, h, w, b * b * c)
    Raises:
        Unsupported: another rank, a height or width that the block does not divide.
    Source: tflite/kernels/space_to_depth.cc, internal/reference/space_to_depth.h
    """
    (source,), _ = inputs_of(node.inputs, 1)
    result = output_of(node.outputs)
    require_types(source, result, TYPES)
    block = integer(node.options, "block_size", 0)
    if len(source.shape) != 4 or block < 1 or source.shape[1] % block or source.shape[2] % block:
        raise Unsupported(f"block {block} of {shape_text(source)}: only whole blocks of rank 4")
    n, h, w, depth = source.shape
    require_shape(result, (n, h // block, w // block, depth * block * block))
    return moved([reversed_move(in_depth(result, source, block))], target)
