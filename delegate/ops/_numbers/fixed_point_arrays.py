# SPDX-License-Identifier: Apache-2.0
"""TFLite's fixed-point functions on whole arrays, for tables of every input. Lowers nothing.

Arrays are int64 and hold what the reference has in int32 or int16; see _quantize.py for scalars.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from delegate.graph.ir import Tensor
from delegate.ops._numbers.fixed_point import (
    multiply_by_quantized_multiplier,
    rounding_divide_by_pot,
    rounding_doubling_high_mul,
    wrap_int32,
)

Integers = NDArray[np.int64]

# Integer bits of the scaled distance that exp() takes, of 31. Source: reference/softmax.h
DISTANCE_BITS = 5


def high_mul(a: Integers, b: Integers | int, bits: int = 32) -> Integers:
    """Return a * b / 2**(bits - 1), rounded half up, saturated.

    Source: gemmlowp fixedpoint.h SaturatingRoundingDoublingHighMul; for 16 bits it truncates the
    nudged product toward zero, which comes to the same
    """
    product: Integers = (a * b + (1 << (bits - 2))) >> (bits - 1)
    return np.minimum(product, (1 << (bits - 1)) - 1)


def divide_by_pot(values: Integers, exponent: int) -> Integers:
    """Return values / 2**exponent, ties away from zero.

    Source: gemmlowp fixedpoint.h RoundingDivideByPOT
    """
    mask = (1 << exponent) - 1
    threshold = (mask >> 1) + (values < 0)
    return (values >> exponent) + ((values & mask) > threshold)


def rescale(values: Integers, multiplier: int, shift: int) -> Integers:
    """Scale int32 values as TFLite does, with its two roundings.

    Source: tflite/kernels/internal/common.cc MultiplyByQuantizedMultiplier
    """
    shifted = wrap_int32(values << max(shift, 0)).astype(np.int64)
    return divide_by_pot(high_mul(shifted, multiplier), max(-shift, 0))


def clamped(values: Integers, result: Tensor) -> Integers:
    """Return the values within the range of the result's type."""
    limits = np.iinfo(result.dtype)
    return np.clip(values, int(limits.min), int(limits.max))


def inverse_root(value: int) -> int:
    """Return 1 / sqrt(value) in 20 fractional bits, of a value from 1 to 65,535.

    Source: tflite/kernels/internal/quantization_util.cc GetInvSqrtQuantizedMultiplierExp; of 1 it
    is all ones, else five Newton steps with 3 integer bits from 1; and elementwise.cc
    """
    if value == 1:
        return multiply_by_quantized_multiplier(1, (1 << 31) - 1, 20)
    multiply, divide = rounding_doubling_high_mul, rounding_divide_by_pot
    pairs = (31 - value.bit_length()) // 2 - 1
    half_input = divide(value << 2 * pairs >> 1, 1)
    x = 1 << 28
    for _ in range(5):
        cube = multiply(multiply(x, x), x) << 6
        x = (multiply((1 << 28) + (1 << 27), x) - multiply(half_input, cube)) << 3
    x = multiply(x, 1518500250)  # sqrt(1/2)
    shift = 11 - pairs
    return multiply_by_quantized_multiplier(1, x << max(-shift, 0), 20 - max(shift, 0))


def exp_on_negative_values(a: int) -> int:
    """Return exp(a), a <= 0 with 5 integer bits, in 31 fractional bits.

    Source: gemmlowp fixedpoint.h exp_on_negative_values and
    exp_on_interval_between_negative_one_quarter_and_0_excl, with their constants
    """
    if a == 0:
        return (1 << 31) - 1
    multiply, divide = rounding_doubling_high_mul, rounding_divide_by_pot
    quarter = 1 << (31 - DISTANCE_BITS - 2)
    below_quarter = (a & (quarter - 1)) - quarter
    # Taylor's series around -1/8.
    x = (below_quarter << DISTANCE_BITS) + (1 << 28)
    x2 = multiply(x, x)
    x3, x4 = multiply(x2, x), multiply(x2, x2)
    tail = divide(multiply(divide(x4, 2) + x3, 715827883) + x2, 1)  # 1/3
    result = 1895147668 + multiply(1895147668, x + tail)  # exp(-1/8)
    # exp(-1/4), exp(-1/2), exp(-1), ... for each bit of what is left.
    factors = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
    for bit, factor in enumerate(factors):
        if (below_quarter - a) & (quarter << bit):
            result = multiply(result, factor)
    return result
