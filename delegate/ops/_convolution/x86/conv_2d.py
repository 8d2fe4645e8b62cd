# SPDX-License-Identifier: Apache-2.0
"""CONV_2D, 8 bit, by x86 instructions that were proven on the device.

The kernels are conv_2d_vnni.cl, conv_2d_avx2.cl and conv_2d_amx.cl, which share conv_2d_x86.clh.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from delegate.launch import Alternative, Constant, Launch, Params
from delegate.ops._convolution.packing import FIXED, exception_rows, exception_rows_a_block
from delegate.ops._convolution.panels import (
    PANEL_BYTES,
    GemmConfig,
    Layout,
    blocked,
    fits_panel,
    groups_of,
    of_kinds,
    windows_of,
)
from delegate.ops._convolution.records import Quant8Convolution
from delegate.ops._convolution.x86.conv_2d_weights import (
    avx2_pairs_weights,
    avx2_weights,
    vnni_weights,
)
from delegate.ops._convolution.x86.tiles import tiles_of
from delegate.ops._launches.tiles import launch_of
from delegate.ops._numbers import ceil_div
from delegate.target import Target

_SUM_WORK = 200  # instructions that sum up a block's windows


# A block's sums, weights and inputs fit the registers. VNNI's 32 leave room for the compiler to
# move, as 14 x 2 is slower. One vector is for channels that would leave half of a block empty.
VNNI = GemmConfig(frozenset({"vnni"}), "vnni", 16, 4, ((7, 2), (14, 1)), ((1, 4),))
AVX2_PAIRS = GemmConfig(frozenset({"avx2"}), "avx2", 8, 4, ((6, 2),), ((1, 4),), " pairs")
AVX2 = GemmConfig(frozenset({"avx2"}), "avx2", 8, 2, ((6, 2),), ((1, 4),))
KINDS = (VNNI, AVX2_PAIRS, AVX2)


def alternatives(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the launches this target was proven to run, the fastest expected first."""
    if target.group_items > 1:
        return ()
    return (*_of_tiles(conv, target), *of_kinds(conv, target, KINDS, _launch))


