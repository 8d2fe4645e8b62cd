# SPDX-License-Identifier: Apache-2.0
"""CONV_2D of float32: plain, in blocks of pixels x channels, and the same for 1x1 windows."""

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

# A sum of at most so many terms, as in a first layer, costs less than the loops around it. Sizes
# are literals then, so that the loops are unrolled, and each such layer is a build of its own.
_SHORT = 48
_WIDTHS = ((96, 4), (40, 2), (0, 1))  # registers, and pixels that they keep of such a layer
# Registers, and the taps and terms of a window's row that they keep for so many pixels, as the
# compilers for Adreno, Mali and V3D unroll it. The loops of longer ones stay.
_LITERAL_ROWS = ((96, _SHORT, 14), (40, _SHORT, _SHORT), (0, 7, 14))
_LOOP_WIDTHS = ((64, 4), (0, 2))  # the same where the loops stay
_MATRIX_WIDTHS = ((40, 4), (0, 2))  # of one loop
_RESIDUAL_WIDTHS = ((128, 4), (0, 2))  # of eight halves, and as many of the ADD behind
# Vectors of a block and its pixels, for devices whose registers are vectors: sums, weights and an
# input fit 32 registers of 16 lanes, or 16 of fewer. A weight that is for few pixels is better read
# with its neighbours, as of four vectors.
_SUMS = {16: 24, 8: 12, 4: 12}  # by the lanes of a register
_PIXELS = (16, 14, 12, 8, 7, 6, 4)
_MORE_PIXELS = {8: (5,)}  # by the same; ten blocks of 5 waste less of 49 pixels than nine of 6
_FEW = ((4, 2), (4, 1), (2, 2), (2, 1), (1, 2), (1, 1))
# Of 8 lanes that leave some of 16 registers: with more, an unrolled loop keeps inputs that several
# pixels have in memory, where they are stored once and loaded as often as without that.
_KEPT_SUMS = 8
_NEAR_BYTES = 32768  # weights that the nearest cache keeps beside what else is used
_CLAIM = 400  # cycles that a tile costs beside its work


def alternatives(conv: FloatConvolution, target: Target) -> tuple[Alternative, ...]:
    """Return the launches of a convolution: in blocks where one fits, then plain."""
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
        read_again = block * terms if _goes_by_pixels(conv) else 0
        tiling = _balanced(tiling, blocks, pixel_blocks, work, read_again, target)
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
            defines["BY_PIXELS" if _goes_by_pixels(conv) else "ASKS_AHEAD"] = 1
    else:
        params["zeros"] = zeros(conv.in_c)
        params["row_blocks"] = row_blocks
        defines["IS_LITERAL"] = int(_is_literal(conv, target))
        if _is_literal(conv, target):
            if target.group_items == 1 and lanes == 8 and vectors * tile_w > _KEPT_SUMS:
                defines["KEEPS_LOOPS"] = 1
            for name in [*conv.area.params(), "in_c", "out_c"]:
                defines[name.upper()] = cast(int, params.pop(name))
    kernel = "conv_2d_1x1_float" if conv.is_matrix else "conv_2d_tiled_float"
    return launch_of("conv_2d_float", kernel, tiles, target.group_items, params, defines)


def _goes_by_pixels(conv: FloatConvolution) -> bool:
    """Whether a CPU's core takes some of the pixels, and not some of the channels.

    Then it finds its inputs where it wrote them in the launch before, and reads all weights. What
    another core wrote takes longer to come than weights that none writes.
    """
    return conv.is_matrix and conv.pixels * (conv.in_c + conv.out_c) >= conv.in_c * conv.out_c


def _balanced(
    most: Tiling, blocks: int, pixel_blocks: int, work: int, read_again: int, target: Target
) -> Tiling:
    """Return tiles of so many blocks of pixels that the last core ends soonest.

    A core takes tiles that lie side by side. Where they go by pixels, it takes all channels, and
    reads the weights of a block of channels again for each tile, four a cycle.

    Units:
        work: of an item, in multiplications of vectors; read_again: weights of a block, or 0
    """
    units = target.compute_units

    def cycles(tile_items: int) -> int:
        parts = ceil_div(pixel_blocks, tile_items)
        rounds = ceil_div(parts, units) * blocks if read_again else ceil_div(blocks * parts, units)
        # Cores are not equally fast: one waits for a part of the other's last tile.
        return (4 * rounds + 1) * (tile_items * work // 2 + read_again // 4 + _CLAIM)

    sizes = {
        ceil_div(pixel_blocks, n) for n in range(1, ceil_div(pixel_blocks, most.tile_items) + 1)
    }
    tile_items = min(sorted(sizes), key=cycles)
    return replace(most, tile_items=tile_items)


def _is_aligned(conv: FloatConvolution, target: Target) -> bool:
    """Whether kernels load and store 16 bytes at once: of outputs, and of inputs in 1x1 windows."""
    channels = (conv.out_c, conv.in_c if conv.is_matrix else 4)
    return target.group_items > 1 and all(count % 4 == 0 for count in channels)


def _is_literal(conv: FloatConvolution, target: Target) -> bool:
    if conv.is_matrix or conv.taps * conv.in_c > _SHORT:
        return False
    row = conv.area.kernel_w
    taps, terms = next(most for values, *most in _LITERAL_ROWS if target.keeps(values))
    return not target.registers or (row <= taps and row * conv.in_c <= terms)


def _tile_shapes(conv: FloatConvolution, pixels: int, target: Target) -> list[tuple[int, int, int]]:
    """Return (lanes, vectors, pixels) of the tiles worth trying, best first."""
    out_c = conv.out_c
    if target.group_items > 1:
        # Unrolled, all of a window's pixels and weights live at a time.
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
    """Return the same for a CPU whose registers have `width` lanes."""
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
    """Return about how many cycles a row of `pixels` takes in blocks of (lanes, vectors, pixels).

    For each term a core begins two multiply-adds and 1.6 loads a cycle, and a sum waits 4 cycles
    for the term before; weights that are many come from a farther cache; measured. Narrow vectors
    cost nearly as much as wide ones.
    """
    lanes, vectors, tile_w = shape
    term = max(4, vectors * tile_w / 2, (vectors + tile_w) / 1.6) + 0.5
    if 4 * terms * lanes * vectors > _NEAR_BYTES:
        term += 0.3 * vectors
    block = terms * term + 1.5 * vectors * tile_w + 30
    blocks = ceil_div(out_c, lanes * vectors) * ceil_div(pixels, tile_w)
    return blocks * block * (lanes + width)
