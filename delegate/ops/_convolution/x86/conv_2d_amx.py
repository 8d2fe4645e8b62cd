# SPDX-License-Identifier: Apache-2.0
"""CONV_2D, 8 bit, by AMX: x86's tile registers, where they were proven.

The kernel is conv_2d_amx.cl. Its requantisation is VNNI's, so it needs that, too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from delegate.launch import Alternative, Constant, Params
from delegate.ops._convolution.panels import PANEL_BYTES, Layout, panel_pitch
from delegate.ops._convolution.records import Quant8Convolution
from delegate.ops._convolution.x86.conv_2d import block_launch
from delegate.ops._convolution.x86.conv_2d_weights import vnni_weights
from delegate.ops._numbers import ceil_div
from delegate.target import Target

_ROWS, _ROW_BYTES = 16, 64  # of a tile register, at most
_REGISTERS, _VECTORS = 2, 2  # of a block: registers with pixels, vectors of 16 channels


def alternatives(conv: Quant8Convolution, target: Target) -> tuple[Alternative, ...]:
    """Return its launch; none where AMX is not proven or not expected to be the fastest."""
    if target.group_items != 1 or not {"amx", "vnni"} <= target.isa:
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
    launch = block_launch(conv, target, "amx", tile_w, layout, packed | fields, 0, {})
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
