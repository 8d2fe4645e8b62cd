# SPDX-License-Identifier: Apache-2.0
"""CONV_2D, 8 bit and hybrid, on NVIDIA's tensor cores: the shapes of tiles, and packed weights."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from delegate.launch import Alternative, Constant, Defines, Launch, Params
from delegate.ops._convolution.hybrid import Product, Rows
from delegate.ops._convolution.nvidia.conv_2d_weights import (
    CHUNK,
    FAR,
    LANES_A_PIXEL,
    chunk_table,
    packed_weights,
    rows_of,
)
from delegate.ops._convolution.packing import alike_by_eight_rows, four_zeros
from delegate.ops._convolution.panels_hybrid import pictures_of
from delegate.ops._convolution.records import Convolution, Quant8Convolution
from delegate.ops._launches.tiles import launch_of
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import ceil_div
from delegate.target import Target

GROUP_ITEMS = 256
_WARPS = GROUP_ITEMS // 32
_LEAST_ROWS = 5  # of a hybrid product; fewer rows share weights in fully_connected_row.cl
_MANY_PIXELS = 2048  # with so many, a half empty last tile costs little


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a work-group's warps divide a tile; each number is a power of 2."""

    p_blocks: int  # of 8 pixels, which a warp computes at once
    c_blocks: int  # of 16 channels, which a warp computes at once
    blocks_m: int  # warps along the pixels
    blocks_n: int  # warps along the channels
    parts: int  # warps along a sum's terms
    turns: int = 1  # blocks of pixels that a warp computes one after the other
    is_ahead: bool = False  # whether weights, too, are loaded a step ahead; for one turn

    @property
    def pixels(self) -> int:
        return 8 * self.p_blocks * self.blocks_m * self.turns

    @property
    def channels(self) -> int:
        return 16 * self.c_blocks * self.blocks_n

    def tiles(self, conv: Convolution) -> tuple[int, int]:
        """Return how many tiles there are along the pixels and along the channels."""
        return ceil_div(conv.pixels, self.pixels), ceil_div(conv.out_c, self.channels)


