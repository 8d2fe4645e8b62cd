# SPDX-License-Identifier: Apache-2.0
"""CONV_2D of int16 with int8 weights: plain, for groups too, and in blocks of channels."""

from __future__ import annotations

import numpy as np

from delegate.launch import Alternative, Constant, Launch
from delegate.ops._convolution.conv_2d_quant8 import block_of
from delegate.ops._convolution.packing import as_stored, int16_pairs
from delegate.ops._convolution.records import Quant16Convolution
from delegate.ops._launches.tiles import by_share, in_blocks, launch_over, one_each
from delegate.ops._launches.wide_sums import TERMS_AN_INT
from delegate.ops._numbers.integers import ceil_div
from delegate.target import Target

TILE_W = 4  # pixels a work-item
# Registers that keep all pixels of four channels; those of one pixel, but for doubles' products.
_MANY, _SOME = 112, 40


def alternatives(conv: Quant16Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the launches of a convolution: in blocks where one fits, then plain."""
    plain = Alternative("plain", (_plain(conv),))
    if target.group_items == 1:
        block = block_of(conv.out_c, target)
    else:
        lanes = _lanes_kept(conv, target)
        block = (lanes, 1) if conv.out_c >= lanes else None
    if block is None or conv.groups > 1:
        return (plain,)
    lanes, vectors = block
    return Alternative(f"tiled {lanes}x{vectors}", (_tiled(conv, *block, target),)), plain


def _lanes_kept(conv: Quant16Convolution, target: Target) -> int:
    """Return how many channels' sums, of 64 bits, registers keep while they are scaled."""
    needed = _MANY if conv.sums.defines["ROUNDING"] == "ROUNDING_DOUBLE" else _SOME
    return 4 if target.keeps(needed) else 2


def _plain(conv: Quant16Convolution) -> Launch:
    return launch_over(
        "conv_2d_quant16",
        "conv_2d_quant16",
        one_each(conv.elements),
        conv.params()
        | {
            "weights": as_stored(conv.weights),
            "group_in_c": conv.group_in_c,
            "group_out_c": conv.group_out_c,
            "elements": conv.elements,
        },
        conv.sums.defines,
    )


def _tiled(conv: Quant16Convolution, lanes: int, vectors: int, target: Target) -> Launch:
    block = lanes * vectors
    most = 1 if target.group_items > 1 and not target.keeps(_MANY) else TILE_W
    tile_w = most if conv.pixels >= most else 1
    blocks, pixel_blocks = ceil_div(conv.out_c, block), ceil_div(conv.pixels, tile_w)
    tiling = by_share(blocks * pixel_blocks, target, most=pixel_blocks)
    tiles, fields = in_blocks(blocks, pixel_blocks, tiling)
    pairs = ceil_div(conv.in_c, 2)
    is_aligned = target.group_items > 1 and conv.out_c % block == 0 and conv.in_c % 2 == 0
    return Launch(
        "conv_2d_quant16",
        "conv_2d_tiled_quant16",
        tiles=tiles,
        group_items=target.group_items,
        params=conv.params()
        | {
            "weights": int16_pairs(conv, lambda: conv.weights.astype(np.int16), block),
            "zeros": Constant(4 * pairs + 32, lambda: np.zeros(2 * pairs + 16, np.int16)),
            "pairs": pairs,
            "taps_a_part": max(1, TERMS_AN_INT // (2 * pairs)),
            "pairs_a_part": TERMS_AN_INT // 2,
            "pixels": conv.pixels,
            **fields,
        },
        reads=conv.reads,
        writes=conv.writes,
        defines=conv.sums.defines
        | {
            "LANES": lanes,
            "VECTORS": vectors,
            "TILE_W": tile_w,
            "IS_ALIGNED": int(is_aligned),
        },
    )
