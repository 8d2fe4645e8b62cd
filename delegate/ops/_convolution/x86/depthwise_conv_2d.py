# SPDX-License-Identifier: Apache-2.0
"""DEPTHWISE_CONV_2D, 8 bit, by x86 instructions that were proven on the device.

The kernels gather a few rows of the input into columns, then sum along a row; see
depthwise_conv_2d_x86.clh.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from delegate.launch import Alternative, Constant, Params
from delegate.ops._convolution.packing import (
    vector_rows,
    vector_rows_a_block,
    zeros_row,
)
from delegate.ops._convolution.records import Quant8Convolution
from delegate.ops._launches.tiles import by_share, launch_of
from delegate.ops._numbers import ceil_div
from delegate.ops._numbers.order import in_blocks_of
from delegate.target import Target

COLUMN_BYTES = 16384  # of gathered rows: half of a small L1 cache
WIDEST_KERNEL = 9  # the kernels unroll a row of taps
MOST_PIXELS = 7  # whose sums fit the registers
LEAST_PIXELS = 32  # a tile, so that claiming it costs little


@dataclass(frozen=True, slots=True)
class DepthwiseConfig:
    """A kernel's instructions, and the blocks of channels that it computes at once."""

    name: str  # of the instructions, and of the kernel
    block: int  # channels
    vectors: int  # a block
    taps: int  # of one 32-bit lane: 4 of 8 bits, or 2 of 16
    work: float  # relative time of a channel

    @property
    def lanes(self) -> int:
        """Channels a vector."""
        return self.block // self.vectors

    @property
    def columns(self) -> int:
        """The maximum number of gathered columns."""
        return COLUMN_BYTES // (4 * self.block)


KINDS = (
    DepthwiseConfig("vnni", 64, 4, taps=4, work=1.0),
    DepthwiseConfig("vnni", 32, 4, taps=4, work=1.15),
    DepthwiseConfig("avx2", 16, 2, taps=2, work=3.0),
)


