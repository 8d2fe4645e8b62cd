# SPDX-License-Identifier: Apache-2.0
"""Weights of a CONV_2D as conv_2d_vnni.cl and conv_2d_avx2.cl read them.

A window is rows of values, each row filled with zeros up to whole steps of 4 bytes. A block is a
few vectors of channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.launch import Constant, Params
from delegate.ops._convolution.records import Quant8Convolution
from delegate.ops._numbers.int8_pairs import most_extras, part
from delegate.ops._numbers.integers import ceil_div


@dataclass(frozen=True, slots=True)
class Layout:
    """How weights lie: blocks of channels, and rows of a window in steps of 4 bytes."""

    lanes: int  # channels a vector
    vectors: int  # a block
    values: int  # a step: 4 bytes, or 2 numbers of 16 bits
    rows: int  # of neighbouring values a window has
    row_steps: int

    @property
    def channels(self) -> int:
        """Channels of a block."""
        return self.vectors * self.lanes

    @property
    def steps(self) -> int:
        """Steps of a window."""
        return self.rows * self.row_steps


def blocked(values: NDArray[Any], lanes: int, vectors: int) -> NDArray[Any]:
    """Pad channels, the first axis, to whole blocks, in the order of the vectors' lanes.

    Packing takes 4 lanes of each vector in turn, so these are neighbouring channels.

    Shapes:
        (channels, ...) -> (blocks, vectors, lanes, ...)
    """
    block = vectors * lanes
    blocks = ceil_div(values.shape[0], block)
    padded = np.zeros((blocks * block, *values.shape[1:]), values.dtype)
    padded[: values.shape[0]] = values
    quads = padded.reshape(blocks, lanes // 4, vectors, 4, *values.shape[1:])
    ordered: NDArray[Any] = quads.swapaxes(1, 2).reshape(blocks, vectors, lanes, *values.shape[1:])
    return ordered


def vnni_weights(conv: Quant8Convolution, layout: Layout) -> Params | None:
    """Return int8 weights, and what corrects them; None where they do not fit.

    Shapes:
        weights (blocks, steps, vectors, lanes, 4): a step's 4 of each channel side by side
    """
    taken = _taken(conv)
    if taken is None:
        return None
    correction = conv.weight_zero - taken
    return {
        "weights": _int8_weights(conv, taken, layout),
        "ramp": Constant(128, lambda: np.repeat(np.array([correction, 0], np.int8), 64)),
        "is_corrected": int(correction != 0),
    }


def signed_vnni_weights(conv: Quant8Convolution, layout: Layout) -> Params | None:
    """Return the same for inputs taken as int8: weights are 128 more, so that they are uint8.

    Shapes:
        weights (blocks, steps, vectors, lanes, 4); 0 in padding
    """
    taken = _taken(conv)
    if taken is None:
        return None

    def pack() -> NDArray[np.int32]:
        values = (conv.weights.astype(np.int16) - (taken - 128)).astype(np.uint8)
        return _by_steps(_in_steps(values, layout).view(np.int32), layout)

    return {
        "weights": Constant(_packed_bytes(conv, layout), pack),
        "ramp": Constant(128, lambda: np.repeat(np.array([128, 0], np.uint8), 64)),
        "is_corrected": 1,
    }


def amx_weights(conv: Quant8Convolution, layout: Layout) -> Params | None:
    """Return the same for tiles: 16 steps of a vector are one, its rows 64 * vectors bytes apart.

    Shapes:
        ramp (steps, lanes, 4): what corrects weights, for any 16 channels; 0 in padding
    """
    taken = _taken(conv)
    if taken is None:
        return None
    correction = conv.weight_zero - taken

    def ramp() -> NDArray[np.int8]:
        window = np.full((1, conv.taps, conv.in_c), correction, np.int8)
        return np.repeat(_in_steps(window, layout)[0, :, None], layout.lanes, 1)

    return {
        "weights": _int8_weights(conv, taken, layout),
        "ramp": Constant(4 * layout.lanes * layout.steps, ramp),
        "is_corrected": int(correction != 0),
    }


def _taken(conv: Quant8Convolution) -> int | None:
    """Return what weights are taken less, so that they are int8; None where they do not fit.

    It is not their zero point where the kernel has to correct the difference by each window's sum.
    """
    low, high = int(conv.weights.min()), int(conv.weights.max())
    if low - conv.weight_zero >= -128 and high - conv.weight_zero <= 127:
        return conv.weight_zero
    return 128 if conv.source.dtype == "uint8" else None


def _int8_weights(conv: Quant8Convolution, taken: int, layout: Layout) -> Constant:
    def pack() -> NDArray[np.int32]:
        values = (conv.weights.astype(np.int16) - taken).astype(np.int8)
        return _by_steps(_in_steps(values, layout).view(np.int32), layout)

    return Constant(_packed_bytes(conv, layout), pack)


def avx2_weights(conv: Quant8Convolution, layout: Layout) -> Params:
    """Return centred weights as int16.

    Shapes:
        weights (blocks, steps, vectors, lanes, 2)
    """

    def pack() -> NDArray[np.int32]:
        return _by_steps(_in_steps(conv.centred(), layout).view(np.int32), layout)

    return {"weights": Constant(_packed_bytes(conv, layout), pack)}


def avx2_pairs_weights(conv: Quant8Convolution, layout: Layout) -> Params | None:
    """Return centred weights, parted so that 16-bit sums of them cannot overflow.

    None where that takes too many extra steps. One constant has the steps in groups, then the extra
    steps, then a table of ints. The table has for each block its steps a group and its first extra
    step, then the end of the last block's extra steps, then for each extra step the step and the
    row that it adds to.
    """

    def weights() -> NDArray[np.int16]:
        return _by_steps(_in_steps(conv.centred(), layout), layout)

    values = weights()
    blocks, steps, lanes, _ = values.shape
    most = most_extras(values)
    if most is None:
        return None
    extra_at = 4 * blocks * steps * lanes
    table_at = extra_at + 4 * most * lanes
    steps_at = table_at + 8 * (blocks + 1)
    size = steps_at + 8 * most

    def pack() -> NDArray[np.uint8]:
        parted = part(weights(), layout.rows)
        packed = np.zeros(size, np.uint8)
        table = np.zeros((blocks + 1, 2), np.int32)
        table[:-1, 0], table[:, 1] = parted.group, parted.first
        step_and_row = np.stack([parted.step, parted.step // layout.row_steps], 1)
        for at, values in (
            (0, parted.grouped),
            (extra_at, parted.extra),
            (table_at, table),
            (steps_at, step_and_row.astype(np.int32)),
        ):
            data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
            packed[at : at + data.size] = data
        return packed

    return {
        "weights": Constant(size, pack),
        "extra_at": extra_at,
        "table_at": table_at,
        "steps_at": steps_at,
    }


def _packed_bytes(conv: Quant8Convolution, layout: Layout) -> int:
    return 4 * ceil_div(conv.out_c, layout.channels) * layout.steps * layout.channels


def _in_steps(values: NDArray[Any], layout: Layout) -> NDArray[Any]:
    """Fill a window's rows up to whole steps.

    Shapes:
        (channels, ...) -> (channels, steps, values of a step)
    """
    filled = np.zeros((len(values), layout.rows, layout.values * layout.row_steps), values.dtype)
    by_row = values.reshape(len(values), layout.rows, -1)
    filled[:, :, : by_row.shape[2]] = by_row
    return filled.reshape(len(values), layout.steps, layout.values)


def _by_steps(values: NDArray[Any], layout: Layout) -> NDArray[Any]:
    """Put a step's values of all channels of a block side by side.

    Shapes:
        (channels, steps, ...) -> (blocks, steps, channels of a block, ...)
    """
    by_lane = blocked(values, layout.lanes, layout.vectors)
    of_block = by_lane.reshape(len(by_lane), -1, *by_lane.shape[3:])
    return np.ascontiguousarray(of_block.swapaxes(1, 2))