def alternatives(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the launches by matrix instructions; none if the device has not proven them.

    The first is expected to be the fastest for one picture, the others for batches.
    """
    if conv.residual is not None and conv.out_c % 4:
        return ()  # it is read by words
    return tuple(
        Alternative(_name(shape), (_launch(conv, shape),)) for shape in _chosen(conv, target)
    )


def _chosen(conv: Convolution, target: Target) -> tuple[_Shape, ...]:
    if "mma" not in target.isa or max(conv.area.in_h, conv.area.in_w) >= -FAR:
        return ()
    return tuple(dict.fromkeys((_for_one_picture(conv, target), *_for_many(conv))))


def hybrid(product: Product, target: Target) -> tuple[Alternative, ...]:
    """Return the same of floats that are quantised at each run.

    None for few rows, and for several pictures whose windows leave them: each has a zero point of
    its own.
    """
    is_alone = product.batch == 1 or product.is_matrix
    if product.groups > 1 or not is_alone or product.pixels < _LEAST_ROWS:
        return ()
    pictures = pictures_of(product, "int8", target)
    of_pictures = replace(product, source=pictures.values)
    return tuple(
        Alternative(
            _name(shape), (*pictures.launches, _hybrid_launch(of_pictures, pictures, shape))
        )
        for shape in _chosen(of_pictures, target)
    )


def _name(shape: _Shape) -> str:
    a_warp = f"{8 * shape.p_blocks}x{16 * shape.c_blocks}"
    tile = f"{shape.pixels}x{shape.channels}"
    if shape.turns > 1:
        return f"mma_turns {tile} of {a_warp}, {shape.turns} turns"
    if shape.parts > 1:
        return f"mma_split {tile} of {a_warp} in {shape.parts}"
    return f"mma {tile} of {a_warp}"


def _is_pointwise(conv: Convolution) -> bool:
    return conv.is_matrix and conv.in_c % CHUNK == 0


def _steps(conv: Convolution) -> int:
    rows, row_bytes = rows_of(conv)
    return ceil_div(rows * ceil_div(row_bytes, CHUNK), LANES_A_PIXEL)


def _shapes(p_blocks: int, c_blocks: int) -> Iterator[_Shape]:
    """Yield every way to divide a tile among a work-group's warps."""
    sizes = [n for n in (1, 2, 4, 8, 16) if n <= _WARPS]
    for m, n in itertools.product(sizes, sizes):
        if m * n <= _WARPS:
            yield _Shape(p_blocks, c_blocks, m, n, _WARPS // (m * n))


def _for_one_picture(conv: Convolution, target: Target) -> _Shape:
    """Return the fastest shape if each unit runs one group at a time."""
    steps = _steps(conv)

    def cycles(shape: _Shape) -> float:
        along_m, along_n = shape.tiles(conv)
        rounds = ceil_div(along_m * along_n, target.compute_units)
        part_steps = ceil_div(steps, shape.parts)
        # Two steps' loads are in flight at once. The constants are fitted to an H200.
        waiting = 700 * ceil_div(part_steps, 2)
        working = 24 * part_steps * (shape.p_blocks + 2 * shape.c_blocks)
        finishing = 80 * shape.p_blocks * shape.c_blocks / shape.parts + 250 * (shape.parts > 1)
        return rounds * (1500 + waiting + working + finishing)

    # Partial sums lie in local memory: 16 KB if a warp has 16 x 32.
    fitting = (
        replace(shape, is_ahead=True)
        for p_blocks in (1, 2, 4)
        for shape in _shapes(p_blocks, 2)
        if shape.parts <= steps and (shape.parts == 1 or p_blocks <= 2)
    )
    return min(fitting, key=cycles)


def _for_many(conv: Convolution) -> Iterator[_Shape]:
    """Yield the shapes with the least total time of all units, given work to hide latencies.

    With several turns, a warp loads pixels while it computes. With one, more groups share the
    weights that a unit has loaded, and larger blocks load less. Which is faster depends on the
    layer.
    """
    turned = _least_work(conv, (2, 4) if conv.out_c > 32 else (4, 2), (1, 2, 4, 8))
    yield turned
    yield replace(turned, turns=1)
    if conv.out_c > 32 and conv.pixels >= _MANY_PIXELS:
        yield _least_work(conv, (4, 4), (1,))


def _least_work(conv: Convolution, blocks: tuple[int, int], turns_tried: tuple[int, ...]) -> _Shape:
    """Return the best shape; `blocks`: of a warp, along the pixels and along the channels."""
    steps = _steps(conv)

    def cycles(shape: _Shape) -> tuple[float, int]:
        along_m, along_n = shape.tiles(conv)
        turns = ceil_div(conv.pixels, shape.pixels // shape.turns) * along_n
        # Warps along the pixels share weights.
        a_turn = (40 * steps + 120) * (1.1 if shape.blocks_m == 1 else 1)
        return turns * a_turn + 200 * along_m * along_n, -shape.blocks_m

    whole = [shape for shape in _shapes(*blocks) if shape.parts == 1]
    return min((replace(s, turns=turns) for s in whole for turns in turns_tried), key=cycles)


def _launch(conv: Quant8Convolution, shape: _Shape) -> Launch:
    fields: Params = {
        "channels": alike_by_eight_rows(conv, _padded_c(conv, shape)),
        "weight_zero": conv.weight_zero,
    }
    if not _is_pointwise(conv):
        fields["input_zeros"] = four_zeros(conv.input_zero, conv.source.dtype)
    defines: Defines = {
        "SUMS_PIXELS": int(conv.weight_zero != 0),
        "SINGLE_ROUNDING": int(conv.single_rounding),
        **rounding(conv),
    }
    return _shape_launch(conv, shape, fields, defines)


def _hybrid_launch(product: Product, pictures: Rows, shape: _Shape) -> Launch:
    rows, more = product.channels().pack, _padded_c(product, shape) - product.out_c
    size = 12 * _padded_c(product, shape)
    fields: Params = {
        "channels": Constant(size, lambda: np.pad(rows(), ((0, 0), (0, more)))),
        "row_scales": pictures.scales,
        "row_zeros": pictures.zeros,
    }
    return _shape_launch(product, shape, fields, {"SUMS_PIXELS": 0})


def _padded_c(conv: Convolution, shape: _Shape) -> int:
    return shape.tiles(conv)[1] * shape.channels


def _shape_launch(conv: Convolution, shape: _Shape, fields: Params, defines: Defines) -> Launch:
    """Return a launch of conv_2d_mma.cl; `fields`, `defines`: those of its arithmetic."""
    along_m, along_n = shape.tiles(conv)
    padded_c = _padded_c(conv, shape)
    part_steps = ceil_div(_steps(conv), shape.parts)
    steps = part_steps * shape.parts
    is_pointwise = _is_pointwise(conv)
    params: Params = {
        "weights": packed_weights(conv, shape.c_blocks, padded_c, steps),
        **fields,
        "pixels": conv.pixels,
        "padded_c": padded_c,
        "tiles_n": along_n,
        "jobs": shape.blocks_m * shape.blocks_n * shape.parts,
        "block_bits": (shape.blocks_m * shape.blocks_n).bit_length() - 1,
        "block_n_bits": shape.blocks_n.bit_length() - 1,
        "turns": shape.turns,
        "parts": shape.parts,
        "steps": steps,
        "part_steps": part_steps,
    }
    defines = {
        "ELEM": ELEM[conv.source.dtype],
        "IS_SIGNED": int(conv.source.dtype == "int8"),
        "C_BLOCKS": shape.c_blocks,
        "P_BLOCKS": shape.p_blocks,
        "ONCE": int(shape.turns == 1),
        "AHEAD": int(shape.is_ahead),
        "SPLITS": int(shape.parts > 1),
        **defines,
    }
    if shape.parts > 1:
        defines["SCRATCH_INTS"] = _WARPS * 128 * shape.p_blocks * shape.c_blocks
    if not is_pointwise:
        params["chunks"] = chunk_table(conv, steps)
        defines["ALIGNED"] = int(conv.in_c % CHUNK == 0)
    kernel = "conv_2d_1x1_mma" if is_pointwise else "conv_2d_mma"
    return launch_of(
        "conv_2d_mma",
        f"{kernel}_{conv.family}",
        along_m * along_n,
        GROUP_ITEMS,
        conv.params() | params,
        defines | conv.defines,
    )


def _saturates(conv: Quant8Convolution) -> bool:
    """Whether the clamp is the type's range, and all results before it are below 2^22."""
    limits = np.iinfo(conv.result.dtype)
    if conv.clamp != (limits.min, limits.max):
        return False
    terms = conv.weights.size // conv.out_c
    largest = terms * 255 * 255 + np.abs(conv.bias).astype(np.float64)
    multiplier, shift = conv.scaling.astype(np.float64)
    return bool((largest * np.ldexp(multiplier, shift.astype(np.int64) - 31)).max() < 2**21)


def rounding(conv: Quant8Convolution, can_saturate: bool = True) -> dict[str, int | str]:
    """Return the macros of requantize_word.clh except SINGLE_ROUNDING.

    `can_saturate`: whether the device clamps several numbers to their type's range at once.
    """
    is_saturated = can_saturate and _saturates(conv)
    is_from_zero = conv.result.dtype == "uint8" and conv.output_zero == 0
    return {"SATURATES": int(is_saturated), "FROM_ZERO": int(is_saturated and is_from_zero)}
