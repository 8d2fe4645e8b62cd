# SPDX-License-Identifier: Apache-2.0
"""The fixed-point arithmetic of TFLite's quantised kernels; the device's part is quantize.clh.

Arrays are int64 for numbers that are int32 or int16 in the reference kernels.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

# Integer bits, of 31, of the scaled distance passed to exp(). Source: reference/softmax.h
DISTANCE_BITS = 5
ONE = 1 << 16  # 1.0 in the sigmoid table
_ENTRIES = 256


@lru_cache(1 << 16)  # other shapes of a model have the same scales
def quantize_multiplier(real: float) -> tuple[int, int]:
    """Return (multiplier, shift) with real ~ multiplier * 2**(shift - 31).

    Units:
        multiplier: 0 or in [2**30, 2**31); shift: positive is to the left, in bits
    Source: tflite/kernels/internal/quantization_util.cc QuantizeMultiplier
    """
    if not real > 0 or math.isinf(real):
        return 0, 0
    fraction, shift = math.frexp(real)
    multiplier = math.floor(fraction * (1 << 31) + 0.5)
    if multiplier == 1 << 31:
        multiplier //= 2
        shift += 1
    return (0, 0) if shift < -31 else (multiplier, shift)


def rounding_doubling_high_mul(a: Integers | int, b: Integers | int, bits: int = 32) -> Integers:
    """Return a * b / 2**(bits - 1), rounded half up, saturated.

    Source: gemmlowp fixedpoint.h SaturatingRoundingDoublingHighMul, whose sign-dependent nudge and
    truncation toward zero equal this floor
    """
    product = (np.multiply(a, b, dtype=np.int64) + (1 << (bits - 2))) >> (bits - 1)
    saturated: Integers = np.minimum(product, (1 << (bits - 1)) - 1)
    return saturated


def rounding_divide_by_pot(values: Integers, exponent: int) -> Integers:
    """Return values / 2**exponent, ties away from zero.

    Source: gemmlowp fixedpoint.h RoundingDivideByPOT
    """
    mask = (1 << exponent) - 1
    threshold = (mask >> 1) + (values < 0)
    return (values >> exponent) + ((values & mask) > threshold)


def multiply_by_quantized_multiplier(
    values: Integers | int, multiplier: Integers | int, shift: int
) -> Integers:
    """Scale int32 values as TFLite does, with its two roundings.

    Source: tflite/kernels/internal/common.cc MultiplyByQuantizedMultiplier (double rounding)
    """
    shifted = wrap_int32(np.asarray(values, np.int64) << max(shift, 0)).astype(np.int64)
    return rounding_divide_by_pot(rounding_doubling_high_mul(shifted, multiplier), max(-shift, 0))


def multiply_by_quantized_multiplier_once(
    values: Integers | int, multiplier: int, shift: int
) -> Integers:
    """Scale int32 values with a single rounding, ties away from zero."""
    total = 31 - shift
    numbers = np.asarray(values, np.int64)
    magnitudes = (np.abs(numbers) * multiplier + (1 << (total - 1))) >> total
    return np.where(numbers >= 0, magnitudes, -magnitudes)


def inverse_root(values: Integers) -> Integers:
    """Return 1 / sqrt(values) with 20 fractional bits, for values from 1 to 65,535.

    Source: tflite/kernels/internal/quantization_util.cc GetInvSqrtQuantizedMultiplierExp: all ones
    for 1, else five Newton steps with 3 integer bits, starting at 1; elementwise.cc
    """
    multiply, divide = rounding_doubling_high_mul, rounding_divide_by_pot
    bit_length = np.frexp(values)[1].astype(np.int64)
    pairs = (31 - bit_length) // 2 - 1
    half_input = divide(values << 2 * pairs >> 1, 1)
    x = np.full(values.shape, 1 << 28)
    for _ in range(5):
        cube = multiply(multiply(x, x), x) << 6
        x = (multiply(x, (1 << 28) + (1 << 27)) - multiply(half_input, cube)) << 3
    x = multiply(x, 1518500250)  # sqrt(1/2)
    shift = 11 - pairs
    # x / 2^31 times a power of two
    scaled = (x << np.maximum(-shift, 0)) << (20 - np.maximum(shift, 0))
    rounded = (scaled + (1 << 30)) >> 31
    return np.where(values == 1, multiply_by_quantized_multiplier(1, (1 << 31) - 1, 20), rounded)


def farthest_distance(left_shift: int) -> int:
    """Return the largest distance that, after the shift, fits the integer bits of exp()."""
    return ((1 << DISTANCE_BITS) - 1 << (31 - DISTANCE_BITS)) >> left_shift


def exp_on_negative_values(a: Integers) -> Integers:
    """Return exp(a) with 31 fractional bits, for a <= 0 with 5 integer bits.

    Source: gemmlowp fixedpoint.h exp_on_negative_values and
    exp_on_interval_between_negative_one_quarter_and_0_excl, with their constants
    """
    multiply, divide = rounding_doubling_high_mul, rounding_divide_by_pot
    quarter = 1 << (31 - DISTANCE_BITS - 2)
    below_quarter = (a & (quarter - 1)) - quarter
    # Taylor series around -1/8.
    x = (below_quarter << DISTANCE_BITS) + (1 << 28)
    x2 = multiply(x, x)
    x3, x4 = multiply(x2, x), multiply(x2, x2)
    tail = divide(multiply(divide(x4, 2) + x3, 715827883) + x2, 1)  # 1/3
    result = 1895147668 + multiply(x + tail, 1895147668)  # exp(-1/8)
    # exp(-1/4), exp(-1/2), exp(-1), ... for each bit of the remainder.
    factors = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
    for bit, factor in enumerate(factors):
        has_bit = ((below_quarter - a) & (quarter << bit)) != 0
        result = np.where(has_bit, multiply(result, factor), result)
    return np.where(a == 0, (1 << 31) - 1, result)


def clamped(values: NDArray[Any], dtype: str) -> Integers:
    """Clamp values to the range of an integer type."""
    limits = np.iinfo(dtype)
    return np.clip(values.astype(np.int64), int(limits.min), int(limits.max))


def exact_multipliers(
    reals: NDArray[np.float64], largest: int
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return (multiplier, shift) that compute round(value * real) for |value| <= largest.

    round() is C's: ties away from zero, of a double product. Results are equal up to 255, where
    every 8-bit result is clamped. The first value of each result bounds the multiplier. For some
    ratios no 31-bit multiplier satisfies all bounds.

    Shapes:
        (n,) -> (2, n): multipliers, shifts; (n,): whether one exists
    """
    unique, inverse = np.unique(reals, return_inverse=True)
    initial = np.array([quantize_multiplier(float(real)) for real in unique], np.int64)
    multiplier, shift = initial.T
    is_zero = largest * unique < 0.5  # every result is 0
    is_exact = (shift >= -28) & (largest * unique < 2**31) & ~is_zero
    total = np.where(is_exact, 31 - shift, 31)[:, None]
    real = unique[:, None]
    results = np.arange(1, 256, dtype=np.int64)[None]
    # Results that no sum reaches bound nothing, and might overflow 63 bits.
    results = np.minimum(
        results, np.where(is_exact, largest * unique, 0)[:, None].astype(np.int64) + 1
    )

    def reaches(values: NDArray[np.int64]) -> NDArray[np.bool_]:
        product = values * real
        whole = np.floor(product)
        return np.asarray(whole + (product - whole >= 0.5) >= results)

    with np.errstate(over="ignore"):
        begin = np.minimum((results - 0.5) / real, largest + 1).astype(np.int64)
    while (early := (begin > 0) & reaches(begin - 1)).any():
        begin = begin - early
    while (late := (begin <= largest) & ~reaches(begin)).any():
        begin = begin + late
    edge = (results << total) - (1 << (total - 1))
    is_reached = begin <= largest
    lower = np.where(is_reached, -(-edge // np.maximum(begin, 1)), 0).max(1)
    upper = np.where(begin > 1, (edge - 1) // np.maximum(begin - 1, 1), 2**31 - 1).min(1)
    upper = np.minimum(upper, 2**31 - 1)
    is_exact &= lower <= upper
    chosen = np.clip(multiplier, lower, np.maximum(lower, upper))
    pairs = np.stack([np.where(is_exact, chosen, 0), np.where(is_exact, shift, 0)]).astype(np.int32)
    inverse = inverse.ravel()
    return pairs[:, inverse], (is_exact | is_zero)[inverse]


def wrap_int32(values: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the low 32 bits, like int32 accumulators that wrap."""
    return values.astype(np.int64).astype(np.uint64).astype(np.uint32).view(np.int32)


def sigmoid_scaling(scale: float, most_shift: int) -> tuple[int, int]:
    """Return the multiplier and right shift that convert int16 inputs to units of 1 / (3 * 4096).

    `most_shift`: scales of 2^n / 4096 are exact for n up to this.
    Source: tflite/kernels/internal/reference/integer_ops/logistic.h, tanh.h
    """
    power = round(math.log2(scale))
    shift = 12 + power
    if abs(math.log2(scale) - power) < 1e-3 and 0 <= shift <= most_shift:
        return 3 << shift, 0
    multiplier, right = scale * 4096.0 * 3.0, 0
    while multiplier <= 32767.0 / 2.0 and right <= 30:
        right += 1
        multiplier *= 2.0
    return int(multiplier), right


def sigmoid_scaled(values: Integers, multiplier: int, right: int) -> Integers:
    """Return int16 inputs in units of 1 / (3 * 4096); see `sigmoid_scaling`."""
    rounding = 1 << (right - 1) if right > 0 else 0
    return (values * multiplier + rounding) >> right


@cache
def _sigmoids() -> Integers:
    # Chords of a concave curve lie below it by up to step^2 / 8 of the curvature; TFLite raises the
    # entries by half of that.
    step = 1 / 24
    sigmoid = 1 / (1 + np.exp(-step * np.arange(_ENTRIES)))
    curvature = sigmoid * (1 - sigmoid) * (2 * sigmoid - 1)
    entries: Integers = np.floor(ONE * (sigmoid + step**2 / 16 * curvature) + 0.5).astype(np.int64)
    entries[-1] = ONE - 1  # also for all larger arguments
    return entries


def interpolated_sigmoid(magnitudes: Integers, bits: int) -> Integers:
    """Return logistic(magnitudes) with `bits` more bits than ONE; `bits` interpolate entries.

    Source: tflite/kernels/internal/common.h sigmoid_table_uint16
    """
    place = np.minimum(magnitudes >> bits, _ENTRIES - 2)
    below, above = _sigmoids()[place], _sigmoids()[place + 1]
    interpolated = (below << bits) + (magnitudes & ((1 << bits) - 1)) * (above - below)
    saturated = (0x7FFF << 10) if bits == 9 else (0xFFFF << 8)
    return np.where(magnitudes >> bits >= _ENTRIES - 1, saturated, interpolated)
