# SPDX-License-Identifier: Apache-2.0
"""CONV_2D, 8 bit, by x86 instructions that were proven on the device.

The kernels are conv_2d_vnni.cl, conv_2d_avx2.cl and conv_2d_amx.cl, which share conv_2d_x86.clh.
AMX has tile registers; its requantisation is VNNI's, so it needs that, too.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from delegate.launch import Alternative, Constant, Launch, Params
from delegate.ops._convolution.packing import FIXED, exception_rows, exception_rows_a_block
from delegate.ops._convolution.panels import (
    PANEL_BYTES,
    Kind,
    Layout,
    blocked,
    fits_panel,
    groups_of,
    of_kinds,
    panel_pitch,
    windows_of,
)
from delegate.ops._convolution.records import Quant8Convolution
from delegate.ops._convolution.x86.conv_2d_weights import (
    avx2_pairs_weights,
    avx2_weights,
    vnni_weights,
)
from delegate.ops._launches.tiles import launch_of
from delegate.ops._numbers import ceil_div
from delegate.target import Target

_ROWS, _ROW_BYTES = 16, 64  # of a tile register, at most
_REGISTERS, _VECTORS = 2, 2  # of a block: registers with pixels, vectors of 16 channels
_SUM_WORK = 200  # instructions that sum up a block's windows


# A block's sums, weights and inputs fit the registers. VNNI's 32 leave room for the compiler to
# move, as 14 x 2 is slower. One vector is for channels that would leave half of a block empty.
VNNI = Kind(frozenset({"vnni"}), "vnni", 16, 4, ((7, 2), (14, 1)), ((1, 4),))
AVX2_PAIRS = Kind(frozenset({"avx2"}), "avx2", 8, 4, ((6, 2),), ((1, 4),), " pairs")
AVX2 = Kind(frozenset({"avx2"}), "avx2", 8, 2, ((6, 2),), ((1, 4),))
KINDS = (VNNI, AVX2_PAIRS, AVX2)


def alternatives(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the launches this target was proven to run, the fastest expected first."""
    if target.group_items > 1:
        return ()
    return (*_of_tiles(conv, target), *of_kinds(conv, target, KINDS, _launch))


def _launch(
    conv: Quant8Convolution, target: Target, kind: Kind, tile_w: int, vectors: int
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
    return _block_launch(conv, target, kind.name, tile_w, layout, packed, least, defines)


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
    if not {"amx", "vnni"} <= target.isa:
        return ()
    rows = conv.area.kernel_h if conv.area.dilation_w == 1 else 1
    row_loads = ceil_div(conv.taps // rows * conv.in_c, _ROW_BYTES)
    # A load of weights is 16 of the layout's steps, for one vector of channels.
    layout = Layout(16, _VECTORS, 4, rows, _ROWS * row_loads)
    register_rows = _register_rows(conv, layout)
    if not register_rows or not _is_faster(conv, layout, register_rows):
        return ()
    packed = vnni_weights(conv, layout, is_tiled=True)
    if packed is None:
        return ()
    tile_w = _REGISTERS * register_rows
    fields: Params = {
        "tile_w": tile_w,
        "register_rows": register_rows,
        "register_config": Constant(64, lambda: _config(register_rows)),
    }
    launch = _block_launch(conv, target, "amx", tile_w, layout, packed | fields, 0, {})
    return (Alternative(f"amx {tile_w}x{layout.channels}", (launch,)),)


def _is_faster(conv: Quant8Convolution, layout: Layout, register_rows: int) -> bool:
    """Whether it is expected to take fewer cycles than VNNI's kernel.

    The numbers are fitted to times measured on a Sapphire Rapids. They decide what is tried and
    comes first, and nothing else.
    """
    row_bytes = conv.taps // layout.rows * conv.in_c
    steps = layout.rows * ceil_div(row_bytes, 4)
    vnni = conv.pixels * ceil_div(conv.out_c, layout.lanes) * (0.65 * steps + 5)
    # The pixels of a register are multiplied one after the other, and weights are loaded for them.
    each = max(4 * register_rows, _ROWS + register_rows)
    block = 1.3 * each * layout.steps // _ROWS + 26 * register_rows
    pixel_blocks = ceil_div(conv.pixels, _REGISTERS * register_rows)
    amx = pixel_blocks * ceil_div(conv.out_c, layout.channels) * block
    # A block is long, so most windows have to be gathered.
    gathered = 0 if conv.is_matrix else 40 + 6 * layout.rows * ceil_div(row_bytes, _ROW_BYTES)
    return amx + conv.pixels * gathered < vnni


def _register_rows(conv: Quant8Convolution, layout: Layout) -> int:
    """Return how many pixels a register has, so that few are computed twice; 0: none fit."""
    most = min(_ROWS, conv.pixels // _REGISTERS)
    if not conv.is_matrix:
        most = min(most, (PANEL_BYTES - 64) // (_REGISTERS * panel_pitch(layout)))

    def work(rows: int) -> int:
        return ceil_div(conv.pixels, _REGISTERS * rows) * (rows + 2)

    return min(range(most, 0, -1), key=work, default=0)


def _config(register_rows: int) -> NDArray[np.uint8]:
    """Return what LDTILECFG reads: palette 1, then each register's bytes a row, then its rows.

    Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, LDTILECFG

    Shapes:
        (64,)
    """
    config = np.zeros(64, np.uint8)
    config[0] = 1
    config[16:32:2] = _ROW_BYTES
    config[48:54] = register_rows  # sums and pixels
    config[54:56] = _ROWS  # weights
    return config