def _launch(
    conv: Quant8Convolution, target: Target, kind: GemmConfig, tile_w: int, vectors: int
) -> Launch | None:
    is_signed = conv.source.dtype == "int8"
    is_dense = conv.area.dilation_w == 1
    rows = conv.area.kernel_h if is_dense else 1
    row_values = conv.taps // rows * conv.in_c
    layout = Layout(kind.lanes, vectors, kind.values, rows, ceil_div(row_values, kind.values))
    uses_panel = not conv.is_matrix or kind is AVX2 or (kind is AVX2_PAIRS and is_signed)
    if uses_panel and not fits_panel(layout, tile_w):
        return None
    flips = is_signed and _is_short(conv, target, tile_w, layout)
    corrects = kind is VNNI and is_signed and not flips
    if kind is VNNI:
        packed = vnni_weights(conv, layout, takes_int8=corrects)
    else:
        packed = (avx2_weights if kind is AVX2 else avx2_pairs_weights)(conv, layout)
    if packed is None:
        return None
    own = {"FLIPS": int(flips)} if kind is VNNI else {"WEIGHT_BITS": 32 // kind.values}
    defines = {"TILE_W": tile_w, **own}
    # All but products of 16 bits and corrected ones take inputs as uint8.
    least = 0 if kind is AVX2 or corrects else int(np.iinfo(conv.source.dtype).min)
    if kind is not VNNI:
        row = _panel_row(conv, target, tile_w, layout) if uses_panel else 0
        # Rows of 16 bits are less the zero point.
        least = conv.input_zero if row and kind is AVX2 else least
        packed |= {"panel_row": row, "panel_zero": conv.input_zero}
    return _block_launch(conv, target, kind.name, tile_w, layout, packed, least, defines)


def _panel_row(conv: Quant8Convolution, target: Target, tile_w: int, layout: Layout) -> int:
    """Return the bytes of a picture's row in the panel; 0: windows are put there one by one.

    The rows that a tile's windows meet have to fit, and to be less than the windows are.
    """
    area = conv.area
    if conv.is_matrix or conv.batch > 1 or area.dilation_w > 1 or area.pad_left < 0:
        return 0
    if layout.values == 4 and conv.source.dtype == "uint8":
        return 0  # most windows are read where they are
    width = max(area.pad_left + area.in_w, (area.out_w - 1) * area.stride_w + area.kernel_w)
    groups = groups_of(conv, tile_w, layout.channels, target)
    blocks, count = groups["pixel_blocks"], groups["pixel_groups"]
    rows = 0
    for group in range(count):
        first = min(group * blocks // count * tile_w, conv.pixels - tile_w)
        last = min((group + 1) * blocks // count * tile_w, conv.pixels) - 1
        lines = last // area.out_w - first // area.out_w
        rows = max(rows, lines * area.stride_h + (area.kernel_h - 1) * area.dilation_h + 1)
    row_bytes = width * conv.in_c * (4 // layout.values)
    windows = 4 * layout.steps * tile_w * ceil_div(blocks, count)
    return row_bytes if rows * row_bytes < min(windows, PANEL_BYTES - 64) else 0


def _is_short(conv: Quant8Convolution, target: Target, tile_w: int, layout: Layout) -> bool:
    """Whether it takes longer to sum up a block's windows than to make their bytes uint8."""
    groups = groups_of(conv, tile_w, layout.channels, target)
    channel_blocks = groups["channel_blocks"] // groups["channel_groups"]
    return tile_w * layout.steps * channel_blocks < _SUM_WORK


def _block_launch(
    conv: Quant8Convolution,
    target: Target,
    isa: str,
    tile_w: int,
    layout: Layout,
    packed: Params,
    least: int,
    defines: Mapping[str, int | str],
) -> Launch:
    """Return a launch of conv_2d_x86.clh; `least`: smallest input, after its shift by 128.

    `tile_w`: pixels of a block; `packed`: weights, and the fields of these instructions alone.
    """
    is_signed = conv.source.dtype == "int8"
    tiles, fields = windows_of(conv, target, tile_w, layout)
    # Where negative results are clamped away, the others are centred about int8's 0.
    is_centred = conv.clamp[0] >= conv.output_zero
    centre = conv.output_zero - (0 if is_signed else 128) if is_centred else None
    return launch_of(
        f"conv_2d_{isa}",
        f"conv_2d_{isa}_quant8",
        tiles,
        1,
        conv.params()
        | packed
        | fields
        | {
            "channels": _channels(conv, layout, least, centre),
            "is_centred": int(is_centred),
            "centre": centre or 0,
            "rounds_once": int(conv.single_rounding),
        },
        {
            "IS_SIGNED": int(is_signed),
            **defines,
            "VECTORS": layout.vectors,
            **conv.defines,
            "PANEL_BYTES": PANEL_BYTES,
            "ROWS_A_BLOCK": exception_rows_a_block(layout.vectors),
            "FIXED": FIXED,
        },
    )


def _channels(conv: Quant8Convolution, layout: Layout, least: int, centre: int | None) -> Constant:
    layer, blocks = conv.layer, ceil_div(conv.out_c, layout.channels)
    return Constant(
        4 * blocks * exception_rows_a_block(layout.vectors) * layout.lanes,
        lambda: exception_rows(
            layer, least, centre, lambda values: blocked(values, layout.lanes, layout.vectors)
        ),
    )


def _of_tiles(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return AMX's launch; none where it is not proven or not expected to be the fastest."""
    tiles = tiles_of(conv, target)
    packed = vnni_weights(conv, tiles.layout, is_tiled=True) if tiles else None
    if tiles is None or packed is None:
        return ()
    own = packed | tiles.fields
    launch = _block_launch(conv, target, "amx", tiles.tile_w, tiles.layout, own, 0, {})
    return (Alternative(tiles.name, (launch,)),)
