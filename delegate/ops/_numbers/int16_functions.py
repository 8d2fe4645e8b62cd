# SPDX-License-Identifier: Apache-2.0
"""LOGISTIC and TANH of all int16 values as TFLite's integer LSTMs compute them.

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
# exp(-2^n), as 31-bit fractions, from n = -2 on.
_POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)


@cache
def logistic_table() -> NDArray[np.int16]:
    """Return 1 / (1 + exp(-x)) as Q0 of every x in Q3, from the least x on."""
    x = np.arange(_LOW, _HIGH + 1)
    positive = np.where(x > 0, x, _wrapped(-x))
    of_positive = _shifted(_half_share(_exp(_wrapped(-positive), 3)), 1)
    of_negative = _wrapped(_HIGH - of_positive)
    answers = np.where(x > 0, of_positive, np.where(x < 0, of_negative, 1 << 14))
    return answers.astype(np.int16)


@cache
def tanh_table(integer_bits: int) -> NDArray[np.int16]:
    """Return the tangent as Q0 of every x with so many integer bits, 0 to 6, from the least on."""
    x = np.arange(_LOW, _HIGH + 1)
    negative = np.where(x < 0, x, _wrapped(-x))
    size = _shifted(_wrapped(_half_share(_exp(negative, integer_bits + 1)) - (1 << 13)), 2)
    answers = np.where(x > 0, size, np.where(x < 0, _wrapped(-size), 0))
    return answers.astype(np.int16)


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


def _of_31_bits(fraction: int) -> int:
    return int(rounding_divide_by_pot(np.array(fraction), 16))


def _exp(x: Integers, integer_bits: int) -> Integers:
    """Return exp(x), x <= 0, as Q0."""
    fraction_bits = 15 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    rest = (x & (quarter - 1)) - quarter
    result = _exp_of_a_quarter(_wrapped(_shifted(rest, integer_bits)))
    left = _wrapped(rest - x)
    for exponent, power in enumerate(_POWERS, -2):
        if integer_bits > exponent:
            is_set = left & (1 << (fraction_bits + exponent))
            result = np.where(is_set, _product(result, _of_31_bits(power)), result)
    if integer_bits > 5:
        result = np.where(x < -(1 << (36 - integer_bits)) >> 16, 0, result)
    return np.where(x == 0, _HIGH, result)


def _exp_of_a_quarter(x: Integers) -> Integers:
    """Return exp(x) of Q0 values from -1/4 to 0, by the series around -1/8."""
    x = _wrapped(x + (1 << 12))
    square = _product(x, x)
    cube, fourth = _product(square, x), _product(square, square)
    third = _product(_wrapped(_shifted(fourth, -2) + cube), _of_31_bits(715827883))
    series = _shifted(_wrapped(third + square), -1)
    middle = _of_31_bits(1895147668)  # exp(-1/8)
    return np.clip(middle + _product(_wrapped(x + series), middle), _LOW, _HIGH)


def _half_share(x: Integers) -> Integers:
    """Return 2 / (1 + x) as Q2, of Q0 values from 0 to 1: three Newton steps."""
    half = (x + _HIGH + 1) >> 1
    guess = _wrapped(_of_31_bits(1515870810) + _product(half, _of_31_bits(-1010580540)))
    for _ in range(3):
        error = _wrapped((1 << 13) - _product(half, guess))
        guess = _wrapped(guess + _shifted(_product(guess, error), 2))
    return guess
