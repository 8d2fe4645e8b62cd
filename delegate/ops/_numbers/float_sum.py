# SPDX-License-Identifier: Apache-2.0
"""Search for a float sum that equals TFLite's quantised ADD for every pair of 8-bit inputs.

Without one, an ADD keeps the fixed-point arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from delegate.ops._numbers import fixed_point

LEFT_SHIFT, LEFT_SHIFT_16 = 20, 15  # Source: tflite/kernels/add.cc, for 8 and 16 bits
ROUND = 12582912.0  # 1.5 * 2^23: floats near it have no fraction, so adding it rounds
_ULPS = range(-6, 7)  # distances of candidate factors from the exact ones
_GRID = 2.0**24  # offsets are multiples of its inverse, so that float64 holds every sum below


@dataclass(frozen=True, slots=True)
class Sum:
    """The arithmetic of a quantised ADD."""

    zeros: tuple[int, int, int]  # of left, right, result
    scales: tuple[float, float, float]
    rescaling: tuple[tuple[int, int], ...]  # (multiplier, shift) of left, right, sum
    left_shift: int  # of both inputs, before rescaling
    clamp: tuple[int, int]
    dtype: str

    def inputs(self) -> NDArray[np.int64]:
        """Return all values an input can have."""
        limits = np.iinfo(self.dtype)
        return np.arange(limits.min, limits.max + 1, dtype=np.int64)

    def results(self) -> NDArray[np.int64]:
        """Return TFLite's result for each pair of inputs.

        Shapes:
            -> (256, 256): left, right
        """
        rescaled = fixed_point.multiply_by_quantized_multiplier
        left, right = (
            rescaled((self.inputs() - zero) << self.left_shift, *rescaling)
            for rescaling, zero in zip(self.rescaling[:2], self.zeros[:2], strict=True)
        )
        total = rescaled(left[:, None] + right, *self.rescaling[2]) + self.zeros[2]
        return total.clip(*self.clamp)


@dataclass(frozen=True, slots=True)
class FloatSum:
    """left * left_factor + (right * right_factor + offset), rounded to nearest, plus the zero."""

    left_factor: float  # all three are float32
    right_factor: float
    offset: float


@lru_cache(maxsize=256)
def float_sum(case: Sum) -> FloatSum | None:
    """Return factors and an offset that are exact for all 65,536 pairs, or None.

    Float operations round to nearest, ties to even. The result does not depend on whether a
    compiler contracts multiplications and additions to FMAs.
    """
    expected = case.results()
    inputs = case.inputs().astype(np.float64)
    zero, (low, high) = case.zeros[2], case.clamp
    # A result at the clamp bounds the sum on one side only.
    exact_result = expected - zero
    upper = np.where(expected < high, exact_result + 0.5, np.inf)
    lower = np.where(expected > low, exact_result - 0.5, -np.inf)
    exact = [np.float32(scale / case.scales[2]) for scale in case.scales[:2]]
    if not all(2.0**-17 <= factor <= 8 for factor in exact):
        return None  # float64 would not hold every sum
    for ulps in sorted(((i, j) for i in _ULPS for j in _ULPS), key=lambda p: abs(p[0]) + abs(p[1])):
        left, right = (
            (factor.view(np.int32) + np.int32(ulp)).view(np.float32)
            for factor, ulp in zip(exact, ulps, strict=True)
        )
        products = inputs[:, None] * float(left) + inputs * float(right)
        start, end = float((lower - products).max()), float((upper - products).min())
        if not start < end:
            continue
        start, end = max(start, -4096.0), min(end, 4096.0)
        offset = np.float32(round((start + end) / 2 * _GRID) / _GRID)
        results = _results(inputs, left, right, offset, np.float32(ROUND + zero))
        if all(np.array_equal(each.clip(*case.clamp), expected) for each in results):
            return FloatSum(float(left), float(right), float(offset))
    return None


def _results(
    inputs: NDArray[np.float64],
    left: np.float32,
    right: np.float32,
    offset: np.float32,
    rounding: np.float32,
) -> Iterator[NDArray[np.int64]]:
    """Yield the results for all pairs of inputs, for each combination of contracted operations."""
    from_left, from_right = inputs * float(left), inputs * float(right)  # exact
    for right_part in (from_right.astype(np.float32).astype(np.float64), from_right):
        inner = (right_part + float(offset)).astype(np.float32).astype(np.float64)
        for left_part in (from_left.astype(np.float32).astype(np.float64), from_left):
            total = (left_part[:, None] + inner).astype(np.float32)
            yield (total + rounding).astype(np.int64) - int(ROUND)