def alternatives(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return a launch by each proven kind of instructions that fits, the least work first."""
    if target.group_items > 1 or conv.group_out_c > 1:
        return ()
    tilings: list[DepthwiseTiling] = []
    for isa in KINDS:
        tiling = _tiling(conv, isa) if isa.name in target.isa else None
        # A narrower block is worth trying if clearly fewer channels are computed twice.
        if tiling and (
            not tilings or (isa.taps == 4 and tiling.channels < 0.9 * tilings[-1].channels)
        ):
            tilings.append(tiling)
    tilings.sort(key=lambda tiling: tiling.channels * tiling.isa.work)
    return tuple(tiling.alternative(target) for tiling in tilings)


def _tiling(conv: Quant8Convolution, isa: DepthwiseConfig) -> DepthwiseTiling | None:
    """Return the tiling; None if there are too few channels or the kernel is too wide."""
    area = conv.area
    if conv.out_c < isa.block or area.kernel_w > WIDEST_KERNEL:
        return None
    groups = ceil_div(area.kernel_h, isa.taps)
    # Output rows whose windows lie in the same groups of input rows.
    rows = 1
    if area.dilation_h == 1:
        rows += (groups * isa.taps - area.kernel_h) // area.stride_h
    extent = (area.kernel_w - 1) * area.dilation_w + 1
    most = (isa.columns // groups - extent) // area.stride_w + 1
    if most < 1:
        return None
    widths = range(1, min(MOST_PIXELS, most, area.out_w) + 1)
    # A tile's overhead is about the cost of one pixel.
    tile_w = min(reversed(widths), key=lambda width: ceil_div(area.out_w, width) * (width + 1))
    chunks = ceil_div(area.out_w, most // tile_w * tile_w)
    chunk_w = min(ceil_div(area.out_w, chunks * tile_w) * tile_w, area.out_w)
    return DepthwiseTiling(conv, isa, groups, min(rows, area.out_h), tile_w, chunks, chunk_w)


@dataclass(frozen=True, eq=False)
class DepthwiseTiling:
    """A depthwise convolution in blocks of channels and chunks of rows and pixels."""

    conv: Quant8Convolution
    isa: DepthwiseConfig
    groups: int  # of isa.taps input rows
    rows: int  # output rows a chunk
    tile_w: int  # output pixels that are summed at once
    chunks: int  # of a row
    chunk_w: int  # output pixels of one

    @property
    def blocks(self) -> int:
        """Blocks of channels; the last one overlaps the one before."""
        return ceil_div(self.conv.out_c, self.isa.block)

    @property
    def channels(self) -> int:
        """Channels of all blocks."""
        return self.blocks * self.isa.block

    @property
    def is_unsigned(self) -> bool:
        """Whether the instructions take bytes, so that int8 inputs are moved up by 128."""
        return self.isa.taps == 4

    def alternative(self, target: Target) -> Alternative:
        """Return the launch, named by channels x pixels."""
        conv, isa = self.conv, self.isa
        row_chunks = ceil_div(conv.area.out_h, self.rows)
        items = conv.batch * row_chunks * self.chunks * self.blocks
        least = min(
            ceil_div(LEAST_PIXELS, self.rows * self.chunk_w), ceil_div(items, target.compute_units)
        )
        tile_items = max(by_share(items, target).tile_items, least)
        kind = np.uint8 if self.is_unsigned else np.int16
        zero, layered = self._input_zero, self._layered
        fields: Params = {
            "weights": Constant(self._packed_bytes, layered._weights),
            "channels": Constant(
                4 * self.blocks * vector_rows_a_block(isa.vectors) * isa.lanes,
                lambda: vector_rows(layered.conv, zero, layered._in_lanes),
            ),
            "zeros": zeros_row(conv.out_c, conv.input_zero, conv.source.dtype),
            # A lane of zero points, as an int32.
            "zero_lane": int(np.full(isa.taps, zero, kind).view(np.int32)[0]),
            "groups": self.groups,
            "rows": self.rows,
            "row_chunks": row_chunks,
            "chunks": self.chunks,
            "chunk_w": self.chunk_w,
            "blocks": self.blocks,
            "items": items,
            "tile_items": tile_items,
        }
        name = f"depthwise_conv_2d_{isa.name}"
        params, tiles = conv.params() | fields | self._extra_params(), ceil_div(items, tile_items)
        launch = launch_of(name, f"{name}_quant8", tiles, 1, params, self._defines())
        return Alternative(f"{isa.name} {isa.block}x{self.tile_w}", (launch,))

    def _defines(self) -> dict[str, int | str]:
        conv, area, isa = self.conv, self.conv.area, self.isa
        limits = np.iinfo(conv.result.dtype)
        is_plain = (conv.output_zero, *conv.clamp) == (limits.min, limits.min, limits.max)
        return {
            "BLOCK_C": isa.block,
            "IS_SIGNED": int(conv.source.dtype == "int8"),
            "HAS_EXTRA": int(self._most_extras > 0),
            "IS_PLAIN": int(is_plain),
            "TAPS_W": area.kernel_w,
            "STEP_W": area.stride_w,
            "GAP_W": area.dilation_w,
            "TILE_W": self.tile_w,
            "COLUMNS": isa.columns,
            "ROWS_A_BLOCK": vector_rows_a_block(isa.vectors),
        }

    def _extra_params(self) -> Params:
        extras, isa = self._most_extras, self.isa
        if extras == 0:
            return {}
        starts = self.blocks * self.rows * isa.vectors + 1
        return {
            "extra_starts": Constant(4 * starts, lambda: self._extras[0]),
            "extra_places": Constant(4 * extras, lambda: self._extras[1]),
            "extra_weights": Constant(4 * isa.lanes * extras, lambda: self._extras[2]),
        }

    @property
    def _input_zero(self) -> int:
        moved = self.is_unsigned and self.conv.source.dtype == "int8"
        return self.conv.input_zero + 128 * moved

    def _in_lanes(self, values: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return the values of channels, the last axis, in the order of lanes.

        Shapes:
            (..., out_c) -> (..., blocks, vectors, lanes): unpacking moves 4 channels of every 128
            bits to a vector
        """
        isa = self.isa
        lane = np.arange(isa.lanes)
        of_block = lane // 4 * 4 * isa.vectors + lane % 4 + 4 * np.arange(isa.vectors)[:, None]
        return values[..., in_blocks_of(isa.block, self.conv.out_c)[:, of_block]]

    @property
    def _layered(self) -> DepthwiseTiling:
        """The same without the sizes of a shape: all shapes of a layer share packed weights."""
        return replace(self, conv=self.conv.layer, tile_w=0, chunks=0, chunk_w=0)

    @property
    def _packed_bytes(self) -> int:
        isa = self.isa
        return self.blocks * self.rows * self.groups * self.conv.area.kernel_w * 4 * isa.block

    def _lanes(self) -> NDArray[np.int16]:
        """Return the centred weights, each output row's shifted along the taps.

        Shapes:
            -> (blocks, rows, vectors, groups, kernel_w, lanes, taps)
        """
        area, isa = self.conv.area, self.isa
        out_c = self.conv.out_c
        centred = self.conv.centred_by_tap().reshape(area.kernel_h, area.kernel_w, out_c)
        moved = np.zeros((self.rows, self.groups * isa.taps, area.kernel_w, out_c), np.int16)
        for row in range(self.rows):
            first = row * area.stride_h
            moved[row, first : first + area.kernel_h] = centred
        grouped = moved.reshape(self.rows, self.groups, isa.taps, area.kernel_w, out_c)
        # (rows, groups, taps, kernel_w, blocks, vectors, lanes)
        return np.transpose(self._in_lanes(grouped), (4, 0, 5, 1, 3, 6, 2))

    def _weights(self) -> NDArray[np.generic]:
        lanes = self._lanes()
        return lanes.clip(-128, 127).astype(np.int8) if self.is_unsigned else lanes

    @property
    def _most_extras(self) -> int:
        """The maximum number of vectors for the remainders of weights beyond int8."""
        if not self.is_unsigned:
            return 0
        centred = self.conv.centred()
        beyond = int(np.count_nonzero((centred < -128) | (centred > 127)))
        # A channel may be in two blocks. 255 takes two more vectors: 127 + 127 + 1.
        every = self._packed_bytes // (4 * self.isa.lanes)
        return min(2 * self.rows * beyond, every) * (1 + int(centred.max() > 254))

    @cached_property
    def _extras(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int8]]:
        """Return where each vector's extras start, their columns and their weights.

        Shapes:
            -> (blocks * rows * vectors + 1,), (extras,), (extras, lanes, taps)
        """
        isa, area, most = self.isa, self.conv.area, self._most_extras
        # The columns of a chunk.
        width = (self.chunk_w - 1) * area.stride_w + (area.kernel_w - 1) * area.dilation_w + 1
        rest = self._lanes()
        rest = rest - rest.clip(-128, 127)
        counts = np.zeros(rest.shape[:3], np.int32)
        entries = []
        while rest.any():
            found = np.argwhere(rest.any((-2, -1)))
            np.add.at(counts, tuple(found[:, :3].T), 1)
            taken = rest.clip(-128, 127)
            entries += [(*at, taken[tuple(at)].astype(np.int8)) for at in found.tolist()]
            rest = rest - taken
        entries.sort(key=lambda entry: entry[:3])
        places = np.zeros(most, np.int32)
        weights = np.zeros((most, isa.lanes, isa.taps), np.int8)
        for number, (_, _, vector, group, column, lanes) in enumerate(entries):
            at = group * width + column * area.dilation_w
            places[number], weights[number] = at * isa.vectors + vector, lanes
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return starts, places, weights
