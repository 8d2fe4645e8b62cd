# SPDX-License-Identifier: Apache-2.0
"""DEPTHWISE_CONV_2D of int16 with int8 weights: plain, and over vectors of channels."""

from __future__ import annotations

import numpy as np

from delegate.launch import Alternative, Constant, Launch
from delegate.ops._convolution.packing import as_stored
from delegate.ops._convolution.records import Quant16Convolution
from delegate.ops._launches.tiles import by_share, lanes_of, launch_over, one_each
from delegate.ops._launches.wide_sums import TERMS_AN_INT
from delegate.ops._numbers.integers import ceil_div
from delegate.target import Target

TILE_W = 4  # neighbouring output pixels a work-item, which share the weights they load
_MANY = 112  # registers that keep the sums of all of them


def alternatives(conv: Quant16Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the launches: over vectors of channels where they fit, then plain."""
    plain = Alternative("plain", (_plain(conv),))
    lanes = lanes_of(conv.out_c, target)
    if lanes == 0 or conv.group_out_c > 1 or conv.taps > TERMS_AN_INT:
        return (plain,)
    tile_w = TILE_W if conv.area.out_w >= TILE_W and target.keeps(_MANY) else 1
    vector = _vector(conv, lanes, tile_w, target)
    return Alternative(f"vector {lanes}x{tile_w}", (vector,)), plain


def _plain(conv: Quant16Convolution) -> Launch:
    return launch_over(
        "depthwise_conv_2d_quant16",
        "depthwise_conv_2d_quant16",
        one_each(conv.elements),
        conv.params()
        | {
            "weights": as_stored(conv.by_tap()),
            "depth_multiplier": conv.group_out_c,
            "elements": conv.elements,
        },
        conv.sums.defines,
    )


def _vector(conv: Quant16Convolution, lanes: int, tile_w: int, target: Target) -> Launch:
    channel_blocks, row_blocks = ceil_div(conv.out_c, lanes), ceil_div(conv.area.out_w, tile_w)
    items = conv.batch * conv.area.out_h * row_blocks * channel_blocks
    tile_items = by_share(items, target).tile_items
    is_aligned = target.group_items > 1 and conv.out_c % lanes == 0
    return Launch(
        "depthwise_conv_2d_quant16",
        "depthwise_conv_2d_vector_quant16",
        tiles=ceil_div(items, tile_items),
        group_items=target.group_items,
        params=conv.params()
        | {
            "weights": Constant(2 * conv.weights.size, lambda: conv.by_tap().astype(np.int16)),
            "zeros": Constant(2 * lanes, lambda: np.zeros(lanes, np.int16)),
            "items": items,
            "tile_items": tile_items,
            "channel_blocks": channel_blocks,
            "row_blocks": row_blocks,
        },
        reads=conv.reads,
        writes=conv.writes,
        defines=conv.sums.defines
        | {"LANES": lanes, "TILE_W": tile_w, "IS_ALIGNED": int(is_aligned)},
    )
