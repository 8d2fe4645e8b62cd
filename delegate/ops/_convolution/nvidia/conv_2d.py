# SPDX-License-Identifier: Apache-2.0
"""CONV_2D, 8 bit, on NVIDIA's tensor cores: the shapes of tiles, and packed weights."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from delegate.launch import Alternative, Constant, Defines, Launch, Params
from delegate.ops._convolution.packing import alike_by_eight_rows, four_zeros
from delegate.ops._convolution.records import Quant8Convolution
from delegate.ops._launches.tiles import launch_of
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import ceil_div, fixed_point
from delegate.ops._numbers.order import transposed
from delegate.target import Target

GROUP_ITEMS = 256
_WARPS = GROUP_ITEMS // 32
_CHUNK = 16  # bytes of a pixel that a lane takes a step
_LANES_A_PIXEL = 4
_MANY_PIXELS = 2048  # of a picture: its last tile may be half empty
_FAR = -(2**30)  # a row that is out of bounds from any window


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a work-group's warps share a tile; each a power of 2."""

    p_blocks: int  # of 8 pixels, a warp at once
    c_blocks: int  # of 16 channels, a warp at once
    blocks_m: int  # warps along the pixels
    blocks_n: int  # warps along the channels
    parts: int  # warps along a sum's terms
    turns: int = 1  # blocks of pixels a warp takes one after the other
    is_ahead: bool = False  # whether weights are loaded a step ahead, too; for one turn

    @property
    def pixels(self) -> int:
        return 8 * self.p_blocks * self.blocks_m * self.turns

    @property
    def channels(self) -> int:
        return 16 * self.c_blocks * self.blocks_n

    def tiles(self, conv: Quant8Convolution) -> tuple[int, int]:
        """How many there are along the pixels and along the channels."""
        return ceil_div(conv.pixels, self.pixels), ceil_div(conv.out_c, self.channels)


