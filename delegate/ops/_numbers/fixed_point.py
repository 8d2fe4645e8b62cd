# SPDX-License-Identifier: Apache-2.0
"""The fixed-point arithmetic of TFLite's quantised kernels; the device's half is quantize.clh.

Arrays are int64 and hold the numbers that the reference has in int32 or int16.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

# Integer bits of the scaled distance that exp() takes, of 31. Source: reference/softmax.h
DISTANCE_BITS = 5
ONE = 1 << 16  # a share of one in the table of sigmoids
_ENTRIES = 256


@lru_cache(1 << 16)  # another shape has the same scales
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

    Source: gemmlowp fixedpoint.h SaturatingRoundingDoublingHighMul, whose nudge by sign and
    truncation toward zero come to this floor
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
    sizes = (np.abs(numbers) * multiplier + (1 << (total - 1))) >> total
    return np.where(numbers >= 0, sizes, -sizes)


def inverse_root(values: Integers) -> Integers:
    """Return 1 / sqrt(values) in 20 fractional bits, of values from 1 to 65,535.

    Source: tflite/kernels/internal/quantization_util.cc GetInvSqrtQuantizedMultiplierExp; of 1 it
    is all ones, else five Newton steps with 3 integer bits from 1; and elementwise.cc
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
    """Return the greatest distance that, shifted, stays within the integer bits of exp()."""
    return ((1 << DISTANCE_BITS) - 1 << (31 - DISTANCE_BITS)) >> left_shift


def exp_on_negative_values(a: Integers) -> Integers:
    """Return exp(a), a <= 0 with 5 integer bits, in 31 fractional bits.

    Source: gemmlowp fixedpoint.h exp_on_negative_values and
    exp_on_interval_between_negative_one_quarter_and_0_excl, with their constants
    """
    multiply, divide = rounding_doubling_high_mul, rounding_divide_by_pot
    quarter = 1 << (31 - DISTANCE_BITS - 2)
    below_quarter = (a & (quarter - 1)) - quarter
    # Taylor's series around -1/8.
    x = (below_quarter << DISTANCE_BITS) + (1 << 28)
    x2 = multiply(x, x)
    x3, x4 = multiply(x2, x), multiply(x2, x2)
    tail = divide(multiply(divide(x4, 2) + x3, 715827883) + x2, 1)  # 1/3
    result = 1895147668 + multiply(x + tail, 1895147668)  # exp(-1/8)
    # exp(-1/4), exp(-1/2), exp(-1), ... for each bit of what is left.
    factors = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
    for bit, factor in enumerate(factors):
        has_bit = ((below_quarter - a) & (quarter << bit)) != 0
        result = np.where(has_bit, multiply(result, factor), result)
    return np.where(a == 0, (1 << 31) - 1, result)


def clamped(values: NDArray[Any], dtype: str) -> Integers:
    """Return the values within the range of an integer type."""
    limits = np.iinfo(dtype)
    return np.clip(values.astype(np.int64), int(limits.min), int(limits.max))


def exact_multipliers(
    reals: NDArray[np.float64], largest: int
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return (multiplier, shift) that give round(value * real) for |value| <= largest.

    round() is C's, ties away from zero, of a double product; equal means up to 255, beyond which
    every 8-bit result is clamped. Each answer begins at some value, which confines the multiplier;
    of some ratios no multiplier of 31 bits fits all answers.

    Shapes:
        (n,) -> (2, n): multipliers, shifts; (n,): whether there is one
    """
    unique, inverse = np.unique(reals, return_inverse=True)
    pairs = np.array([quantize_multiplier(float(real)) for real in unique], np.int64)
    multiplier, shift = pairs.T
    never = largest * unique < 0.5  # then every result is 0
    found = (shift >= -28) & (largest * unique < 2**31) & ~never
    total = np.where(found, 31 - shift, 31)[:, None]
    real = unique[:, None]
    answers = np.arange(1, 256, dtype=np.int64)[None]
    # Answers that no sum has confine nothing, and might not fit 63 bits.
    answers = np.minimum(
        answers, np.where(found, largest * unique, 0)[:, None].astype(np.int64) + 1
    )

    def reaches(values: NDArray[np.int64]) -> NDArray[np.bool_]:
        product = values * real
        whole = np.floor(product)
        return np.asarray(whole + (product - whole >= 0.5) >= answers)

    with np.errstate(over="ignore"):
        begin = np.minimum((answers - 0.5) / real, largest + 1).astype(np.int64)
    while (early := (begin > 0) & reaches(begin - 1)).any():
        begin = begin - early
    while (late := (begin <= largest) & ~reaches(begin)).any():
        begin = begin + late
    edge = (answers << total) - (1 << (total - 1))
    is_met = begin <= largest
    least = np.where(is_met, -(-edge // np.maximum(begin, 1)), 0).max(1)
    most = np.where(begin > 1, (edge - 1) // np.maximum(begin - 1, 1), 2**31 - 1).min(1)
    most = np.minimum(most, 2**31 - 1)
    found &= least <= most
    exact = np.clip(multiplier, least, np.maximum(least, most))
    rows = np.stack([np.where(found, exact, 0), np.where(found, shift, 0)]).astype(np.int32)
    inverse = inverse.ravel()
    return rows[:, inverse], (found | never)[inverse]


def wrap_int32(values: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the low 32 bits, as the reference's int32 accumulators wrap."""
    return values.astype(np.int64).astype(np.uint64).astype(np.uint32).view(np.int32)


def sigmoid_scaling(scale: float, most_shift: int) -> tuple[int, int]:
    """Return the multiplier and the right shift that take int16 inputs to units of 1 / (3 * 4096).

    `most_shift`: up to which power of 2 times 1/4096 the scale's factor is exact.
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
    """Return int16 inputs in units of 1 / (3 * 4096), by the numbers of `sigmoid_scaling`."""
    rounding = 1 << (right - 1) if right > 0 else 0
    return (values * multiplier + rounding) >> right


@cache
def _sigmoids() -> Integers:
    # Straight lines between points of a curve that bends down lie below it, by up to step^2 / 8 of
    # how it bends; TFLite's entries are lifted by half of that.
    step = 1 / 24
    share = 1 / (1 + np.exp(-step * np.arange(_ENTRIES)))
    bend = share * (1 - share) * (2 * share - 1)
    entries: Integers = np.floor(ONE * (share + step**2 / 16 * bend) + 0.5).astype(np.int64)
    entries[-1] = ONE - 1  # the end, where all that follows is
    return entries


def interpolated_sigmoid(sizes: Integers, bits: int) -> Integers:
    """Return logistic(sizes) in `bits` more bits than `ONE` has; `bits` are between two entries.

    Source: tflite/kernels/internal/common.h sigmoid_table_uint16
    """
    place = np.minimum(sizes >> bits, _ENTRIES - 2)
    below, above = _sigmoids()[place], _sigmoids()[place + 1]
    between = (below << bits) + (sizes & ((1 << bits) - 1)) * (above - below)
    most = (0x7FFF << 10) if bits == 9 else (0xFFFF << 8)
    return np.where(sizes >> bits >= _ENTRIES - 1, most, between)
