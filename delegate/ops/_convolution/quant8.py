# SPDX-License-Identifier: Apache-2.0
"""CONV_2D and DEPTHWISE_CONV_2D, 8 bit, on any device: over vectors of channels, then plain."""

from __future__ import annotations

from delegate.launch import Alternative, Constant, Defines
from delegate.ops._convolution.channel_rows import fixed_rows
from delegate.ops._convolution.packing import int16_pairs, plain, zeros_row
from delegate.ops._convolution.records import Quant8Convolution
from delegate.ops._launches.tiles import by_share, in_blocks, lanes_of, launch_of, launch_over
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import ceil_div
from delegate.target import Target

# Pixels a work-item, which share the weights they load; with 2 vectors of 16 lanes they fill 8 of
# AVX-512's 32 registers.
TILE_W = 4
# Registers with which the depthwise kernel keeps its tile: some compilers do not unroll its loops.
_VALUES = 112


def conv_2d(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the portable launches of a CONV_2D: in blocks where one fits, then plain."""
    elem = ELEM[conv.source.dtype]
    defines: Defines = {"SINGLE_ROUNDING": int(conv.single_rounding), **conv.defines, "ELEM": elem}
    of_weights: Defines = {"WEIGHT": elem}
    last = plain(conv, "conv_2d", "conv_2d_quant8", conv.weights, None, defines | of_weights)
    # Devices with groups of several work-items have blocks of their own: simt/conv_2d.py.
    block = None if target.group_items > 1 else block_of(conv.out_c, target)
    if block is None:
        return (last,)
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
            "weights": int16_pairs(conv, conv.centred, lanes * vectors),
            "channels": fixed_rows(conv.folded_bias, conv.scaling),
            "zeros": zeros_row(conv.in_c, conv.input_zero, conv.source.dtype),
            "pairs": ceil_div(conv.in_c, 2),
            "pixels": conv.pixels,
            **fields,
        },
        defines | {"LANES": lanes, "VECTORS": vectors, "TILE_W": tile_w},
    )
    return Alternative(f"tiled {lanes}x{vectors}", (launch,)), last


def block_of(channels: int, target: Target) -> tuple[int, int] | None:
    """Return (lanes, vectors) of the block that wastes least, or None where none fits."""
    width = min(target.vector_width, 16)
    sizes = [(width, 2), (width, 1), *((lanes, 1) for lanes in (8, 4) if lanes < width)]
    fitting = [(lanes, vectors) for lanes, vectors in sizes if lanes * vectors <= channels]
    # A block costs its vectors, and about half of one for what does not depend on their number.
    return min(fitting, default=None, key=lambda s: ceil_div(channels, s[0] * s[1]) * (s[1] + 0.5))


def depthwise_conv_2d(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the portable launches of a depthwise one: over vectors where they fit, then plain."""
    elem = ELEM[conv.source.dtype]
    own, types = {"depth_multiplier": conv.group_out_c}, {"ELEM": elem, "WEIGHT": elem}
    file = "depthwise_conv_2d"
    last = plain(conv, file, f"{file}_quant8", conv.by_tap(), own, types)
    lanes = lanes_of(conv.out_c, target)
    if lanes == 0 or conv.group_out_c > 1 or not target.keeps(_VALUES):
        return (last,)
    tile_w = TILE_W if conv.area.out_w >= TILE_W else 1
    channel_blocks, row_blocks = ceil_div(conv.out_c, lanes), ceil_div(conv.area.out_w, tile_w)
    items = conv.batch * conv.area.out_h * row_blocks * channel_blocks
    launch = launch_over(
        file,
        f"{file}_vector_quant8",
        by_share(items, target),
        conv.params()
        | {
            "weights": Constant(2 * conv.weights.size, conv.centred_by_tap),
            "channels": fixed_rows(conv.folded_bias, conv.scaling),
            "zeros": zeros_row(conv.out_c, conv.input_zero, conv.source.dtype),
            "items": items,
            "channel_blocks": channel_blocks,
            "row_blocks": row_blocks,
        },
        {"ELEM": elem, "LANES": lanes, "TILE_W": tile_w},
    )
    return Alternative(f"vector {lanes}x{tile_w}", (launch,)), last
