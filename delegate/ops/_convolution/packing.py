# SPDX-License-Identifier: Apache-2.0
"""Weights and zero points as several convolution kernels read them; the plain launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from delegate.launch import Alternative, Constant, Params
from delegate.ops._convolution.channel_rows import fixed_rows
from delegate.ops._convolution.records import Convolution, Quant8Convolution
from delegate.ops._launches.tiles import launch_over, one_each
from delegate.ops._numbers import ceil_div


def as_stored(weights: NDArray[np.generic]) -> Constant:
    """The weights byte by byte as the record has them."""
    return Constant(weights.nbytes, lambda: weights)


def int16_pairs(
    conv: Convolution, centred: Callable[[], NDArray[np.integer]], block: int
) -> Constant:
    """Weights of 16 bits in pairs along the input channel, which two multiplications take.

    `centred`: the weights less their zero point; `block`: channels a work-item. The last block
    ends with the last channel, as in the kernels. An odd last weight is paired with 0.

    Shapes:
        (out_c, taps, in_c) -> (blocks, taps, pairs, block, 2)
    """
    out_c, taps, in_c = conv.weights.shape
    blocks, pairs = ceil_div(out_c, block), ceil_div(in_c, 2)

    def pack() -> NDArray[np.int16]:
        starts = np.minimum(np.arange(blocks) * block, out_c - block)
        rows = (starts[:, None] + np.arange(block)).ravel()
        padded = np.zeros((blocks * block, taps, 2 * pairs), np.int16)
        padded[:, :, :in_c] = centred()[rows]
        return np.ascontiguousarray(
            padded.reshape(blocks, block, taps, pairs, 2).transpose(0, 2, 3, 1, 4)
        )

    return Constant(4 * blocks * block * taps * pairs, pack)


def zeros(count: int) -> Constant:
    """Return `count` floats of zero, and room for one vector more."""
    return Constant(4 * (count + 16), lambda: np.zeros(count + 16, np.float32))


def packed(values: NDArray[np.float32], lanes: int, vectors: int = 1) -> NDArray[np.float32]:
    """Return (out_c, taps, in_c) weights in the order a block of channels reads them.

    Shapes:
        -> (blocks, taps, in_c, vectors * lanes); vectors that would pass the last channel end
        with it
    """
    out_c, taps, in_c = values.shape
    blocks = ceil_div(out_c, lanes * vectors)
    starts = np.minimum(np.arange(blocks * vectors) * lanes, out_c - lanes)
    rows = values[starts[:, None] + np.arange(lanes)].reshape(blocks, -1, taps, in_c)
    return np.ascontiguousarray(rows.transpose(0, 2, 3, 1))


def zeros_row(channels: int, zero_point: int, dtype: str) -> Constant:
    """A pixel of zero points, which out-of-bounds taps read, and room for one vector more."""
    return Constant(channels + 16, lambda: np.full(channels + 16, zero_point, dtype))


def four_zeros(zero_point: int, dtype: str) -> int:
    """Four zero points of one byte each as the bytes of an int32."""
    return int(np.full(4, zero_point, dtype).view(np.int32)[0])


def plain(
    conv: Convolution,
    file: str,
    kernel: str,
    weights: NDArray[np.generic],
    own: Mapping[str, int] | None = None,
    defines: Mapping[str, int | str] | None = None,
) -> Alternative:
    """Return the launch of one work-item an output element; `own`: its op's fields."""
    fields: Params = {"weights": as_stored(weights)}
    if isinstance(conv, Quant8Convolution):
        fields["channels"] = fixed_rows(lambda: conv.bias, conv.scaling)
        fields |= {"input_zero": conv.input_zero, "weight_zero": conv.weight_zero}
    fields |= {**(own or {}), "elements": conv.elements}
    tiling = one_each(conv.elements)
    launch = launch_over(file, kernel, tiling, conv.params() | fields, defines)
    return Alternative("plain", (launch,))
