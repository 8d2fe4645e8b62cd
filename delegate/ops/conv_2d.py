# SPDX-License-Identifier: Apache-2.0
"""CONV_2D, 8 bit: the plain kernel, and one that computes blocks of pixels x channels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative, Constant, Launch
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import quantized_bounds
from delegate.ops._checks.node import inputs_of, output_of, require_constant
from delegate.ops._checks.shapes import shape_text
from delegate.ops._checks.windows import window
from delegate.ops._convolution import (
    conv_2d_float,
    conv_2d_groups,
    conv_2d_quant16,
    conv_2d_simt,
    conv_2d_x86,
)
from delegate.ops._convolution.conv_2d_nvidia import mma_alternatives
from delegate.ops._convolution.records import (
    Convolution,
    channel_rows,
    require_quant8_weights,
    zeros_row,
)
from delegate.ops._launches.tiles import by_share
from delegate.ops._launches.types import ELEM
from delegate.ops._registry import lowers
from delegate.target import Target

TILE_W = 4  # pixels a work-item; with 2 vectors of 16 lanes it fills 8 of AVX-512's 32 registers


@lowers("CONV_2D")
def lower_conv_2d(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Convolve an NHWC tensor with constant OHWI weights.

    Shapes:
        input (n, h, w, g * i), weights (o, kh, kw, i), bias (o,) -> output (n, oh, ow, o)
    Raises:
        Unsupported: computed weights, channels that make no groups, other types.
    Source: tflite/kernels/internal/reference/conv.h, integer_ops/conv.h
    """
    (source, _), _ = inputs_of(node.inputs, 2, 1)
    result = output_of(node.outputs)
    if source.dtype == result.dtype == "int16":
        return conv_2d_quant16.lower(node, target)
    if conv_2d_groups.is_grouped(node):
        return conv_2d_groups.lower(node, target)
    if source.dtype == result.dtype == "float32":
        return conv_2d_float.lower(node, target)
    return alternatives(convolution(node), target)


def convolution(node: Node) -> Convolution:
    """Return a node on 8-bit tensors as its kernels see it; raises as `lower_conv_2d`."""
    (source, weights), (bias,) = inputs_of(node.inputs, 2, 1)
    result = output_of(node.outputs)
    require_quant8_weights(source, weights, result)
    if len(weights.shape) != 4:
        raise Unsupported(f"weights {shape_text(weights)}: rank 4 (OHWI) is needed")
    out_c, kernel_h, kernel_w, in_c = weights.shape
    area = window(source, result, kernel_h, kernel_w, node.options)
    if source.shape[3] != in_c:
        raise Unsupported(
            f"groups: {in_c} input channels in the weights, {source.shape[3]} in the input"
        )
    if result.shape[3] != out_c:
        raise Unsupported(f"{out_c} channels of weights, {result.shape[3]} of output")
    return Convolution(
        source=source,
        weights=require_constant(weights, "weights").reshape(out_c, -1, in_c),
        weight_zero=quantized.weight_scales(weights, 0)[1],
        bias=quantized.int32_bias(bias, out_c),
        scaling=quantized.convolution_multipliers(
            source, weights, result, 0, per_channel=source.dtype == "int8"
        ),
        clamp=quantized_bounds(result, node.options.get("fused_activation_function", "NONE")),
        result=result,
        batch=source.shape[0],
        area=area,
    )


def alternatives(conv: Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the launches of a convolution: tiled where a block fits, then plain."""
    out_c, _, in_c = conv.weights.shape
    pixels, common = conv.pixels, conv.params()
    elem = ELEM[conv.source.dtype]
    shared: dict[str, int | str] = {"SINGLE_ROUNDING": int(conv.single_rounding), **conv.defines}

    def plain() -> Launch:
        elements = pixels * out_c
        return Launch(
            "conv_2d",
            "conv_2d_quant8",
            tiles=-(-elements // 64),
            group_items=64,
            params=common
            | {
                "weights": Constant(conv.weights.nbytes, lambda: conv.weights),
                "channels": channel_rows(lambda: conv.bias, conv.scaling),
                "input_zero": conv.input_zero,
                "weight_zero": conv.weight_zero,
                "elements": elements,
                "tile_items": 64,
            },
            reads=conv.reads,
            writes=conv.writes,
            defines=shared | {"ELEM": elem, "WEIGHT": elem},
        )

    def tiled(lanes: int, vectors: int) -> Launch:
        block = lanes * vectors
        tile_w = TILE_W if pixels >= TILE_W else 1
        blocks, pixel_blocks = -(-out_c // block), -(-pixels // tile_w)
        tile_items = by_share(blocks * pixel_blocks, target, most=pixel_blocks).tile_items
        block_tiles = -(-pixel_blocks // tile_items)
        return Launch(
            "conv_2d",
            "conv_2d_tiled_quant8",
            tiles=block_tiles * blocks,
            group_items=target.group_items,
            params=common
            | {
                "weights": _paired_weights(conv, block),
                "channels": channel_rows(conv.folded_bias, conv.scaling),
                "zeros": zeros_row(in_c, conv.input_zero, conv.source.dtype),
                "pairs": -(-in_c // 2),
                "pixels": pixels,
                "pixel_blocks": pixel_blocks,
                "block_tiles": block_tiles,
                "tile_items": tile_items,
            },
            reads=conv.reads,
            writes=conv.writes,
            defines=shared | {"ELEM": elem, "LANES": lanes, "VECTORS": vectors, "TILE_W": tile_w},
        )

    best = block_of(out_c, target)
    first = (
        *conv_2d_x86.alternatives(conv, target),
        *mma_alternatives(conv, target),
        *conv_2d_simt.alternatives(conv, target),
    )
    plain_last = (Alternative("plain", (plain(),)),)
    if best is None:
        return (*first, *plain_last)
    lanes, vectors = best
    return (*first, Alternative(f"tiled {lanes}x{vectors}", (tiled(lanes, vectors),)), *plain_last)


def block_of(channels: int, target: Target) -> tuple[int, int] | None:
    """Return (lanes, vectors) of the block that wastes least, or None where none fits."""
    if target.group_items > 1:
        return None  # these have blocks of their own
    width = min(target.vector_width, 16)
    sizes = [(width, 2), (width, 1), *((lanes, 1) for lanes in (8, 4) if lanes < width)]
    fitting = [(lanes, vectors) for lanes, vectors in sizes if lanes * vectors <= channels]
    # A block costs its vectors, and about half of one for what does not depend on their number.
    return min(fitting, default=None, key=lambda s: -(-channels // (s[0] * s[1])) * (s[1] + 0.5))


def _paired_weights(conv: Convolution, block: int) -> Constant:
    out_c, taps, in_c = conv.weights.shape
    blocks, pairs = -(-out_c // block), -(-in_c // 2)

    def pack() -> NDArray[np.int16]:
        # The last block starts so that it ends with the last channel, as in the kernel.
        starts = np.minimum(np.arange(blocks) * block, out_c - block)
        rows = (starts[:, None] + np.arange(block)).ravel()
        padded = np.zeros((blocks * block, taps, 2 * pairs), np.int16)
        padded[:, :, :in_c] = conv.centred()[rows]
        # (blocks, block, taps, pairs, 2) -> (blocks, taps, pairs, block, 2)
        return np.ascontiguousarray(
            padded.reshape(blocks, block, taps, pairs, 2).transpose(0, 2, 3, 1, 4)
        )

    return Constant(4 * blocks * block * taps * pairs, pack)
