# SPDX-License-Identifier: Apache-2.0
"""Blocks of results in AMX's tile registers: pixels x channels, and whether they are worth it.

The kernels are in conv_2d_amx.cl and fully_connected_amx.cl, which share amx.clh. They scale and
store their sums with AVX-512, which VNNI's self-test proves, so they need VNNI, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delegate.launch import Constant, Params
from delegate.ops._convolution.panels import PANEL_BYTES, Layout, panel_pitch
from delegate.ops._convolution.records import Convolution
from delegate.ops._numbers import ceil_div
from delegate.target import Target

NAME = "amx"  # of the kernels and alternatives
ISA = frozenset({NAME, "vnni"})
LANES = 16  # channels a vector
_ROWS, _ROW_BYTES = 16, 64  # of a tile register, at most
_REGISTERS, VECTORS = 2, 2  # of a block: registers with pixels, vectors of channels


@dataclass(frozen=True, slots=True)
class Tiles:
    """A block, and the layout of its weights: 16 steps of a vector of channels fill a register."""

    layout: Layout
    register_rows: int  # pixels a register

    @property
    def tile_w(self) -> int:
        """Pixels of a block."""
        return _REGISTERS * self.register_rows

    @property
    def name(self) -> str:
        """The name of its alternative."""
        return f"{NAME} {self.tile_w}x{self.layout.channels}"

    @property
    def fields(self) -> Params:
        """The fields that only these kernels read."""
        return _fields(self.register_rows, _ROW_BYTES)


def sized_for(rows: int, depth: int) -> tuple[int, Params]:
    """Return how many of a matrix's rows a block takes, and the fields that only its kernel reads.

    `depth`: values of a row that are multiplied at a time.
    """
    register_rows = _register_rows(rows)
    return _REGISTERS * register_rows, _fields(register_rows, depth)


def _fields(register_rows: int, depth: int) -> Params:
    return {
        "tile_w": _REGISTERS * register_rows,
        "register_rows": register_rows,
        "register_config": Constant(64, lambda: _config(register_rows, depth)),
    }


def tiles_of(conv: Convolution, target: Target) -> Tiles | None:
    """Return the blocks; None if they are not proven, or not expected to be the fastest."""
    if not target.isa >= ISA:
        return None
    rows = conv.area.kernel_h if conv.area.dilation_w == 1 else 1
    row_loads = ceil_div(conv.taps // rows * conv.in_c, _ROW_BYTES)
    layout = Layout(LANES, VECTORS, 4, rows, _ROWS * row_loads)
    most = _ROWS
    if not conv.is_matrix:
        most = min(most, (PANEL_BYTES - 64) // (_REGISTERS * panel_pitch(layout)))
    register_rows = _register_rows(conv.pixels, most)
    if not register_rows or not _is_faster(conv, layout, register_rows):
        return None
    return Tiles(layout, register_rows)


def _register_rows(pixels: int, most: int = _ROWS) -> int:
    """Return how many pixels a register takes, so that few are computed twice; 0: none fit."""

    def work(rows: int) -> int:
        return ceil_div(pixels, _REGISTERS * rows) * (rows + 2)

    return min(range(min(most, pixels // _REGISTERS), 0, -1), key=work, default=0)


def _is_faster(conv: Convolution, layout: Layout, register_rows: int) -> bool:
    """Whether these blocks are expected to take fewer cycles than VNNI's kernel.

    The constants are fitted to times on a Sapphire Rapids. They only decide whether the launch is
    offered, and then it is the first.
    """
    row_bytes = conv.taps // layout.rows * conv.in_c
    steps = layout.rows * ceil_div(row_bytes, 4)
    vnni = conv.pixels * ceil_div(conv.out_c, layout.lanes) * (0.65 * steps + 5)
    # A register's pixels are multiplied one after the other, with the weights loaded for them.
    each = max(4 * register_rows, _ROWS + register_rows)
    block = 1.3 * each * layout.steps // _ROWS + 26 * register_rows
    pixel_blocks = ceil_div(conv.pixels, _REGISTERS * register_rows)
    tiles = pixel_blocks * ceil_div(conv.out_c, layout.channels) * block
    # A block has many pixels, so most windows have to be gathered.
    gathered = 0 if conv.is_matrix else 40 + 6 * layout.rows * ceil_div(row_bytes, _ROW_BYTES)
    return tiles + conv.pixels * gathered < vnni


def _config(register_rows: int, depth: int) -> NDArray[np.uint8]:
    """Return the operand of LDTILECFG: palette 1, then each register's bytes a row, then its rows.

    Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, LDTILECFG

    Shapes:
        (64,)
    """
    config = np.zeros(64, np.uint8)
    config[0] = 1
    config[16:32:2] = _ROW_BYTES
    config[24:28:2] = depth  # pixels
    config[48:54] = register_rows  # sums and pixels
    config[54:56] = depth // 4  # weights
    return config
