# SPDX-License-Identifier: Apache-2.0
"""CONV_2D in float32: blocks of pixels x channels, the same for 1x1 windows, and plain."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import cast

from delegate.launch import Alternative, Constant, Launch
from delegate.ops._convolution.packing import fallback, packed, zeros
from delegate.ops._convolution.records import FloatConvolution
from delegate.ops._launches.tiles import Tiling, by_work, in_blocks, lanes_of, launch_of, tile_w_of
from delegate.ops._numbers import ceil_div
from delegate.target import Target

# A sum of at most so many terms, as in a first layer, costs less than its loops. The sizes are then
# literals, so that the loops are unrolled, and each such layer is a separate build.
_SHORT = 48
_WIDTHS = ((96, 4), (40, 2), (0, 1))  # registers, and pixels of such a layer that fit
# Registers, and the taps and terms of a window's row that fit for these pixels, as the compilers
# for Adreno, Mali and V3D unroll it. Longer rows keep their loops.
_LITERAL_ROWS = ((96, _SHORT, 14), (40, _SHORT, _SHORT), (0, 7, 14))
_LOOP_WIDTHS = ((64, 4), (0, 2))  # registers and pixels with loops
_MATRIX_WIDTHS = ((40, 4), (0, 2))  # with a single loop
_RESIDUAL_WIDTHS = ((128, 4), (0, 2))  # with eight fp16 lanes and a residual
# Vectors of a block and its pixels, for devices whose registers are vectors: sums, weights and an
# input fit 32 registers of 16 lanes, or 16 of fewer. A weight that is for few pixels is better read
# with its neighbours, as of four vectors.
_SUMS = {16: 24, 8: 12, 4: 12}  # by lanes of a register
_PIXELS = (16, 14, 12, 8, 7, 6, 4)
_MORE_PIXELS = {8: (5,)}  # likewise; for 49 pixels ten blocks of 5 waste less than nine of 6
_FEW = ((4, 2), (4, 1), (2, 2), (2, 1), (1, 2), (1, 1))
# Sums of 8 lanes that leave some of 16 registers free. With more, compilers that unroll the loop
# spill inputs shared by several pixels, and load them as often as without sharing.
_MOST_UNROLLED_SUMS = 8
_L1_BYTES = 32768  # weights that fit the L1 cache beside other data
_CLAIM_CYCLES = 400  # overhead of a tile


def alternatives(conv: FloatConvolution, target: Target) -> tuple[Alternative, ...]:
    """Return the alternatives of a convolution: blocks if one fits, then plain."""
    pixels = conv.pixels if conv.is_matrix else conv.area.out_w
    kind = "1x1" if conv.is_matrix else "tiled"
    tiled = (
        Alternative(
            f"{kind} {tile_w}x{lanes * vectors}", (_tiled(conv, lanes, vectors, tile_w, target),)
        )
        for lanes, vectors, tile_w in _tile_shapes(conv, pixels, target)
    )
    file = "conv_2d_float"
    return (*tiled, fallback(conv, file, file, conv.weights, defines=conv.defines))


def _tiled(conv: FloatConvolution, lanes: int, vectors: int, tile_w: int, target: Target) -> Launch:
    block = lanes * vectors
    blocks, row_blocks = ceil_div(conv.out_c, block), ceil_div(conv.area.out_w, tile_w)
    pixel_blocks = conv.batch * conv.area.out_h * row_blocks
    if conv.is_matrix:
        pixel_blocks = ceil_div(conv.pixels, tile_w)
    terms = conv.taps * conv.in_c
    work = tile_w * vectors * terms
    tiling = by_work(blocks * pixel_blocks, work, target, pixel_blocks)
    if target.group_items == 1:
        reread = block * terms if _splits_pixels(conv) else 0
        tiling = _balanced(tiling, blocks, pixel_blocks, work, reread, target)
    tiles, fields = in_blocks(blocks, pixel_blocks, tiling)
    defines = {**conv.defines, "LANES": lanes, "VECTORS": vectors, "TILE_W": tile_w}
    defines["IS_ALIGNED"] = int(_is_aligned(conv, target))
    weights = conv.weights
    params = conv.params() | {
        "weights": Constant(4 * blocks * block * terms, lambda: packed(weights, lanes, vectors)),
        **fields,
    }
    if conv.is_matrix:
        params["pixels"] = conv.pixels
        if target.group_items == 1:
            params["blocks"] = blocks
            defines["BY_PIXELS" if _splits_pixels(conv) else "ASKS_AHEAD"] = 1
    else:
        params["zeros"] = zeros(conv.in_c)
        params["row_blocks"] = row_blocks
        defines["IS_LITERAL"] = int(_is_literal(conv, target))
        if _is_literal(conv, target):
            if target.group_items == 1 and lanes == 8 and vectors * tile_w > _MOST_UNROLLED_SUMS:
                defines["KEEPS_LOOPS"] = 1
            for name in [*conv.area.params(), "in_c", "out_c"]:
                defines[name.upper()] = cast(int, params.pop(name))
    kernel = "conv_2d_1x1_float" if conv.is_matrix else "conv_2d_tiled_float"
    return launch_of("conv_2d_float", kernel, tiles, target.group_items, params, defines)


def _splits_pixels(conv: FloatConvolution) -> bool:
    """Whether a CPU's cores split the pixels rather than the channels.

    Then a core finds the inputs it wrote in the previous launch in its own cache, but reads all
    weights. Inputs from another core's cache take longer than weights, which no core writes.
    """
    return conv.is_matrix and conv.pixels * (conv.in_c + conv.out_c) >= conv.in_c * conv.out_c


def _balanced(
    most: Tiling, blocks: int, pixel_blocks: int, work: int, reread: int, target: Target
) -> Tiling:
    """Return the tile size with which the last core ends soonest.

    A core processes adjacent tiles. If cores split the pixels, each processes all channels, and
    rereads the weights of a channel block for each tile, four per cycle.

    Units:
        work: per item, in vector multiplications; reread: weights of a block, or 0
    """
    units = target.compute_units

    def cycles(tile_items: int) -> int:
        parts = ceil_div(pixel_blocks, tile_items)
        rounds = ceil_div(parts, units) * blocks if reread else ceil_div(blocks * parts, units)
        # Cores differ in speed: one waits for a part of the other's last tile.
        return (4 * rounds + 1) * (tile_items * work // 2 + reread // 4 + _CLAIM_CYCLES)

    sizes = {
        ceil_div(pixel_blocks, n) for n in range(1, ceil_div(pixel_blocks, most.tile_items) + 1)
    }
    tile_items = min(sorted(sizes), key=cycles)
    return replace(most, tile_items=tile_items)


def _is_aligned(conv: FloatConvolution, target: Target) -> bool:
    """Whether kernels may access 16 aligned bytes: of outputs, and in 1x1 windows of inputs."""
    channels = (conv.out_c, conv.in_c if conv.is_matrix else 4)
    return target.group_items > 1 and all(count % 4 == 0 for count in channels)


def _is_literal(conv: FloatConvolution, target: Target) -> bool:
    if conv.is_matrix or conv.taps * conv.in_c > _SHORT:
        return False
    row = conv.area.kernel_w
    taps, terms = next(most for values, *most in _LITERAL_ROWS if target.keeps(values))
    return not target.registers or (row <= taps and row * conv.in_c <= terms)


def _tile_shapes(conv: FloatConvolution, pixels: int, target: Target) -> list[tuple[int, int, int]]:
    """Return (lanes, vectors, pixels) of the tiles worth measuring, best first."""
    out_c = conv.out_c
    if target.group_items > 1:
        # Unrolled loops keep all of a window's pixels and weights live at once.
        widths = _WIDTHS if _is_literal(conv, target) else _LOOP_WIDTHS
        widths = _MATRIX_WIDTHS if conv.is_matrix else widths
        lanes = lanes_of(math.gcd(out_c, conv.in_c) if conv.is_matrix else out_c, target)
        if lanes > 4 and conv.defines.get("HAS_RESIDUAL"):
            widths = _RESIDUAL_WIDTHS
        most = next(w for values, w in widths if target.keeps(values))
        return [(max(lanes, 4), 1, tile_w_of(pixels, most))] if out_c >= 4 else []
    return _wide_shapes(conv.taps * conv.in_c, out_c, pixels, min(target.vector_width, 16))


@lru_cache(1 << 8)  # layers share sizes
def _wide_shapes(terms: int, out_c: int, pixels: int, width: int) -> list[tuple[int, int, int]]:
    """Return the same for a CPU with registers of `width` lanes."""
    widths = _PIXELS + _MORE_PIXELS.get(width, ())
    sizes = [(v, t) for v in (1, 2, 3, 4, 6) for t in widths if v * t <= _SUMS.get(width, 0)]
    shapes = [
        (lanes, vectors, tile_w)
        for lanes in (16, 8, 4)
        for vectors, tile_w in (sizes if pixels >= min(_PIXELS) else _FEW)
        if lanes <= min(width, out_c) and tile_w <= pixels and (vectors - 1) * lanes < out_c
    ]
    best: dict[int, tuple[int, int, int]] = {}  # by the channels of a block
    for lanes, vectors, tile_w in sorted(
        shapes, key=lambda e: _cost(terms, out_c, pixels, e, width)
    ):
        best.setdefault(lanes * vectors, (lanes, vectors, tile_w))
    return [*best.values()][:2]


def _cost(terms: int, out_c: int, pixels: int, shape: tuple[int, int, int], width: int) -> float:
    """Return the estimated cycles of a row of `pixels` in blocks of (lanes, vectors, pixels).

    Measured: a core issues two multiply-adds and 1.6 loads per cycle, a sum waits 4 cycles for its
    previous term, and large blocks of weights come from an outer cache. Narrow vectors cost nearly
    as much as wide ones.
    """
    lanes, vectors, tile_w = shape
    term = max(4, vectors * tile_w / 2, (vectors + tile_w) / 1.6) + 0.5
    if 4 * terms * lanes * vectors > _L1_BYTES:
        term += 0.3 * vectors
    block = terms * term + 1.5 * vectors * tile_w + 30
    blocks = ceil_div(out_c, lanes * vectors) * ceil_div(pixels, tile_w)
    return blocks * block * (lanes + width)
