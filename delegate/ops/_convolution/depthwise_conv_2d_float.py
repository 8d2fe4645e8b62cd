# SPDX-License-Identifier: Apache-2.0
"""DEPTHWISE_CONV_2D of float32: plain, over vectors of channels, and two of the same for 3x3."""

from __future__ import annotations

from delegate.launch import Alternative, Launch
from delegate.ops._checks.windows import Window
from delegate.ops._convolution.packing import as_stored, fallback, zeros
from delegate.ops._convolution.records import FloatConvolution
from delegate.ops._launches.tiles import by_work, lanes_of, launch_of, tile_w_of
from delegate.ops._numbers import ceil_div
from delegate.target import Target

# That keep four pixels of 3x3, by the stride along a row: with 1 they share two of three columns.
_REGISTERS = {1: 48, 2: 96}
# On CPUs, columns of pixels that go down together; the first that waste least. Their sums of three
# rows and nine weights fill the 32 registers of AVX-512; others have 16.
_COLUMNS = {16: (4, 7, 5, 6, 3)}
_FEW_COLUMNS = (4, 3)
# Of 8 lanes two leave the nine weights in the 16 registers, which more do not. But they touch each
# line of the nearest cache more often, which loses lines where all rows fall on the same set.
_TWO_COLUMNS_LANES, _SET_BYTES = 8, 4096
# Rows that they go down: fewer load too many inputs twice, and more leave the first cache.
_BAND_ROWS = 7
_CORE_TILES = 4  # channels are parted where a core would have fewer tiles


def alternatives(conv: FloatConvolution, target: Target) -> tuple[Alternative, ...]:
    """Return the launches: over vectors of channels where they fit, then plain."""
    own, file = {"depth_multiplier": conv.group_out_c}, "depthwise_conv_2d_float"
    last = fallback(conv, file, file, conv.by_tap(), own)
    lanes = lanes_of(conv.out_c, target)
    if lanes == 0 or conv.group_out_c > 1:
        return (last,)
    out_w, is_cpu = conv.area.out_w, target.group_items == 1
    most = min(target.vector_width, 16) if is_cpu else 4
    cases = [("vector", tile_w_of(out_w, most))]
    if is_cpu and _goes_down(conv.area):
        cases = [("columns", size) for size in _columns_of(out_w, 4 * out_w * conv.out_c, target)]
    elif _leaves_by_one(conv.area):
        # Unrolled, all of a window's pixels and weights live at a time.
        most = most if target.keeps(_REGISTERS[conv.area.stride_w]) else 2
        # On CPUs "vector" is never faster: to measure both would choose it by mistake only.
        cases = [("3x3", tile_w_of(out_w, most)), *([] if is_cpu else cases)]
    vectors = (
        Alternative(f"{case} {tile_w}x{lanes}", (_vector(conv, case, lanes, tile_w, target),))
        for case, tile_w in cases
    )
    return (*vectors, last)


def _vector(conv: FloatConvolution, case: str, lanes: int, tile_w: int, target: Target) -> Launch:
    channel_blocks, row_blocks = ceil_div(conv.out_c, lanes), ceil_div(conv.area.out_w, tile_w)
    is_aligned = target.group_items > 1 and conv.out_c % lanes == 0
    defines: dict[str, int | str] = {
        "LANES": lanes,
        "TILE_W": tile_w,
        "IS_ALIGNED": int(is_aligned),
    }
    if case == "3x3":
        defines["HOP"] = conv.area.stride_w
    if case == "columns":
        # Those that fill the registers were no faster by it.
        defines["ASKS_AHEAD"] = int(tile_w == 2 and lanes == _TWO_COLUMNS_LANES)
        tiles, fields = _in_bands(conv, channel_blocks, target)
    else:
        items = conv.batch * conv.area.out_h * row_blocks * channel_blocks
        # Small layers are done sooner than many tiles of them are claimed.
        tiling = by_work(items, tile_w * conv.taps, target, least=1)
        tiles, fields = tiling.tiles, {"items": items, "tile_items": tiling.tile_items}
    return launch_of(
        "depthwise_conv_2d_float",
        f"depthwise_conv_2d_{case}_float",
        tiles,
        target.group_items,
        conv.params()
        | {
            "weights": as_stored(conv.by_tap()),
            "zeros": zeros(lanes),
            **fields,
            "channel_blocks": channel_blocks,
            "row_blocks": row_blocks,
        },
        defines,
    )


def _in_bands(
    conv: FloatConvolution, channel_blocks: int, target: Target
) -> tuple[int, dict[str, int]]:
    """Return the tiles of blocks that go down, and the fields that their kernel reads.

    A tile is a band of rows, of all channels unless there would be too few tiles.
    """
    wanted = by_work(conv.pixels * channel_blocks, conv.taps, target, least=1).tiles
    out_h = conv.area.out_h
    band_rows = ceil_div(out_h, max(1, min(out_h // _BAND_ROWS, wanted)))
    bands = ceil_div(out_h, band_rows)
    wanted = min(wanted, _CORE_TILES * target.compute_units)
    part_blocks = ceil_div(channel_blocks, ceil_div(wanted, conv.batch * bands))
    parts = ceil_div(channel_blocks, part_blocks)
    fields = {"bands": bands, "band_rows": band_rows, "parts": parts, "part_blocks": part_blocks}
    return conv.batch * bands * parts, fields


def _columns_of(pixels: int, row_bytes: int, target: Target) -> list[int]:
    """Return how many columns may go down together, of a row of so many pixels, best first."""
    sizes = _COLUMNS.get(target.vector_width, _FEW_COLUMNS)
    fitting = [size for size in sizes if size <= pixels] or [pixels]
    least = min(fitting, key=lambda size: ceil_div(pixels, size) * size)
    is_spread = target.vector_width == _TWO_COLUMNS_LANES and row_bytes % _SET_BYTES
    return [2, least] if is_spread and least > 2 else [least]


def _goes_down(area: Window) -> bool:
    """Whether the window is of the kind of `_leaves_by_one`, and goes by one pixel each way."""
    return _leaves_by_one(area) and (area.stride_h, area.stride_w, area.dilation_h) == (1, 1, 1)


def _leaves_by_one(area: Window) -> bool:
    """Whether windows are 3x3, not far apart, and at most one pixel beyond either end of a row."""
    last = (area.out_w - 1) * area.stride_w - area.pad_left + 2
    return (
        (area.kernel_h, area.kernel_w, area.dilation_w) == (3, 3, 1)
        and area.stride_w <= 2
        and area.pad_left <= 1
        and last <= area.in_w
    )
