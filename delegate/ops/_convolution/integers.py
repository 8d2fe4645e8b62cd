# SPDX-License-Identifier: Apache-2.0
"""CONV_2D and DEPTHWISE_CONV_2D in 8 bits, and in int16 with int8 weights, on any device.

Alternatives: vectors of channels, and plain.
"""

from __future__ import annotations

import numpy as np

from delegate.launch import Alternative, Constant, Defines
from delegate.ops._convolution.packing import fallback, fixed_rows, int16_pairs, zeros_row
from delegate.ops._convolution.records import Quant8Convolution, Quant16Convolution
from delegate.ops._launches.tiles import by_share, in_blocks, lanes_of, launch_of, launch_over
from delegate.ops._launches.types import ELEM
from delegate.ops._launches.wide_sums import DOUBLE, TERMS_AN_INT
from delegate.ops._numbers import ceil_div
from delegate.target import Target

# Pixels per work-item, which share loaded weights; with 2 vectors of 16 lanes their sums take 8 of
# AVX-512's 32 registers.
TILE_W = 4
# _MANY: registers for the tile of the depthwise kernels, whose loops some compilers do not unroll,
# or for all pixels of four int16 channels. _SOME: for one such pixel, without products of doubles.
_MANY, _SOME = 112, 40


def conv_2d_quant8(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the portable alternatives of a CONV_2D: blocks if one fits, then plain."""
    elem = ELEM[conv.source.dtype]
    defines: Defines = {"SINGLE_ROUNDING": int(conv.single_rounding), **conv.defines, "ELEM": elem}
    weight_define: Defines = {"WEIGHT": elem}
    plain = fallback(conv, "conv_2d", "conv_2d_quant8", conv.weights, None, defines | weight_define)
    # Devices with several work-items per group have their own blocks: simt/conv_2d.py.
    block = None if target.group_items > 1 else block_of(conv.out_c, target)
    if block is None:
        return (plain,)
    lanes, vectors = block
    tile_w = TILE_W if conv.pixels >= TILE_W else 1
    blocks, pixel_blocks = ceil_div(conv.out_c, lanes * vectors), ceil_div(conv.pixels, tile_w)
    tiling = by_share(blocks * pixel_blocks, target, most=pixel_blocks)
    tiles, fields = in_blocks(blocks, pixel_blocks, tiling)
    launch = launch_of(
        "conv_2d",
        "conv_2d_tiled_quant8",
        tiles,
        target.group_items,
        conv.params()
        | {
            "weights": int16_pairs(conv, conv.layer.centred, lanes * vectors),
            "channels": fixed_rows(conv.layer.folded_bias, conv.scaling),
            "zeros": zeros_row(conv.in_c, conv.input_zero, conv.source.dtype),
            "pairs": ceil_div(conv.in_c, 2),
            "pixels": conv.pixels,
            **fields,
        },
        defines | {"LANES": lanes, "VECTORS": vectors, "TILE_W": tile_w},
    )
    return Alternative(f"tiled {lanes}x{vectors}", (launch,)), plain


def block_of(channels: int, target: Target) -> tuple[int, int] | None:
    """Return (lanes, vectors) of the block that wastes least, or None if none fits."""
    width = min(target.vector_width, 16)
    sizes = [(width, 2), (width, 1), *((lanes, 1) for lanes in (8, 4) if lanes < width)]
    fitting = [(lanes, vectors) for lanes, vectors in sizes if lanes * vectors <= channels]
    # A block costs its vectors, plus a fixed cost of about half a vector.
    return min(fitting, default=None, key=lambda s: ceil_div(channels, s[0] * s[1]) * (s[1] + 0.5))


def depthwise_conv_2d_quant8(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the portable alternatives of a depthwise one: vectors if they fit, then plain."""
    elem = ELEM[conv.source.dtype]
    extra, types = {"depth_multiplier": conv.group_out_c}, {"ELEM": elem, "WEIGHT": elem}
    file = "depthwise_conv_2d"
    plain = fallback(conv, file, f"{file}_quant8", conv.by_tap(), extra, types)
    lanes = lanes_of(conv.out_c, target)
    if lanes == 0 or conv.group_out_c > 1 or not target.keeps(_MANY):
        return (plain,)
    tile_w = TILE_W if conv.area.out_w >= TILE_W else 1
    channel_blocks, row_blocks = ceil_div(conv.out_c, lanes), ceil_div(conv.area.out_w, tile_w)
    items = conv.batch * conv.area.out_h * row_blocks * channel_blocks
    launch = launch_over(
        file,
        f"{file}_vector_quant8",
        by_share(items, target),
        conv.params()
        | {
            "weights": Constant(2 * conv.weights.size, conv.layer.centred_by_tap),
            "channels": fixed_rows(conv.layer.folded_bias, conv.scaling),
            "zeros": zeros_row(conv.out_c, conv.input_zero, conv.source.dtype),
            "items": items,
            "channel_blocks": channel_blocks,
            "row_blocks": row_blocks,
        },
        {"ELEM": elem, "LANES": lanes, "TILE_W": tile_w},
    )
    return Alternative(f"vector {lanes}x{tile_w}", (launch,)), plain


def conv_2d_quant16(conv: Quant16Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the same for int16: blocks if one fits, then plain, which supports groups."""
    weights = conv.weights
    groups = {"group_in_c": conv.group_in_c, "group_out_c": conv.group_out_c}
    file = "conv_2d_quant16"
    plain = fallback(conv, file, file, conv.weights, groups, conv.sums.defines)
    is_cpu = target.group_items == 1
    if is_cpu:
        block = block_of(conv.out_c, target)
    else:
        lanes = _register_lanes(conv, target)
        block = (lanes, 1) if conv.out_c >= lanes else None
    if block is None or conv.groups > 1:
        return (plain,)
    lanes, vectors = block
    most = TILE_W if is_cpu or target.keeps(_MANY) else 1
    tile_w = most if conv.pixels >= most else 1
    blocks, pixel_blocks = ceil_div(conv.out_c, lanes * vectors), ceil_div(conv.pixels, tile_w)
    tiling = by_share(blocks * pixel_blocks, target, most=pixel_blocks)
    tiles, fields = in_blocks(blocks, pixel_blocks, tiling)
    pairs = ceil_div(conv.in_c, 2)
    is_aligned = not is_cpu and conv.out_c % (lanes * vectors) == 0 and conv.in_c % 2 == 0
    launch = launch_of(
        file,
        "conv_2d_tiled_quant16",
        tiles,
        target.group_items,
        conv.params()
        | {
            "weights": int16_pairs(conv, lambda: weights.astype(np.int16), lanes * vectors),
            "zeros": Constant(4 * pairs + 32, lambda: np.zeros(2 * pairs + 16, np.int16)),
            "pairs": pairs,
            "taps_a_part": max(1, TERMS_AN_INT // (2 * pairs)),
            "pairs_a_part": TERMS_AN_INT // 2,
            "pixels": conv.pixels,
            **fields,
        },
        conv.sums.defines
        | {"LANES": lanes, "VECTORS": vectors, "TILE_W": tile_w, "IS_ALIGNED": int(is_aligned)},
    )
    return Alternative(f"tiled {lanes}x{vectors}", (launch,)), plain


def _register_lanes(conv: Quant16Convolution, target: Target) -> int:
    """Return the number of channels whose 64-bit sums fit in registers during rescaling."""
    needed = _MANY if conv.sums.rounding == DOUBLE else _SOME
    return 4 if target.keeps(needed) else 2


def depthwise_conv_2d_quant16(conv: Quant16Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the alternatives of a depthwise convolution: vectors if they fit, then plain."""
    layer, extra = conv.layer, {"depth_multiplier": conv.group_out_c}
    file = "depthwise_conv_2d_quant16"
    plain = fallback(conv, file, file, conv.by_tap(), extra, conv.sums.defines)
    lanes = lanes_of(conv.out_c, target)
    if lanes == 0 or conv.group_out_c > 1 or conv.taps > TERMS_AN_INT:
        return (plain,)
    tile_w = TILE_W if conv.area.out_w >= TILE_W and target.keeps(_MANY) else 1
    channel_blocks, row_blocks = ceil_div(conv.out_c, lanes), ceil_div(conv.area.out_w, tile_w)
    items = conv.batch * conv.area.out_h * row_blocks * channel_blocks
    is_aligned = target.group_items > 1 and conv.out_c % lanes == 0
    launch = launch_over(
        file,
        "depthwise_conv_2d_vector_quant16",
        by_share(items, target),
        conv.params()
        | {
            "weights": Constant(2 * conv.weights.size, lambda: layer.by_tap().astype(np.int16)),
            "zeros": Constant(2 * lanes, lambda: np.zeros(lanes, np.int16)),
            "items": items,
            "channel_blocks": channel_blocks,
            "row_blocks": row_blocks,
        },
        conv.sums.defines | {"LANES": lanes, "TILE_W": tile_w, "IS_ALIGNED": int(is_aligned)},
    )
    return Alternative(f"vector {lanes}x{tile_w}", (launch,)), plain
