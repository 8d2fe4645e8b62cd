# SPDX-License-Identifier: Apache-2.0
"""DEPTHWISE_CONV_2D, 8 bit, on any device: over vectors of channels, and the plain kernel."""

from __future__ import annotations

from delegate.launch import Alternative, Constant, Launch
from delegate.ops._convolution.channel_rows import fixed_rows
from delegate.ops._convolution.packing import as_stored, zeros_row
from delegate.ops._convolution.records import Quant8Convolution
from delegate.ops._launches.tiles import by_share, lanes_of, launch_over, one_each
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers.integers import ceil_div
from delegate.target import Target

TILE_W = 4  # neighbouring output pixels a work-item, which share the weights they load

# Registers with which the vector kernel keeps its tile: some compilers do not unroll its loops.
_VALUES = 112


def alternatives(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the portable launches: over vectors of channels where they fit, then plain."""
    plain = Alternative("plain", (_plain(conv),))
    lanes = lanes_of(conv.out_c, target)
    if lanes == 0 or conv.group_out_c > 1 or not target.keeps(_VALUES):
        return (plain,)
    tile_w = TILE_W if conv.area.out_w >= TILE_W else 1
    vector = _vector(conv, lanes, tile_w, target)
    return Alternative(f"vector {lanes}x{tile_w}", (vector,)), plain


def _plain(conv: Quant8Convolution) -> Launch:
    elem = ELEM[conv.source.dtype]
    return launch_over(
        "depthwise_conv_2d",
        "depthwise_conv_2d_quant8",
        one_each(conv.elements),
        conv.params()
        | {
            "weights": as_stored(conv.by_tap()),
            "channels": fixed_rows(lambda: conv.bias, conv.scaling),
            "depth_multiplier": conv.group_out_c,
            "input_zero": conv.input_zero,
            "weight_zero": conv.weight_zero,
            "elements": conv.elements,
        },
        {"ELEM": elem, "WEIGHT": elem},
    )


def _vector(conv: Quant8Convolution, lanes: int, tile_w: int, target: Target) -> Launch:
    channel_blocks, row_blocks = ceil_div(conv.out_c, lanes), ceil_div(conv.area.out_w, tile_w)
    items = conv.batch * conv.area.out_h * row_blocks * channel_blocks
    tile_items = by_share(items, target).tile_items
    return Launch(
        "depthwise_conv_2d",
        "depthwise_conv_2d_vector_quant8",
        tiles=ceil_div(items, tile_items),
        group_items=target.group_items,
        params=conv.params()
        | {
            "weights": Constant(2 * conv.weights.size, conv.centred_by_tap),
            "channels": fixed_rows(conv.folded_bias, conv.scaling),
            "zeros": zeros_row(conv.out_c, conv.input_zero, conv.source.dtype),
            "items": items,
            "tile_items": tile_items,
            "channel_blocks": channel_blocks,
            "row_blocks": row_blocks,
        },
        reads=conv.reads,
        writes=conv.writes,
        defines={"ELEM": ELEM[conv.source.dtype], "LANES": lanes, "TILE_W": tile_w},
    )
