# SPDX-License-Identifier: Apache-2.0
"""Weights of an 8-bit CONV_2D as the kernels that share conv_2d_x86.clh read them.

A window is rows of values, each row padded with zeros to whole steps of 4 bytes. A block is a few
vectors of channels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from delegate.launch import Constant, Params
from delegate.ops._convolution.panels import Layout, by_steps, in_steps, packed_bytes
from delegate.ops._convolution.records import Quant8Convolution
from delegate.ops._numbers.int8_pairs import most_extras, part


def int8_weights(
    conv: Quant8Convolution, layout: Layout, *, takes_int8: bool = False, is_tiled: bool = False
) -> Params | None:
    """Return int8 weights and their correction; None if they do not fit.

    The zero point is subtracted if the differences fit int8. Otherwise the kernel makes up for it
    with each window's sum. `takes_int8`: for inputs read as int8; weights are 128 more then, which
    is uint8. `is_tiled`: for tile registers, which take 16 steps of a vector at once, their rows
    64 * vectors bytes apart.

    Shapes:
        weights (blocks, steps, vectors, lanes, 4): a step's 4 of each channel side by side; 0 in
        padding
        ramp (2 * 64,), or of tiles (steps, lanes, 4): the correction for any 16 channels; 0 in
        padding
    """
    zero = conv.weight_zero
    fits = int(conv.weights.min()) - zero >= -128 and int(conv.weights.max()) - zero <= 127
    if not fits and conv.source.dtype != "uint8":
        return None
    taken = zero if fits else 128
    kind, moved = (np.uint8, 128) if takes_int8 else (np.int8, 0)
    correction = zero - taken + moved
    layer = conv.layer

    def pack() -> NDArray[np.int32]:
        values = (layer.weights.astype(np.int16) - (taken - moved)).astype(kind)
        return by_steps(in_steps(values, layout).view(np.int32), layout)

    def ramp() -> NDArray[np.int8]:
        if not is_tiled:
            return np.repeat(np.array([correction, 0], np.int16).astype(np.int8), 64)
        window = np.full((1, layer.taps, layer.in_c), correction, np.int8)
        return np.repeat(in_steps(window, layout)[0, :, None], layout.lanes, 1)

    return {
        "weights": Constant(packed_bytes(conv, layout), pack),
        "ramp": Constant(4 * layout.lanes * layout.steps if is_tiled else 128, ramp),
        "is_corrected": int(correction != 0),
    }


def int16_weights(conv: Quant8Convolution, layout: Layout) -> Params:
    """Return centred weights as int16.

    Shapes:
        weights (blocks, steps, vectors, lanes, 2)
    """

    layer = conv.layer

    def pack() -> NDArray[np.int32]:
        return by_steps(in_steps(layer.centred(), layout).view(np.int32), layout)

    return {"weights": Constant(packed_bytes(conv, layout), pack)}


def split_weights(conv: Quant8Convolution, layout: Layout) -> Params | None:
    """Return centred weights, split so that 16-bit sums of products cannot overflow.

    None if that takes too many extra steps. One constant has the steps in groups, then the extra
    steps, then a table of ints. For each block the table has its steps per group and its first
    extra step, then the end of the last block's extra steps, then for each extra step the step and
    the row that it adds to.
    """

    layer = conv.layer

    def weights() -> NDArray[np.int16]:
        return by_steps(in_steps(layer.centred(), layout), layout)

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
