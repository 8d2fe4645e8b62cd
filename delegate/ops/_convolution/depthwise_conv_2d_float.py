# SPDX-License-Identifier: Apache-2.0
"""DEPTHWISE_CONV_2D of float32: plain, over vectors of channels, and the same for 3x3."""

from __future__ import annotations

from delegate.launch import Alternative, Launch
from delegate.ops._checks.windows import Window
from delegate.ops._convolution.float_constants import zeros
from delegate.ops._convolution.packing import as_stored
from delegate.ops._convolution.records import FloatConvolution
from delegate.ops._launches.tiles import by_work, lanes_of, launch_over, one_each, tile_w_of
from delegate.ops._numbers.integers import ceil_div
from delegate.target import Target

# That keep four pixels of 3x3, by the stride along a row: with 1 they share two of three columns.
_REGISTERS = {1: 48, 2: 96}


def alternatives(conv: FloatConvolution, target: Target) -> tuple[Alternative, ...]:
    """Return the launches: over vectors of channels where they fit, then plain."""
    plain = Alternative("plain", (_plain(conv),))
    lanes = lanes_of(conv.out_c, target)
    if lanes == 0 or conv.group_out_c > 1:
        return (plain,)
    most = 4 if target.group_items > 1 else min(target.vector_width, 16)
    cases = {"vector": most}
    if _leaves_by_one(conv.area):
        # Unrolled, all of a window's pixels and weights live at a time.
        cases = {"3x3": most if target.keeps(_REGISTERS[conv.area.stride_w]) else 2, **cases}
    widths = {case: tile_w_of(conv.area.out_w, each) for case, each in cases.items()}
    vectors = (
        Alternative(f"{case} {tile_w}x{lanes}", (_vector(conv, case, lanes, tile_w, target),))
        for case, tile_w in widths.items()
    )
    return (*vectors, plain)


def _plain(conv: FloatConvolution) -> Launch:
    return launch_over(
        "depthwise_conv_2d_float",
        "depthwise_conv_2d_float",
        one_each(conv.elements),
        conv.params()
        | {
            "weights": as_stored(conv.by_tap()),
            "depth_multiplier": conv.group_out_c,
            "elements": conv.elements,
        },
    )


def _vector(conv: FloatConvolution, case: str, lanes: int, tile_w: int, target: Target) -> Launch:
    channel_blocks, row_blocks = ceil_div(conv.out_c, lanes), ceil_div(conv.area.out_w, tile_w)
    items = conv.batch * conv.area.out_h * row_blocks * channel_blocks
    # Small layers are done sooner than many tiles of them are claimed.
    tile_items = by_work(items, tile_w * conv.taps, target, least=1).tile_items
    is_aligned = target.group_items > 1 and conv.out_c % lanes == 0
    defines: dict[str, int | str] = {
        "LANES": lanes,
        "TILE_W": tile_w,
        "IS_ALIGNED": int(is_aligned),
    }
    if case == "3x3":
        defines["HOP"] = conv.area.stride_w
    return Launch(
        "depthwise_conv_2d_float",
        f"depthwise_conv_2d_{case}_float",
        tiles=ceil_div(items, tile_items),
        group_items=target.group_items,
        params=conv.params()
        | {
            "weights": as_stored(conv.by_tap()),
            "zeros": zeros(lanes),
            "items": items,
            "tile_items": tile_items,
            "channel_blocks": channel_blocks,
            "row_blocks": row_blocks,
        },
        reads=conv.reads,
        writes=conv.writes,
        defines=defines,
    )


def _leaves_by_one(area: Window) -> bool:
    """Whether windows are 3x3, not far apart, and at most one pixel beyond either end of a row."""
    last = (area.out_w - 1) * area.stride_w - area.pad_left + 2
    return (
        (area.kernel_h, area.kernel_w, area.dilation_w) == (3, 3, 1)
        and area.stride_w <= 2
        and area.pad_left <= 1
        and last <= area.in_w
    )
