# SPDX-License-Identifier: Apache-2.0
"""Packed weights, zero points and channel constants of convolution kernels.

The constants of an output channel are its bias and the numbers that requantise its sums: a
fixed-point multiplier and shift, or, where the host has proven a float multiply-add to be equal,
its factor and offset. Kernels distinguish them by the shift as an int: a shift is at most 30, the
bits of an offset are larger. Layouts differ in how many channels share one of the two.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.graph.ir import Tensor
from delegate.launch import Alternative, Constant, Params
from delegate.ops._convolution.records import Convolution, Quant8Convolution
from delegate.ops._launches.tiles import launch_over, one_each
from delegate.ops._numbers import ceil_div, fixed_point
from delegate.ops._numbers.float_requantize import FloatRescale, float_rescale
from delegate.ops._numbers.order import in_blocks_of, transposed

# Marks fixed point, as FIXED in conv_2d_x86.clh; lower numbers mark floats with so many exceptions.
FIXED = 3

Blocked = Callable[[NDArray[Any]], NDArray[Any]]  # (channels,) -> (blocks, vectors, lanes)


def as_stored(weights: NDArray[np.generic]) -> Constant:
    """Return the weights as they are in the record."""
    return Constant(weights.nbytes, lambda: weights)


def int16_pairs(
    conv: Convolution, centred: Callable[[], NDArray[np.integer]], block: int
) -> Constant:
    """Return weights minus their zero point as int16, in pairs for dot products of two."""
    return in_steps_of((ceil_div(conv.in_c, 2), 2), conv, centred, block, "int16")


def in_steps_of(
    steps: tuple[int, int],
    conv: Convolution,
    weights: Callable[[], NDArray[Any]],
    block: int,
    dtype: str,
) -> Constant:
    """Return weights in steps along the input channels, interleaved by blocks of output channels.

    `steps`: their number, and the weights per step, padded with 0; for the last block see
    `in_blocks_of`.

    Shapes:
        (out_c, taps, in_c) -> (blocks, taps, steps[0], block, steps[1])
    """
    out_c, taps, in_c = conv.weights.shape
    shape = (ceil_div(out_c, block), block, taps, *steps)

    def pack() -> NDArray[Any]:
        values, padded_shape = weights(), (shape[0] * block, taps, math.prod(steps))
        if values.shape != padded_shape:
            padded = np.zeros(padded_shape, dtype)
            padded[:, :, :in_c] = values[in_blocks_of(block, out_c).ravel()]
            values = padded
        return transposed(values.astype(dtype, copy=False).reshape(shape), 0, 2, 3, 1)

    return Constant(math.prod(shape) * np.dtype(dtype).itemsize, pack)


def zeros(count: int) -> Constant:
    """Return `count` zero floats, plus one vector."""
    return Constant(4 * (count + 16), lambda: np.zeros(count + 16, np.float32))


def packed(values: NDArray[np.float32], lanes: int, vectors: int = 1) -> NDArray[np.float32]:
    """Return (out_c, taps, in_c) weights, interleaved by blocks of output channels.

    Shapes:
        -> (blocks, taps, in_c, vectors * lanes); the last vectors end with the last channel
    """
    out_c, taps, in_c = values.shape
    blocks = ceil_div(out_c, lanes * vectors)
    starts = np.minimum(np.arange(blocks * vectors) * lanes, out_c - lanes)
    rows = values[starts[:, None] + np.arange(lanes)].reshape(blocks, -1, taps, in_c)
    return np.ascontiguousarray(rows.transpose(0, 2, 3, 1))


def zeros_row(channels: int, zero_point: int, dtype: str) -> Constant:
    """Return a pixel of zero points for out-of-bounds taps, plus one vector."""
    return Constant(channels + 16, lambda: np.full(channels + 16, zero_point, dtype))


def four_zeros(zero_point: int, dtype: str) -> int:
    """Return four 8-bit zero points packed in an int32."""
    return int(np.full(4, zero_point, dtype).view(np.int32)[0])


def fallback(
    conv: Convolution,
    file: str,
    kernel: str,
    weights: NDArray[np.generic],
    extra: Mapping[str, int | Tensor] | Mapping[str, int] | None = None,
    defines: Mapping[str, int | str] | None = None,
) -> Alternative:
    """Return the fallback, with a work-item per output element; `extra`: the op's own fields."""
    fields: Params = {"weights": as_stored(weights)}
    if isinstance(conv, Quant8Convolution):
        bias = conv.bias
        fields["channels"] = fixed_rows(lambda: bias, conv.scaling)
        fields |= {"input_zero": conv.input_zero, "weight_zero": conv.weight_zero}
    fields |= {**(extra or {}), "elements": conv.elements}
    tiling = one_each(conv.elements)
    launch = launch_over(file, kernel, tiling, conv.params() | fields, defines)
    return Alternative("plain", (launch,))


