# SPDX-License-Identifier: Apache-2.0
"""DEPTHWISE_CONV_2D, 8 bit, by NVIDIA's dot products of bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from delegate.launch import Alternative, Constant, Launch
from delegate.ops._convolution.nvidia.conv_2d import GROUP_ITEMS, rounding
from delegate.ops._convolution.packing import alike_by_eight_rows, four_zeros
from delegate.ops._convolution.records import Quant8Convolution
from delegate.ops._launches.tiles import launch_of
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import ceil_div
from delegate.target import Target

_MOST_TAPS = 49  # a window's code is unrolled
_WIDTHS = (4, 2, 1)  # pixels of a row a work-item
_TALL = 14  # maximum rows of a work-item, for batches
_REGISTERS = 130  # of a work-item: a unit runs two groups of 256, and few values are spilled


def alternatives(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the launches for a depth multiplier of 1; none if they do not fit.

    The first fills the device with one picture, the second loads least for batches.
    """
    area = conv.area
    if (
        "dp4a" not in target.isa
        or conv.group_out_c > 1
        or conv.out_c % 4
        or area.dilation_w != 1
        or conv.taps > _MOST_TAPS
    ):
        return ()
    widths = [width for width in _WIDTHS if width <= area.out_w]

    def fills(width: int) -> bool:
        return 3 * ceil_div(_items(conv, width, 1), GROUP_ITEMS) >= 2 * target.compute_units

    filling = next(filter(fills, widths), widths[-1])
    # Blocks are equally tall, as far as possible: the last one overlaps the one before it.
    tall = ceil_div(area.out_h, ceil_div(area.out_h, _TALL)) if area.dilation_h == 1 else 1
    wide = next((w for w in widths if _registers(conv, w) <= _REGISTERS), widths[-1])
    return tuple(
        Alternative(f"dp4a {width}x{height}", (_launch(conv, width, height, target),))
        for width, height in dict.fromkeys(((filling, 1), (wide, tall)))
    )


def _registers(conv: Quant8Convolution, tile_w: int) -> int:
    area = conv.area
    columns = (tile_w - 1) * area.stride_w + area.kernel_w
    rows = area.kernel_h + min(area.stride_h, area.kernel_h)
    weights = 4 * ceil_div(area.kernel_h, 2) * area.kernel_w
    return rows * columns + weights + 4 * tile_w + 40


def _items(conv: Quant8Convolution, tile_w: int, tile_h: int) -> int:
    area = conv.area
    blocks = ceil_div(area.out_w, tile_w) * ceil_div(area.out_h, tile_h)
    return conv.batch * blocks * (conv.out_c // 4)


def _launch(conv: Quant8Convolution, tile_w: int, tile_h: int, target: Target) -> Launch:
    area, channels, items = conv.area, conv.out_c, _items(conv, tile_w, tile_h)
    # The few items of one picture are spread over more units; batches fill them anyway.
    tile_items = GROUP_ITEMS
    while (
        tile_h == 1 and tile_items > 64 and 2 * ceil_div(items, tile_items) <= target.compute_units
    ):
        tile_items //= 2
    return launch_of(
        "depthwise_conv_2d_dp4a",
        "depthwise_conv_2d_dp4a_quant8",
        ceil_div(items, tile_items),
        GROUP_ITEMS,
        conv.params()
        | {
            "weights": _row_pairs(conv),
            "channels": alike_by_eight_rows(conv, channels),
            "input_zeros": four_zeros(conv.input_zero, conv.source.dtype),
            "items": items,
            "tile_items": tile_items,
            "tile_h": tile_h,
            "channel_blocks": channels // 4,
            "row_blocks": ceil_div(area.out_w, tile_w),
            "column_blocks": ceil_div(area.out_h, tile_h),
        },
        {
            "ELEM": ELEM[conv.source.dtype],
            "IS_SIGNED": int(conv.source.dtype == "int8"),
            "TAPS_H": area.kernel_h,
            "TAPS_W": area.kernel_w,
            "STEP_H": area.stride_h,
            "STEP_W": area.stride_w,
            "TILE_W": tile_w,
            "SINGLE_ROUNDING": 0,
            # The instruction that saturates is newer than dp4a, and older than mma.
            **rounding(conv, "mma" in target.isa),
        },
    )


def _row_pairs(conv: Quant8Convolution) -> Constant:
    """Return a window's rows in pairs, side by side; an odd last one beside zeros."""
    layer, area, channels = conv.layer, conv.layer.area, conv.out_c
    slots = ceil_div(area.kernel_h, 2)

    def pack() -> NDArray[np.int16]:
        rows = np.zeros((2 * slots, area.kernel_w, channels), np.int16)
        rows[: area.kernel_h] = layer.centred_by_tap().reshape(
            area.kernel_h, area.kernel_w, channels
        )
        # slot, row of the pair, column, channel -> slot, column, channel, row of the pair
        pairs = rows.reshape(slots, 2, area.kernel_w, channels)
        return np.ascontiguousarray(pairs.transpose(0, 2, 3, 1))

    return Constant(4 * slots * area.kernel_w * channels, pack)
