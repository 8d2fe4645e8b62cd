# SPDX-License-Identifier: Apache-2.0
"""The fixed-point arithmetic of TFLite's quantised kernels; the device's half is quantize.clh."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


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


def rounding_doubling_high_mul(a: int, b: int) -> int:
    """Return a * b / 2**31, rounded half up, as int32.

    Source: gemmlowp fixedpoint.h SaturatingRoundingDoublingHighMul, whose nudge by sign and
    truncation toward zero come to this floor
    """
    return min((a * b + (1 << 30)) >> 31, (1 << 31) - 1)


def rounding_divide_by_pot(value: int, exponent: int) -> int:
    """Return value / 2**exponent, ties away from zero.

    Source: gemmlowp fixedpoint.h RoundingDivideByPOT
    """
    remainder = value & ((1 << exponent) - 1)
    threshold = (((1 << exponent) - 1) >> 1) + (value < 0)
    return (value >> exponent) + (remainder > threshold)


def multiply_by_quantized_multiplier(value: int, multiplier: int, shift: int) -> int:
    """Scale one int32 as TFLite does, with its two roundings.

    Source: tflite/kernels/internal/common.cc MultiplyByQuantizedMultiplier (double rounding)
    """
    shifted = _wrap_int32(value << max(shift, 0))
    return rounding_divide_by_pot(rounding_doubling_high_mul(shifted, multiplier), max(-shift, 0))


def multiply_by_quantized_multiplier_once(value: int, multiplier: int, shift: int) -> int:
    """Scale one int32 with a single rounding, ties away from zero."""
    total = 31 - shift
    size = (abs(value) * multiplier + (1 << (total - 1))) >> total
    return size if value >= 0 else -size


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


def _wrap_int32(value: int) -> int:
    return ((value + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


def wrap_int32(values: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the low 32 bits, as the reference's int32 accumulators wrap."""
    return values.astype(np.int64).astype(np.uint64).astype(np.uint32).view(np.int32)
