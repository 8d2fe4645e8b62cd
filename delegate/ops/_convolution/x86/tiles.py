# SPDX-License-Identifier: Apache-2.0
"""Blocks of results in AMX's tile registers: pixels x channels, and whether they are worth it.

The kernels are in conv_2d_amx.cl and fully_connected_amx.cl, which share amx.clh. What follows
their sums is AVX-512's with VNNI, so they need that, too.
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

ISA = frozenset({"amx", "vnni"})
_ROWS, _ROW_BYTES = 16, 64  # of a tile register, at most
REGISTERS, _VECTORS = 2, 2  # of a block: registers with pixels, vectors of 16 channels


@dataclass(frozen=True, slots=True)
class Tiles:
    """A block, and how its weights lie: a load of them is 16 steps of one vector of channels."""

    layout: Layout
    register_rows: int  # pixels a register

    @property
    def tile_w(self) -> int:
        """Pixels of a block."""
        return REGISTERS * self.register_rows

    @property
    def name(self) -> str:
        """The name of its alternative."""
        return f"amx {self.tile_w}x{self.layout.channels}"

    @property
    def fields(self) -> Params:
        """What these kernels alone read."""
        return fields_of(self.register_rows)


def fields_of(register_rows: int, depth: int = _ROW_BYTES) -> Params:
    """Return the fields of kernels whose blocks have two registers of so many rows.

    `depth`: values that are multiplied at a time.
    """
    return {
        "tile_w": REGISTERS * register_rows,
        "register_rows": register_rows,
        "register_config": Constant(64, lambda: _config(register_rows, depth)),
    }


def tiles_of(conv: Convolution, target: Target) -> Tiles | None:
    """Return the blocks; None where they are not proven or not expected to be the fastest."""
    if not target.isa >= ISA:
        return None
    rows = conv.area.kernel_h if conv.area.dilation_w == 1 else 1
    row_loads = ceil_div(conv.taps // rows * conv.in_c, _ROW_BYTES)
    layout = Layout(16, _VECTORS, 4, rows, _ROWS * row_loads)
    most = _ROWS
    if not conv.is_matrix:
        most = min(most, (PANEL_BYTES - 64) // (REGISTERS * panel_pitch(layout)))
    register_rows = rows_of_register(conv.pixels, most)
    if not register_rows or not _is_faster(conv, layout, register_rows):
        return None
    return Tiles(layout, register_rows)


def rows_of_register(pixels: int, most: int = _ROWS) -> int:
    """Return how many pixels a register has, so that few are computed twice; 0: none fit."""

    def work(rows: int) -> int:
        return ceil_div(pixels, REGISTERS * rows) * (rows + 2)

    return min(range(min(most, pixels // REGISTERS), 0, -1), key=work, default=0)


def _is_faster(conv: Convolution, layout: Layout, register_rows: int) -> bool:
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
    pixel_blocks = ceil_div(conv.pixels, REGISTERS * register_rows)
    amx = pixel_blocks * ceil_div(conv.out_c, layout.channels) * block
    # A block is long, so most windows have to be gathered.
    gathered = 0 if conv.is_matrix else 40 + 6 * layout.rows * ceil_div(row_bytes, _ROW_BYTES)
    return amx + conv.pixels * gathered < vnni


def _config(register_rows: int, depth: int) -> NDArray[np.uint8]:
    """Return what LDTILECFG reads: palette 1, then each register's bytes a row, then its rows.

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
