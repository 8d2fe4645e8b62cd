# SPDX-License-Identifier: Apache-2.0
"""CONV_2D and DEPTHWISE_CONV_2D of int16 with int8 weights: over vectors of channels, and plain."""

from __future__ import annotations

import numpy as np

from delegate.launch import Alternative, Constant
from delegate.ops._convolution.packing import int16_pairs, plain
from delegate.ops._convolution.quant8 import block_of
from delegate.ops._convolution.records import Quant16Convolution
from delegate.ops._launches.tiles import by_share, in_blocks, lanes_of, launch_of, launch_over
from delegate.ops._launches.wide_sums import TERMS_AN_INT
from delegate.ops._numbers import ceil_div
from delegate.target import Target

TILE_W = 4  # pixels a work-item, which share the weights they load
# Registers that keep all pixels of four channels; those of one pixel, but for doubles' products.
_MANY, _SOME = 112, 40


def conv_2d(conv: Quant16Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the launches of a CONV_2D: in blocks where one fits, then plain, for groups too."""
    groups = {"group_in_c": conv.group_in_c, "group_out_c": conv.group_out_c}
    file = "conv_2d_quant16"
    last = plain(conv, file, file, conv.weights, groups, conv.sums.defines)
    is_cpu = target.group_items == 1
    if is_cpu:
        block = block_of(conv.out_c, target)
    else:
        lanes = _lanes_kept(conv, target)
        block = (lanes, 1) if conv.out_c >= lanes else None
    if block is None or conv.groups > 1:
        return (last,)
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
            "weights": int16_pairs(conv, lambda: conv.weights.astype(np.int16), lanes * vectors),
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
    return Alternative(f"tiled {lanes}x{vectors}", (launch,)), last


def _lanes_kept(conv: Quant16Convolution, target: Target) -> int:
    """Return how many channels' sums, of 64 bits, registers keep while they are scaled."""
    needed = _MANY if conv.sums.defines["ROUNDING"] == "ROUNDING_DOUBLE" else _SOME
    return 4 if target.keeps(needed) else 2


def depthwise_conv_2d(conv: Quant16Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the launches of a depthwise one: over vectors where they fit, then plain."""
    own = {"depth_multiplier": conv.group_out_c}
    file = "depthwise_conv_2d_quant16"
    last = plain(conv, file, file, conv.by_tap(), own, conv.sums.defines)
    lanes = lanes_of(conv.out_c, target)
    if lanes == 0 or conv.group_out_c > 1 or conv.taps > TERMS_AN_INT:
        return (last,)
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
            "weights": Constant(2 * conv.weights.size, lambda: conv.by_tap().astype(np.int16)),
            "zeros": Constant(2 * lanes, lambda: np.zeros(lanes, np.int16)),
            "items": items,
            "channel_blocks": channel_blocks,
            "row_blocks": row_blocks,
        },
        conv.sums.defines | {"LANES": lanes, "TILE_W": tile_w, "IS_ALIGNED": int(is_aligned)},
    )
    return Alternative(f"vector {lanes}x{tile_w}", (launch,)), last
