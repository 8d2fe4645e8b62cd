# SPDX-License-Identifier: Apache-2.0
"""CONV_2D, 8 bit, on any device: in blocks of pixels x channels, and the plain kernel."""

from __future__ import annotations

from delegate.launch import Alternative, Launch
from delegate.ops._convolution.channel_rows import fixed_rows
from delegate.ops._convolution.packing import as_stored, int16_pairs, zeros_row
from delegate.ops._convolution.records import Quant8Convolution
from delegate.ops._launches.tiles import by_share, in_blocks, launch_over, one_each
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers.integers import ceil_div
from delegate.target import Target

TILE_W = 4  # pixels a work-item; with 2 vectors of 16 lanes it fills 8 of AVX-512's 32 registers


def alternatives(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the portable launches: in blocks where one fits, then plain."""
    plain = Alternative("plain", (_plain(conv),))
    # Devices with groups of several work-items have blocks of their own: simt/conv_2d.py.
    block = None if target.group_items > 1 else block_of(conv.out_c, target)
    if block is None:
        return (plain,)
    lanes, vectors = block
    return Alternative(f"tiled {lanes}x{vectors}", (_tiled(conv, *block, target),)), plain


def block_of(channels: int, target: Target) -> tuple[int, int] | None:
    """Return (lanes, vectors) of the block that wastes least, or None where none fits."""
    width = min(target.vector_width, 16)
    sizes = [(width, 2), (width, 1), *((lanes, 1) for lanes in (8, 4) if lanes < width)]
    fitting = [(lanes, vectors) for lanes, vectors in sizes if lanes * vectors <= channels]
    # A block costs its vectors, and about half of one for what does not depend on their number.
    return min(fitting, default=None, key=lambda s: ceil_div(channels, s[0] * s[1]) * (s[1] + 0.5))


def _plain(conv: Quant8Convolution) -> Launch:
    elem = ELEM[conv.source.dtype]
    return launch_over(
        "conv_2d",
        "conv_2d_quant8",
        one_each(conv.elements),
        conv.params()
        | {
            "weights": as_stored(conv.weights),
            "channels": fixed_rows(lambda: conv.bias, conv.scaling),
            "input_zero": conv.input_zero,
            "weight_zero": conv.weight_zero,
            "elements": conv.elements,
        },
        _shared(conv) | {"ELEM": elem, "WEIGHT": elem},
    )


def _tiled(conv: Quant8Convolution, lanes: int, vectors: int, target: Target) -> Launch:
    block = lanes * vectors
    tile_w = TILE_W if conv.pixels >= TILE_W else 1
    blocks, pixel_blocks = ceil_div(conv.out_c, block), ceil_div(conv.pixels, tile_w)
    tiling = by_share(blocks * pixel_blocks, target, most=pixel_blocks)
    tiles, fields = in_blocks(blocks, pixel_blocks, tiling)
    return Launch(
        "conv_2d",
        "conv_2d_tiled_quant8",
        tiles=tiles,
        group_items=target.group_items,
        params=conv.params()
        | {
            "weights": int16_pairs(conv, conv.centred, block),
            "channels": fixed_rows(conv.folded_bias, conv.scaling),
            "zeros": zeros_row(conv.in_c, conv.input_zero, conv.source.dtype),
            "pairs": ceil_div(conv.in_c, 2),
            "pixels": conv.pixels,
            **fields,
        },
        reads=conv.reads,
        writes=conv.writes,
        defines=_shared(conv)
        | {
            "ELEM": ELEM[conv.source.dtype],
            "LANES": lanes,
            "VECTORS": vectors,
            "TILE_W": tile_w,
        },
    )


def _shared(conv: Quant8Convolution) -> dict[str, int | str]:
    return {"SINGLE_ROUNDING": int(conv.single_rounding), **conv.defines}
