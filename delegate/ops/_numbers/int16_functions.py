# SPDX-License-Identifier: Apache-2.0
"""LOGISTIC and TANH of all int16 values, as in TFLite's integer LSTMs.

Source: gemmlowp fixedpoint.h logistic, tanh, exp_on_negative_values and
one_over_one_plus_x_for_x_in_0_1 of FixedPoint<int16_t, n>. "Qn" has n integer bits.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from delegate.ops._numbers.fixed_point import (
    Integers,
    rounding_divide_by_pot,
    rounding_doubling_high_mul,
)

_LOW, _HIGH = -(1 << 15), (1 << 15) - 1
# exp(-2^n) for n = -2, -1, ..., as 31-bit fractions.
_POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)


@cache
def logistic_table() -> NDArray[np.int16]:
    """Return 1 / (1 + exp(-x)) as Q0 for every x in Q3, in ascending order."""
    x = np.arange(_LOW, _HIGH + 1)
    positive = np.where(x > 0, x, _wrapped(-x))
    for_positive = _shifted(_reciprocal(_exp(_wrapped(-positive), 3)), 1)
    for_negative = _wrapped(_HIGH - for_positive)
    results = np.where(x > 0, for_positive, np.where(x < 0, for_negative, 1 << 14))
    return results.astype(np.int16)


@cache
def tanh_table(integer_bits: int) -> NDArray[np.int16]:
    """Return tanh(x) as Q0 for every x with so many integer bits, 0 to 6, in ascending order."""
    x = np.arange(_LOW, _HIGH + 1)
    negative = np.where(x < 0, x, _wrapped(-x))
    magnitude = _shifted(_wrapped(_reciprocal(_exp(negative, integer_bits + 1)) - (1 << 13)), 2)
    results = np.where(x > 0, magnitude, np.where(x < 0, _wrapped(-magnitude), 0))
    return results.astype(np.int16)


def _wrapped(values: Integers) -> Integers:
    return values.astype(np.int16).astype(np.int64)


def _product(a: Integers, b: Integers | int) -> Integers:
    return rounding_doubling_high_mul(a, b, 16)


def _shifted(values: Integers, exponent: int) -> Integers:
    """Return values * 2^exponent, rounded or saturated."""
    if exponent < 0:
        return rounding_divide_by_pot(values, -exponent)
    saturated: Integers = np.clip(values << exponent, _LOW, _HIGH)
    return saturated


def _to_16_bits(fraction: int) -> int:
    return int(rounding_divide_by_pot(np.array(fraction), 16))


def _exp(x: Integers, integer_bits: int) -> Integers:
    """Return exp(x), x <= 0, as Q0."""
    fraction_bits = 15 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    remainder = (x & (quarter - 1)) - quarter
    result = _exp_quarter(_wrapped(_shifted(remainder, integer_bits)))
    remaining = _wrapped(remainder - x)
    for exponent, power in enumerate(_POWERS, -2):
        if integer_bits > exponent:
            is_set = remaining & (1 << (fraction_bits + exponent))
            result = np.where(is_set, _product(result, _to_16_bits(power)), result)
    if integer_bits > 5:
        result = np.where(x < -(1 << (36 - integer_bits)) >> 16, 0, result)
    return np.where(x == 0, _HIGH, result)


def _exp_quarter(x: Integers) -> Integers:
    """Return exp(x) of Q0 values from -1/4 to 0, by the Taylor series around -1/8."""
    x = _wrapped(x + (1 << 12))
    square = _product(x, x)
    cube, fourth = _product(square, x), _product(square, square)
    third = _product(_wrapped(_shifted(fourth, -2) + cube), _to_16_bits(715827883))
    series = _shifted(_wrapped(third + square), -1)
    middle = _to_16_bits(1895147668)  # exp(-1/8)
    return np.clip(middle + _product(_wrapped(x + series), middle), _LOW, _HIGH)


def _reciprocal(x: Integers) -> Integers:
    """Return 2 / (1 + x) as Q2 of Q0 values from 0 to 1, by three Newton steps."""
    half = (x + _HIGH + 1) >> 1
    estimate = _wrapped(_to_16_bits(1515870810) + _product(half, _to_16_bits(-1010580540)))
    for _ in range(3):
        error = _wrapped((1 << 13) - _product(half, estimate))
        estimate = _wrapped(estimate + _shifted(_product(estimate, error), 2))
    return estimate
