# SPDX-License-Identifier: Apache-2.0
"""DEPTHWISE_CONV_2D in float32: vectors of channels, two such kernels for 3x3, and plain."""

from __future__ import annotations

from delegate.launch import Alternative, Launch
from delegate.ops._checks.windows import Window
from delegate.ops._convolution.packing import as_stored, fallback, zeros
from delegate.ops._convolution.records import FloatConvolution
from delegate.ops._launches.tiles import by_work, lanes_of, launch_of, tile_w_of
from delegate.ops._numbers import ceil_div
from delegate.target import Target

# For four pixels of 3x3, by stride along a row: with a stride of 1 they share two of three columns.
_REGISTERS = {1: 48, 2: 96}
# Adjacent columns of pixels that a CPU processes together, moving down, in order of preference. The
# sums of three rows and nine weights fill AVX-512's 32 registers; other CPUs have 16.
_COLUMNS = {16: (4, 7, 5, 6, 3)}
_FEW_COLUMNS = (4, 3)
# With 8 lanes, two columns leave 9 of 16 registers for the weights. But they touch each L1 line
# more often, which evicts lines if all rows map to the same set.
_TWO_COLUMNS_LANES, _SET_BYTES = 8, 4096
# Rows per band: fewer load too many inputs twice, more exceed the L1 cache.
_BAND_ROWS = 7
_CORE_TILES = 4  # channels are split if a core would get fewer tiles


def alternatives(conv: FloatConvolution, target: Target) -> tuple[Alternative, ...]:
    """Return the alternatives: vectors of channels if they fit, then plain."""
    extra, file = {"depth_multiplier": conv.group_out_c}, "depthwise_conv_2d_float"
    plain = fallback(conv, file, file, conv.by_tap(), extra)
    lanes = lanes_of(conv.out_c, target)
    if lanes == 0 or conv.group_out_c > 1:
        return (plain,)
    out_w, is_cpu = conv.area.out_w, target.group_items == 1
    most = min(target.vector_width, 16) if is_cpu else 4
    cases = [("vector", tile_w_of(out_w, most))]
    if is_cpu and _is_dense_3x3(conv.area):
        cases = [("columns", size) for size in _columns_of(out_w, 4 * out_w * conv.out_c, target)]
    elif _is_3x3(conv.area):
        # Unrolled loops keep all of a window's pixels and weights live at once.
        most = most if target.keeps(_REGISTERS[conv.area.stride_w]) else 2
        # On CPUs "vector" is never faster: measuring both could only choose it by mistake.
        cases = [("3x3", tile_w_of(out_w, most)), *([] if is_cpu else cases)]
    vectors = (
        Alternative(f"{case} {tile_w}x{lanes}", (_vector(conv, case, lanes, tile_w, target),))
        for case, tile_w in cases
    )
    return (*vectors, plain)


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
        # Prefetching did not help tiles that fill the registers.
        defines["ASKS_AHEAD"] = int(tile_w == 2 and lanes == _TWO_COLUMNS_LANES)
        tiles, fields = _in_bands(conv, channel_blocks, target)
    else:
        items = conv.batch * conv.area.out_h * row_blocks * channel_blocks
        # Small layers finish before many tiles could be claimed.
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
    """Return the number of tiles of the columns kernel, and its fields.

    A tile is a band of rows with all channels, or a part of them if there would be too few tiles.
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
    """Return the numbers of columns to process together, for rows of `pixels`, best first."""
    sizes = _COLUMNS.get(target.vector_width, _FEW_COLUMNS)
    fitting = [size for size in sizes if size <= pixels] or [pixels]
    least = min(fitting, key=lambda size: ceil_div(pixels, size) * size)
    spreads_over_sets = target.vector_width == _TWO_COLUMNS_LANES and row_bytes % _SET_BYTES
    return [2, least] if spreads_over_sets and least > 2 else [least]


def _is_dense_3x3(area: Window) -> bool:
    """Whether windows satisfy `_is_3x3`, with strides and dilations of 1."""
    return _is_3x3(area) and (area.stride_h, area.stride_w, area.dilation_h) == (1, 1, 1)


def _is_3x3(area: Window) -> bool:
    """Whether windows are 3x3, with strides up to 2 and at most one padding pixel per row end."""
    last = (area.out_w - 1) * area.stride_w - area.pad_left + 2
    return (
        (area.kernel_h, area.kernel_w, area.dilation_w) == (3, 3, 1)
        and area.stride_w <= 2
        and area.pad_left <= 1
        and last <= area.in_w
    )