def fixed_rows(bias: Callable[[], NDArray[np.int64]], scaling: NDArray[np.int32]) -> Constant:
    """Return each channel's bias, multiplier and shift.

    Shapes:
        three rows of int32
    """
    return Constant(
        12 * scaling.shape[1],
        lambda: np.concatenate([fixed_point.wrap_int32(bias())[None], scaling]),
    )


def alike_rows(
    conv: Quant8Convolution,
    bias: Callable[[], NDArray[np.int64]],
    uses_floats: bool,
    block: int,
) -> Constant:
    """Return rows as `fixed_rows`, or bias, float factor and offset if proven for all channels.

    The kernel's part is finish.clh. The rows of each block of channels are contiguous and aligned.

    Shapes:
        (blocks, 3 rows, block) of int32; the last block ends with the last channel
    """

    layer = conv.layer

    def pack() -> NDArray[np.int32]:
        scaling = layer.scaling
        if uses_floats:
            rescale = _rescale(layer, fused=False)
            if (rescale.exact & (rescale.offset > 0)).all():
                scaling = np.stack([rescale.factor, rescale.offset]).view(np.int32)
        rows = np.concatenate([fixed_point.wrap_int32(bias())[None], scaling])
        by_block = rows[:, in_blocks_of(block, layer.out_c)]
        return np.ascontiguousarray(by_block.transpose(1, 0, 2))

    return Constant(12 * ceil_div(conv.out_c, block) * block, pack)


def alike_by_eight_rows(conv: Quant8Convolution, padded_c: int) -> Constant:
    """Return the same, decided per 8 adjacent channels; rows are padded with zeros to `padded_c`.

    The kernel's part is requantize_word.clh.

    Shapes:
        three rows of padded_c int32
    """

    layer = conv.layer

    def pack() -> NDArray[np.int32]:
        out_c = layer.out_c
        fixed = np.zeros((3, padded_c), np.int32)
        fixed[0, :out_c] = fixed_point.wrap_int32(layer.folded_bias())
        fixed[1:, :out_c] = layer.scaling
        rescale = _rescale(layer)
        floats = fixed.copy()
        floats[1, :out_c] = rescale.factor.view(np.int32)
        floats[2, :out_c] = rescale.offset.view(np.int32)
        is_usable = np.ones(ceil_div(padded_c, 8) * 8, np.bool_)
        is_usable[:out_c] = rescale.exact & (rescale.offset > 0)
        is_float = is_usable.reshape(-1, 8).all(1).repeat(8)[:padded_c]
        return np.where(is_float, floats, fixed)

    return Constant(12 * padded_c, pack)


