# SPDX-License-Identifier: Apache-2.0
"""Weights of a CONV_2D as conv_2d_mma.cl reads them, and where the bytes of a window lie."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from delegate.launch import Constant
from delegate.ops._convolution.records import Convolution
from delegate.ops._numbers import ceil_div, fixed_point
from delegate.ops._numbers.order import transposed

CHUNK = 16  # bytes of a pixel that a lane takes a step
LANES_A_PIXEL = 4
FAR = -(2**30)  # a row that is out of bounds from any window


def rows_of(conv: Convolution) -> tuple[int, int]:
    """Return how many runs of neighbouring bytes a window has, and the bytes of one."""
    rows = conv.area.kernel_h if conv.area.dilation_w == 1 else conv.taps
    return rows, conv.taps // rows * conv.in_c


def packed_weights(conv: Convolution, c_blocks: int, padded_c: int, steps: int) -> Constant:
    """Return the weights as stored, padded with zeros, in the order in which warps load them."""
    out_c = conv.out_c
    rows, row_bytes = rows_of(conv)
    chunks, weights = ceil_div(row_bytes, CHUNK), conv.weights

    def pack() -> NDArray[np.generic]:
        padded = np.zeros((padded_c, steps * LANES_A_PIXEL * CHUNK), weights.dtype)
        spread = np.zeros((out_c, rows, chunks * CHUNK), weights.dtype)
        spread[:, :, :row_bytes] = weights.reshape(out_c, rows, row_bytes)
        padded[:out_c, : rows * chunks * CHUNK] = spread.reshape(out_c, -1)
        # A warp's lanes are 8 rows of 4 columns. Channels: warp's block, row, 16 channels, half;
        # terms: step, column, pair, word of the pair, byte.
        split = padded.reshape(-1, 8, c_blocks, 2, steps, LANES_A_PIXEL, 2, 2, 4)
        return transposed(split, 0, 4, 2, 6, 1, 5, 7, 3)

    return Constant(padded_c * steps * LANES_A_PIXEL * CHUNK, pack)


def chunk_table(conv: Convolution, steps: int) -> Constant:
    """Return each chunk's row, byte and length in a window, then a one for each of its terms."""
    area = conv.area
    rows, row_bytes = rows_of(conv)
    entries = steps * LANES_A_PIXEL

    def pack() -> NDArray[np.int32]:
        table = np.zeros((entries, 8), np.int32)
        table[:, 0] = FAR
        row, byte = (
            axis.ravel()
            for axis in np.meshgrid(np.arange(rows), np.arange(0, row_bytes, CHUNK), indexing="ij")
        )
        y, x = row // (rows // area.kernel_h), row % (rows // area.kernel_h)
        length = np.minimum(CHUNK, row_bytes - byte)
        used = table[: row.size]
        used[:, 0] = y * area.dilation_h
        used[:, 1] = fixed_point.wrap_int32(x.astype(np.int64) * area.dilation_w * conv.in_c + byte)
        used[:, 2] = length
        ones = (np.arange(CHUNK) < length[:, None]).astype(np.uint8)
        used[:, 4:] = ones.view(np.int32)
        return table

    return Constant(32 * entries, pack)
