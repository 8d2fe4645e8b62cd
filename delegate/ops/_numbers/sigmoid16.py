# SPDX-License-Identifier: Apache-2.0
"""The logistic function of 16-bit fixed point, interpolated as TFLite does.

Source: tflite/kernels/internal/reference/integer_ops/logistic.h, tanh.h; common.h
sigmoid_table_uint16
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

ONE = 1 << 16  # a share of one in the table
_ENTRIES = 256


def scaling(scale: float, most_shift: int) -> tuple[int, int]:
    """Return the multiplier and the right shift that take int16 inputs to units of 1 / (3 * 4096).

    `most_shift`: up to which power of 2 times 1/4096 the scale's factor is exact.
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


def scaled(values: Integers, multiplier: int, right: int) -> Integers:
    """Return int16 inputs in units of 1 / (3 * 4096), by the numbers of `scaling`."""
    rounding = 1 << (right - 1) if right > 0 else 0
    return (values * multiplier + rounding) >> right


@cache
def _table() -> Integers:
    # Straight lines between points of a curve that bends down lie below it, by up to step^2 / 8 of
    # how it bends; TFLite's entries are lifted by half of that.
    step = 1 / 24
    share = 1 / (1 + np.exp(-step * np.arange(_ENTRIES)))
    bend = share * (1 - share) * (2 * share - 1)
    entries: Integers = np.floor(ONE * (share + step**2 / 16 * bend) + 0.5).astype(np.int64)
    entries[-1] = ONE - 1  # the end, where all that follows is
    return entries


def interpolated(sizes: Integers, bits: int) -> Integers:
    """Return logistic(sizes) in `bits` more bits than `ONE` has; `bits` are between two entries."""
    place = np.minimum(sizes >> bits, _ENTRIES - 2)
    below, above = _table()[place], _table()[place + 1]
    between = (below << bits) + (sizes & ((1 << bits) - 1)) * (above - below)
    most = (0x7FFF << 10) if bits == 9 else (0xFFFF << 8)
    return np.where(sizes >> bits >= _ENTRIES - 1, most, between)