def vector_rows(conv: Quant8Convolution, input_zero: int, blocked: Blocked) -> NDArray[np.int32]:
    """Return each block's biases, both rows of its scaling, and which vectors use floats.

    `input_zero`: the inputs' zero point after the kernel's offset. The kernel's part is
    depthwise_conv_2d_x86.clh.

    Shapes:
        -> (blocks, 3 * vectors + 1, lanes)
    """
    rescale = _rescale(conv)
    is_float: NDArray[np.bool_] = np.all(blocked(rescale.exact), axis=2)
    bias = fixed_point.wrap_int32(conv.bias - input_zero * conv.weight_sums())
    blocks, vectors, lanes = blocked(bias).shape
    rows = np.zeros((blocks, vector_rows_a_block(vectors), lanes), np.int32)
    rows[:, :vectors] = blocked(bias)
    floats = (rescale.factor, rescale.offset)
    for row, (fixed, number) in enumerate(zip(conv.scaling, floats, strict=True), 1):
        rows[:, row * vectors : (row + 1) * vectors] = np.where(
            is_float[..., None], blocked(number.view(np.int32)), blocked(fixed)
        )
    rows[:, -1, :vectors] = is_float
    return rows


def vector_rows_a_block(vectors: int) -> int:
    """Return the number of vectors per block in `vector_rows`."""
    return 3 * vectors + 1


def exception_rows(
    conv: Quant8Convolution, least: int, centre: int | None, blocked: Blocked
) -> NDArray[np.int32]:
    """Return `vector_rows` with up to two sums per channel whose results are corrected.

    `least`: the lowest input after the kernel's offset; `centre`: see `float_rescale`. The kernel's
    part is conv_2d_x86.clh.

    Shapes:
        -> (blocks, 7 * vectors + 1, lanes)
    """
    total = conv.weight_sums()
    positive = np.maximum(conv.centred(), 0).sum((1, 2), dtype=np.int64)
    limits = np.iinfo(conv.weights.dtype.name)  # the same as of the inputs
    low, high = (int(limit) - conv.input_zero for limit in (limits.min, limits.max))
    sums = (
        conv.bias + positive * low + (total - positive) * high,
        conv.bias + positive * high + (total - positive) * low,
    )
    rescale = _rescale(conv, centre=centre, sums=sums, exceptions=2)
    bias = conv.bias - (conv.input_zero - least) * total
    corrections = (rescale.correction != 0).sum(0)
    modes = blocked(np.where(rescale.exact, corrections, FIXED)).max(2)
    floats = [bias + rescale.added, rescale.factor, rescale.offset]
    for exception, correction in zip(rescale.exception, rescale.correction, strict=True):
        floats += [exception, correction]
    blocks, vectors, lanes = blocked(bias).shape
    rows = np.zeros((blocks, exception_rows_a_block(vectors), lanes), np.int32)
    is_fixed = (modes == FIXED)[:, :, None]
    for row, number in enumerate(floats):
        fixed = (bias, *conv.scaling)[row] if row < 3 else number
        rows[:, row * vectors : (row + 1) * vectors] = np.where(
            is_fixed, blocked(_int32(fixed)), blocked(_int32(number))
        )
    rows[:, -1, :vectors] = modes
    rows[:, -1, vectors] = modes.max(1)
    return rows


def exception_rows_a_block(vectors: int) -> int:
    """Return the number of vectors per block in `exception_rows`."""
    return 7 * vectors + 1


def _rescale(
    conv: Quant8Convolution,
    sums: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    **options: Any,
) -> FloatRescale:
    rows = None if sums is None else np.array(sums, np.int64).tobytes()
    named = {**options, "single_rounding": conv.single_rounding}
    return _rescale_of(conv.scaling.tobytes(), conv.output_zero, conv.clamp, rows, *named.items())


@functools.lru_cache(256)
def _rescale_of(
    scaling: bytes,
    zero_point: int,
    clamp: tuple[int, int],
    sums: bytes | None,
    *options: tuple[str, Any],
) -> FloatRescale:
    """Search once for all shapes of a layer: it takes longer than packing the weights."""
    numbers = np.frombuffer(scaling, np.int32).reshape(2, -1)
    rows = None if sums is None else np.frombuffer(sums, np.int64).reshape(2, -1)
    sum_range = None if rows is None else (rows[0], rows[1])
    return float_rescale(numbers, zero_point, clamp, sums=sum_range, **dict(options))


def _int32(values: NDArray[Any]) -> NDArray[np.int32]:
    bits = values.view(np.int32) if values.dtype == np.float32 else fixed_point.wrap_int32(values)
    return bits.astype(np.int32)
