# SPDX-License-Identifier: Apache-2.0
"""Requantisation of sums beyond 32 bits, for ops on int16.

The device's part is quantize_wide.clh.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.launch import Constant
from delegate.ops._checks import quantized
from delegate.ops._numbers import fixed_point
from delegate.target import Rules

# How sums are requantised: macros of wide.clh.
TWICE = "ROUNDING_TWICE"  # 32-bit sums, TFLite's two roundings
WIDE = "ROUNDING_WIDE"  # 64-bit sums and a 16-bit multiplier
DOUBLE = "ROUNDING_DOUBLE"  # round() of a product of doubles

TERMS_AN_INT = 511  # products of int16 and int8 are below 2^22, so this many fit an int
_LARGEST_BIAS = 1 << 46  # TFLite's 64-bit sums may have 48 bits
_LARGEST_SUM = 1 << 43  # that quantize_wide.clh multiplies with a double


@dataclass(frozen=True, slots=True, eq=False)
class WideSums:
    """Each output channel's bias and scaling, for 64-bit sums."""

    rounding: str  # TWICE, WIDE or DOUBLE
    bias: NDArray[np.int64]  # (channels,)
    scaling: NDArray[np.int32]  # (3, channels); the meaning of the rows depends on the rounding

    @property
    def defines(self) -> dict[str, int | str]:
        """The macros of wide.clh, except for LANES of vectors."""
        return {"ROUNDING": self.rounding}

    def rows(self) -> Constant:
        """Five rows of int32: the bias's low and high words, then the scaling."""

        def pack() -> NDArray[np.int32]:
            words = np.stack(
                [fixed_point.wrap_int32(self.bias), (self.bias >> 32).astype(np.int32)]
            )
            return np.concatenate([words, self.scaling])

        return Constant(20 * len(self.bias), pack)


def require_16x8(source: Tensor, weights: Tensor, result: Tensor) -> None:
    """Check the types of a node with int16 activations and int8 weights.

    Raises:
        Unsupported: other output or weight types, a zero point that is not 0.
    """
    if source.dtype != "int16" or result.dtype != "int16":
        raise Unsupported(f"{source.dtype} in, {result.dtype} out: both must be int16 or neither")
    if weights.dtype != "int8":
        raise Unsupported(f"{weights.dtype} weights with int16 activations: only int8")
    for tensor in (source, result):
        quantized.per_tensor(tensor, quantized.QUANT)


def wide_sums(
    source: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    result: Tensor,
    channel_axis: int,
    rules: Rules,
) -> WideSums:
    """Return the requantisation of a convolution of int16 x int8.

    Raises:
        Unsupported: a bias out of range, or one that this TFLite misreads; scales out of range.
    Source: tflite/kernels/conv.cc, depthwise_conv.cc, transpose_conv.cc
    """
    is_depthwise = channel_axis == 3
    values, is_int32 = wide_bias(bias, weights.shape[channel_axis], rules)
    # TFLite's depthwise sums are int64 in all versions, the other ones may be int32.
    is_int32 &= not (is_depthwise and bias is None)
    multipliers = [
        fixed_point.quantize_multiplier(real)
        for real in real_scales(source, weights, result, channel_axis)
    ]
    return fixed_sums(values, multipliers, is_int32)


def fixed_sums(
    bias: NDArray[np.int64], multipliers: list[tuple[int, int]], is_int32: bool
) -> WideSums:
    """Return the requantisation by fixed-point multipliers, (multiplier, shift) each.

    Raises:
        Unsupported: too large a left shift.
    """
    rounding, most = (TWICE, 30) if is_int32 else (WIDE, 7)
    for _multiplier, shift in multipliers:
        if shift > most:
            raise Unsupported(f"a scale ratio of 2^{shift}: more than 2^{most}")
    multiplier, shifts = np.array(multipliers, np.int64).T
    if rounding == WIDE:  # Source: tflite/kernels/internal/common.cc, the int64 overload
        multiplier = np.where(multiplier < 0x7FFF0000, (multiplier + 0x8000) >> 16, 0x7FFF)
    rows = np.stack([multiplier, shifts, np.zeros_like(shifts)]).astype(np.int32)
    return WideSums(rounding, bias, rows)


def double_sums(
    bias: NDArray[np.int64], reals: list[float], largest: NDArray[np.int64]
) -> WideSums:
    """Return the requantisation by doubles; `largest`: each channel's maximum magnitude.

    Raises:
        Unsupported: sums or results that exceed the kernels' words.
    """
    if largest.max() >= _LARGEST_SUM:
        raise Unsupported(f"sums up to {largest.max()}: beyond 43 bits")
    worst = int((largest * np.array(reals)).argmax())
    if int(largest[worst]) * reals[worst] >= 2**31:
        raise Unsupported(
            f"sums up to {largest[worst]} at a scale ratio of {reals[worst]:g}: beyond 32 bits"
        )
    rows = np.array([double_words(real) for real in reals], np.int64).T
    return WideSums(DOUBLE, bias, fixed_point.wrap_int32(rows))


def double_words(real: float) -> tuple[int, int, int]:
    """Return (top, bottom, t) with real = (top * 2^32 + bottom) / 2^t, in 53 bits.

    Numbers so small that every product rounds to 0 become 0.
    """
    fraction, exponent = math.frexp(real)
    t = 53 - exponent
    if t > 95:
        return 0, 0, 53
    mantissa = int(math.ldexp(fraction, 53))
    return mantissa >> 32, mantissa & 0xFFFFFFFF, t


def real_scales(source: Tensor, weights: Tensor, result: Tensor, channel_axis: int) -> list[float]:
    """Return each output channel's scale ratio as a double product.

    Raises:
        Unsupported: missing or invalid quantisation.
    """
    in_scale = quantized.per_tensor(source, quantized.QUANT)[0]
    out_scale = quantized.per_tensor(result, quantized.QUANT)[0]
    scales, zero_point = quantized.weight_scales(weights, channel_axis)
    if zero_point and source.dtype == "int16":
        raise Unsupported(f"int8 weights with zero point {zero_point}: it must be 0")
    return [in_scale * scale / out_scale for scale in scales]


def wide_bias(bias: Tensor | None, channels: int, rules: Rules) -> tuple[NDArray[np.int64], bool]:
    """Return the bias of an op on int16, and whether TFLite's sums are int32.

    Raises:
        Unsupported: a bias that is not constant, of another type or length, or too large.
    """
    if bias is None:
        return np.zeros(channels, np.int64), rules.int16_sums_of_int32
    if bias.dtype == "int32" and bias.data is not None and not rules.int16_sums_of_int32:
        raise Unsupported("an int32 bias with int16 activations: this TFLite reads it as int64")
    values = quantized.bias_of(bias, channels, ("int64", "int32")).astype(np.int64)
    if values.size and not -_LARGEST_BIAS < int(values.min()) <= int(values.max()) < _LARGEST_BIAS:
        raise Unsupported("the bias is beyond 46 bits")
    return values, bias.dtype == "int32"