def alternatives(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return the launches by matrix instructions, none where the device has not proven them.

    The first takes least time for one picture, the others for many.
    """
    if "mma" not in target.isa or max(conv.area.in_h, conv.area.in_w) >= -_FAR:
        return ()
    if conv.residual is not None and conv.out_c % 4:
        return ()  # it is read by words
    chosen = (_for_one_picture(conv, target), *_for_many(conv))
    return tuple(
        Alternative(_name(shape), (_launch(conv, shape),)) for shape in dict.fromkeys(chosen)
    )


def _name(shape: _Shape) -> str:
    a_warp = f"{8 * shape.p_blocks}x{16 * shape.c_blocks}"
    tile = f"{shape.pixels}x{shape.channels}"
    if shape.turns > 1:
        return f"mma_turns {tile} of {a_warp}, {shape.turns} turns"
    if shape.parts > 1:
        return f"mma_split {tile} of {a_warp} in {shape.parts}"
    return f"mma {tile} of {a_warp}"


def _is_pointwise(conv: Quant8Convolution) -> bool:
    return conv.is_matrix and conv.in_c % _CHUNK == 0


def _rows(conv: Quant8Convolution) -> tuple[int, int]:
    """How many runs of neighbouring bytes a window is, and the bytes of one."""
    rows = conv.area.kernel_h if conv.area.dilation_w == 1 else conv.taps
    return rows, conv.taps // rows * conv.in_c


def _steps(conv: Quant8Convolution) -> int:
    rows, row_bytes = _rows(conv)
    return ceil_div(rows * ceil_div(row_bytes, _CHUNK), _LANES_A_PIXEL)


def _shapes(p_blocks: int, c_blocks: int) -> Iterator[_Shape]:
    """Every way to share a tile among a work-group's warps."""
    sizes = [n for n in (1, 2, 4, 8, 16) if n <= _WARPS]
    for m, n in itertools.product(sizes, sizes):
        if m * n <= _WARPS:
            yield _Shape(p_blocks, c_blocks, m, n, _WARPS // (m * n))


def _for_one_picture(conv: Quant8Convolution, target: Target) -> _Shape:
    """The shape whose tiles take least time where each unit runs one group of them at a time."""
    steps = _steps(conv)

    def cycles(shape: _Shape) -> float:
        along_m, along_n = shape.tiles(conv)
        rounds = ceil_div(along_m * along_n, target.compute_units)
        part_steps = ceil_div(steps, shape.parts)
        # Two steps' loads are under way at once. What follows was fitted to an H200.
        waiting = 700 * ceil_div(part_steps, 2)
        working = 24 * part_steps * (shape.p_blocks + 2 * shape.c_blocks)
        finishing = 80 * shape.p_blocks * shape.c_blocks / shape.parts + 250 * (shape.parts > 1)
        return rounds * (1500 + waiting + working + finishing)

    # Partial sums wait in local memory: 16 KB where a warp has 16 x 32.
    fitting = (
        replace(shape, is_ahead=True)
        for p_blocks in (1, 2, 4)
        for shape in _shapes(p_blocks, 2)
        if shape.parts <= steps and (shape.parts == 1 or p_blocks <= 2)
    )
    return min(fitting, key=cycles)


def _for_many(conv: Quant8Convolution) -> Iterator[_Shape]:
    """The shapes that take the units least time in all, with work enough to hide every wait.

    In turns a warp loads pixels while it works. Without them more groups share what weights a unit
    has loaded, and larger blocks load less. Which of these counts depends on the layer.
    """
    turned = _least_work(conv, (2, 4) if conv.out_c > 32 else (4, 2), (1, 2, 4, 8))
    yield turned
    yield replace(turned, turns=1)
    if conv.out_c > 32 and conv.pixels >= _MANY_PIXELS:
        yield _least_work(conv, (4, 4), (1,))


def _least_work(
    conv: Quant8Convolution, blocks: tuple[int, int], turns_tried: tuple[int, ...]
) -> _Shape:
    """The best shape of a warp's blocks along the pixels and along the channels."""
    steps = _steps(conv)

    def cycles(shape: _Shape) -> tuple[float, int]:
        along_m, along_n = shape.tiles(conv)
        turns = ceil_div(conv.pixels, shape.pixels // shape.turns) * along_n
        # Warps side by side along the pixels share weights.
        a_turn = (40 * steps + 120) * (1.1 if shape.blocks_m == 1 else 1)
        return turns * a_turn + 200 * along_m * along_n, -shape.blocks_m

    whole = [shape for shape in _shapes(*blocks) if shape.parts == 1]
    return min((replace(s, turns=turns) for s in whole for turns in turns_tried), key=cycles)


def _launch(conv: Quant8Convolution, shape: _Shape) -> Launch:
    along_m, along_n = shape.tiles(conv)
    padded_c = along_n * shape.channels
    part_steps = ceil_div(_steps(conv), shape.parts)
    steps = part_steps * shape.parts
    is_pointwise = _is_pointwise(conv)
    own: Params = {
        "weights": _packed_weights(conv, shape.c_blocks, padded_c, steps),
        "channels": alike_by_eight_rows(conv, padded_c),
        "weight_zero": conv.weight_zero,
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
    defines: Defines = {
        "ELEM": ELEM[conv.source.dtype],
        "IS_SIGNED": int(conv.source.dtype == "int8"),
        "C_BLOCKS": shape.c_blocks,
        "P_BLOCKS": shape.p_blocks,
        "SUMS_PIXELS": int(conv.weight_zero != 0),
        "ONCE": int(shape.turns == 1),
        "AHEAD": int(shape.is_ahead),
        "SPLITS": int(shape.parts > 1),
        "SINGLE_ROUNDING": int(conv.single_rounding),
        **rounding(conv),
    }
    if shape.parts > 1:
        defines["SCRATCH_INTS"] = _WARPS * 128 * shape.p_blocks * shape.c_blocks
    if not is_pointwise:
        own["chunks"] = _chunk_table(conv, steps)
        own["input_zeros"] = four_zeros(conv.input_zero, conv.source.dtype)
        defines["ALIGNED"] = int(conv.in_c % _CHUNK == 0)
    return launch_of(
        "conv_2d_mma",
        "conv_2d_1x1_mma_quant8" if is_pointwise else "conv_2d_mma_quant8",
        along_m * along_n,
        GROUP_ITEMS,
        conv.params() | own,
        defines | conv.defines,
    )


def _saturates(conv: Quant8Convolution) -> bool:
    """Whether the type's own limits clamp, and no result is 2^22 or more before."""
    limits = np.iinfo(conv.result.dtype)
    if conv.clamp != (limits.min, limits.max):
        return False
    terms = conv.weights.size // conv.out_c
    largest = terms * 255 * 255 + np.abs(conv.bias).astype(np.float64)
    multiplier, shift = conv.scaling.astype(np.float64)
    return bool((largest * np.ldexp(multiplier, shift.astype(np.int64) - 31)).max() < 2**21)


def rounding(conv: Quant8Convolution, is_able: bool = True) -> dict[str, int | str]:
    """Return the macros of requantize_word.clh but SINGLE_ROUNDING.

    `is_able`: whether the device has what takes several numbers to their type's range at once.
    """
    is_saturated = is_able and _saturates(conv)
    is_from_zero = conv.result.dtype == "uint8" and conv.output_zero == 0
    return {"SATURATES": int(is_saturated), "FROM_ZERO": int(is_saturated and is_from_zero)}


def _packed_weights(conv: Quant8Convolution, c_blocks: int, padded_c: int, steps: int) -> Constant:
    """The weights as stored, in the order in which warps load them, zeros where there are none."""
    out_c = conv.out_c
    rows, row_bytes = _rows(conv)
    chunks, weights = ceil_div(row_bytes, _CHUNK), conv.weights

    def pack() -> NDArray[np.generic]:
        padded = np.zeros((padded_c, steps * _LANES_A_PIXEL * _CHUNK), weights.dtype)
        spread = np.zeros((out_c, rows, chunks * _CHUNK), weights.dtype)
        spread[:, :, :row_bytes] = weights.reshape(out_c, rows, row_bytes)
        padded[:out_c, : rows * chunks * _CHUNK] = spread.reshape(out_c, -1)
        # A warp's lanes are 8 rows of 4 columns. Channels: warp's block, row, 16 channels, half;
        # terms: step, column, pair, word of the pair, byte.
        split = padded.reshape(-1, 8, c_blocks, 2, steps, _LANES_A_PIXEL, 2, 2, 4)
        return transposed(split, 0, 4, 2, 6, 1, 5, 7, 3)

    return Constant(padded_c * steps * _LANES_A_PIXEL * _CHUNK, pack)


def _chunk_table(conv: Quant8Convolution, steps: int) -> Constant:
    """Row, byte and length of each chunk of a window, then a one for each of its terms."""
    area = conv.area
    rows, row_bytes = _rows(conv)
    entries = steps * _LANES_A_PIXEL

    def pack() -> NDArray[np.int32]:
        table = np.zeros((entries, 8), np.int32)
        table[:, 0] = _FAR
        row, byte = (
            axis.ravel()
            for axis in np.meshgrid(np.arange(rows), np.arange(0, row_bytes, _CHUNK), indexing="ij")
        )
        y, x = row // (rows // area.kernel_h), row % (rows // area.kernel_h)
        length = np.minimum(_CHUNK, row_bytes - byte)
        used = table[: row.size]
        used[:, 0] = y * area.dilation_h
        used[:, 1] = fixed_point.wrap_int32(x.astype(np.int64) * area.dilation_w * conv.in_c + byte)
        used[:, 2] = length
        ones = (np.arange(_CHUNK) < length[:, None]).astype(np.uint8)
        used[:, 4:] = ones.view(np.int32)
        return table

    return Constant(32 * entries, pack)
