# SPDX-License-Identifier: Apache-2.0
"""CONV_2D, 8 bit and hybrid, by x86 instructions that were proven on the device.

The 8-bit kernels share conv_2d_x86.clh, the hybrid ones conv_2d_panel_hybrid.clh.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from delegate.launch import Alternative, Constant, Launch, Params
from delegate.ops._convolution import panels_hybrid
from delegate.ops._convolution.hybrid import Product
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
from delegate.ops._convolution.panels_hybrid import HybridGemmConfig
from delegate.ops._convolution.records import Quant8Convolution
from delegate.ops._convolution.x86 import tiles
from delegate.ops._convolution.x86.conv_2d_weights import (
    int8_weights,
    int16_weights,
    split_weights,
)
from delegate.ops._launches.tiles import launch_of
from delegate.ops._numbers import ceil_div
from delegate.target import Target

_SUM_WORK = 200  # instructions that sum up a block's windows
_LEAST_TILE_PIXELS = 6  # of a hybrid product; with fewer, sums in vector registers are faster

# A block's sums, weights and inputs fit the registers. The compiler needs some of VNNI's 32 for
# itself: 14 x 2 is slower. One vector is for channels that would leave half of a block empty.
VNNI = GemmConfig(frozenset({"vnni"}), "vnni", 16, 4, ((7, 2), (14, 1)), ((1, 4),))
AVX2_PAIRS = GemmConfig(frozenset({"avx2"}), "avx2", 8, 4, ((6, 2),), ((1, 4),), " pairs")
AVX2 = GemmConfig(frozenset({"avx2"}), "avx2", 8, 2, ((6, 2),), ((1, 4),))
KINDS = (VNNI, AVX2_PAIRS, AVX2)
_FEW = ((1, 2),)  # pixels x vectors of a hybrid product
HYBRID_KINDS = (
    HybridGemmConfig(replace(VNNI, few=_FEW), "uint8", {"IS_SIGNED": 0, "FLIPS": 0}),
    HybridGemmConfig(replace(AVX2, few=_FEW), "int8", {"IS_SIGNED": 1, "WEIGHT_BITS": 16}),
)


def alternatives(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the launches this target was proven to run, the fastest expected first."""
    if target.group_items > 1:
        return ()
    return (*_in_tiles(conv, target), *of_kinds(conv, target, KINDS, _launch))


def hybrid(product: Product, target: Target) -> tuple[Alternative, ...]:
    """Return the same of floats that are quantised at each run."""
    in_vectors = panels_hybrid.alternatives(product, target, HYBRID_KINDS)
    return (*hybrid_in_tiles(product, target), *in_vectors)


def hybrid_in_tiles(product: Product, target: Target) -> tuple[Alternative, ...]:
    """Return the launch in tile registers; none if not proven or not expected to be fastest."""
    if product.pixels < _LEAST_TILE_PIXELS or not panels_hybrid.is_supported(product, target):
        return ()
    block = tiles.tiles_of(product, target)
    if block is None or block.layout.channels > product.out_c:
        return ()
    layout, pictures = block.layout, panels_hybrid.pictures_of(product, "int8", target)
    weights = panels_hybrid.in_steps(product, layout.rows, layout.row_steps, 4, layout.channels)
    launch = panels_hybrid.block_launch(
        pictures,
        replace(product, source=pictures.values),
        target,
        tiles.NAME,
        block.tile_w,
        layout,
        {"weights": weights, **block.fields},
        {"IS_SIGNED": 1},
    )
    return (Alternative(block.name, (*pictures.launches, launch)),)


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
    packed: Params | None
    if kind is VNNI:
        packed = int8_weights(conv, layout, takes_int8=corrects)
    else:
        packed = (int16_weights if kind is AVX2 else split_weights)(conv, layout)
    if packed is None:
        return None
    of_kind = {"FLIPS": int(flips)} if kind is VNNI else {"WEIGHT_BITS": 32 // kind.values}
    defines = {"TILE_W": tile_w, **of_kind}
    # All but products of 16 bits and corrected ones take inputs as uint8.
    least = 0 if kind is AVX2 or corrects else int(np.iinfo(conv.source.dtype).min)
    if kind is not VNNI:
        row = _panel_row(conv, target, tile_w, layout) if uses_panel else 0
        # The zero point is already subtracted from rows of 16 bits.
        least = conv.input_zero if row and kind is AVX2 else least
        packed |= {"panel_row": row, "panel_zero": conv.input_zero}
    return _block_launch(conv, target, kind.name, tile_w, layout, packed, least, defines)


def _panel_row(conv: Quant8Convolution, target: Target, tile_w: int, layout: Layout) -> int:
    """Return the bytes of a picture's row in the panel; 0: windows are copied there one by one.

    The rows that a tile's windows touch have to fit, and to take fewer bytes than the windows.
    """
    area = conv.area
    if conv.is_matrix or conv.batch > 1 or area.dilation_w > 1 or area.pad_left < 0:
        return 0
    if layout.values == 4 and conv.source.dtype == "uint8":
        return 0  # most windows are read in place
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
    """Whether summing up a block's windows takes longer than converting their bytes to uint8."""
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
    """Return a launch of conv_2d_x86.clh; `least`: the smallest input, after its shift by 128.

    `isa`: the kernel's; `tile_w`: pixels of a block; `packed`: the weights, and what only this
    kernel reads.
    """
    is_signed = conv.source.dtype == "int8"
    tiles, fields = windows_of(conv, target, tile_w, layout)
    # If negative results are clamped away, the others are centred on int8's 0.
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


def _in_tiles(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
    block = tiles.tiles_of(conv, target)
    packed = int8_weights(conv, block.layout, is_tiled=True) if block else None
    if block is None or packed is None:
        return ()
    packed |= block.fields
    launch = _block_launch(conv, target, tiles.NAME, block.tile_w, block.layout, packed, 0, {})
    return (Alternative(block.name, (launch,)),)
