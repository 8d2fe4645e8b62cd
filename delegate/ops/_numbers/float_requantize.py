# SPDX-License-Identifier: Apache-2.0
"""Search for float multiply-adds that requantise exactly like TFLite's fixed point.

A channel for which there is none keeps the fixed-point arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_STEEPEST = 23  # up to this right shift the thresholds' numerators fit 63 bits
_ULPS = (0, 1, -1, 2, -2)  # distances of candidate factors from the exact one
# Steps that may be wrong, and how; see _Search.
_ERRORS: tuple[tuple[int, ...], ...] = ((), (1,), (-1,), (1, 1), (1, -1), (-1, -1))
_INT32 = np.iinfo(np.int32)
_BEYOND = 1 << 10  # larger than any result that is not clamped
_FARTHEST = 1 << 23  # largest number added to sums: more would cost precision as floats

Range = tuple[NDArray[np.int64], NDArray[np.int64]]  # lowest and highest, (channels,) each


@dataclass(frozen=True, slots=True, eq=False)
class FloatRescale:
    """Float requantisation of each channel's sums, before the zero point and the clamp.

    The result is rint(sum * factor + offset), with -offset for a negative sum. With a centre it is
    rint((sum + added) * factor + offset) for any sum. Where sum + added is an exception, the
    correction of 1 or -1 is added.
    """

    factor: NDArray[np.float32]  # (channels,)
    offset: NDArray[np.float32]  # (channels,)
    exact: NDArray[np.bool_]  # (channels,): proven equal to fixed point
    added: NDArray[np.int64]  # (channels,), 0 without a centre
    exception: NDArray[np.int64]  # (2, channels), the lowest int32 if there is none
    correction: NDArray[np.int64]  # (2, channels), 0 if there is none


def float_rescale(
    scaling: NDArray[np.int32],
    zero_point: int,
    clamp: tuple[int, int],
    *,
    centre: int | None = None,
    sums: Range | None = None,
    exceptions: int = 0,
    fused: bool = True,
    single_rounding: bool = False,
) -> FloatRescale:
    """Return each channel's float arithmetic, and whether it is proven.

    All roundings are to nearest, ties to even: of the int32 sum to float32, of the fused `sum *
    factor + offset` (with `fused=False` of both operations), and of rint. Both arithmetics are
    monotone in the sum, so they are equal if their results step at the same sums: at most 255, due
    to the clamp. Up to `exceptions` of these steps may come one sum late or early, which is
    corrected.

    With a `centre` a sum of 0 becomes that number, and negative results become any number up to it:
    for a clamp at the zero point. As floats are finer near 0, this makes more channels exact.

    Shapes:
        scaling (2, channels): multipliers, shifts; sums: range, default int32 -> (channels,) each
    """
    multiplier, shift = scaling.astype(np.int64)
    right = np.maximum(-shift, 0)
    channels = multiplier.size
    low, high = _sum_range(sums, channels)
    down = 0 if centre is not None else max(0, zero_point - clamp[0])
    up = max(0, clamp[1] - zero_point)
    lowest, highest = (_fixed(s, multiplier, right, single_rounding) for s in (low, high))
    exact = ((shift <= 0) & (lowest == highest)) | (up + down == 0)  # the same result for all sums
    factor = np.ldexp(multiplier.astype(np.float64), shift - 31).astype(np.float32)
    factor[exact] = 0
    offset = np.zeros(channels, np.float32)
    constant = np.clip(lowest[exact], -_BEYOND, _BEYOND)
    offset[exact] = np.abs(constant) if centre is None else constant + centre
    added, correction = np.zeros(channels, np.int64), np.zeros((2, channels), np.int64)
    exception = np.full((2, channels), _INT32.min, np.int64)
    rest = np.flatnonzero(~exact & (shift <= 0) & (shift >= -_STEEPEST))
    if rest.size:
        first, inverse, ranges = _group_equal(
            (multiplier << 6 | right)[rest], (low[rest], high[rest])
        )
        rising, falling = _thresholds(
            multiplier[rest[first]], right[rest[first]], max(up, down), single_rounding
        )
        fields = _Search(
            np.concatenate([rising[:, :up], falling[:, :down]], 1),
            np.concatenate([np.arange(1, up + 1), np.arange(1, down + 1)]) + (centre or 0),
            up,
            ranges,
            centre,
            fused,
        ).run(factor[rest[first]], exceptions)
        columns = (factor, offset, exact, added, exception, correction)
        for values, part in zip(columns, fields, strict=True):
            values[..., rest] = part[..., inverse]
    return FloatRescale(factor, offset, exact, added, exception, correction)


def _sum_range(sums: Range | None, channels: int) -> Range:
    """Return the lowest and highest sum of each channel."""
    low, high = np.full(channels, _INT32.min), np.full(channels, _INT32.max)
    if sums is not None:  # sums beyond int32 wrap, so any int32 may occur
        fits = (sums[0] >= _INT32.min) & (sums[1] <= _INT32.max)
        low, high = np.where(fits, sums[0], low), np.where(fits, sums[1], high)
    return low, high


def _group_equal(
    keys: NDArray[np.int64], sums: Range
) -> tuple[NDArray[np.intp], NDArray[np.intp], Range]:
    """Group equal channels, such as those of a tensor with one scale, so that each is proven once.

    Shapes:
        (n,) -> first channel of each group (m,), each channel's group (n,), each group's sums (m,)
    """
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    inverse = inverse.ravel()
    low, high = np.zeros((2, first.size), np.int64)
    np.minimum.at(low, inverse, sums[0])
    np.maximum.at(high, inverse, sums[1])
    return first, inverse, (low, high)


def _fixed(
    sums: NDArray[np.int64],
    multiplier: NDArray[np.int64],
    right: NDArray[np.int64],
    single_rounding: bool,
) -> NDArray[np.int64]:
    """Return TFLite's fixed-point results for right shifts, as in fixed_point.py."""
    product = sums * multiplier
    if single_rounding:
        return (product + (1 << (30 + right)) - (product < 0)) >> (31 + right)
    high = (product + (1 << 30)) >> 31
    half = np.where(right > 0, 1 << np.maximum(right - 1, 0), 0)
    return (high + half - ((high < 0) & (right > 0))) >> right


def _thresholds(
    multiplier: NDArray[np.int64], right: NDArray[np.int64], most: int, single_rounding: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the lowest sums with fixed-point results of 1..most, and those of -sum with -1..-most.

    Shapes:
        (n,), (n,) -> (n, most) each
    """
    odd = 2 * np.arange(1, most + 1, dtype=np.int64) - 1
    multiplier, right = multiplier[:, None], right[:, None]
    if single_rounding:  # |sum| * multiplier / 2^(31 + right), ties away from zero
        up = -(-(odd << (30 + right)) // multiplier)
        return up, up
    # The high product is rounded half up, then divided with ties away from zero. A positive product
    # reaches `step` at step * 2^right - 2^(right-1) minus a half; that of -sum, above it.
    numerator = ((odd << right) - (right > 0)) << 30
    whole = numerator // multiplier
    return whole + (whole * multiplier < numerator), whole + 1


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """Searches for factors and offsets whose results step where fixed point does.

    A row is a channel. The first `rising` columns are steps for sums, the others for negated sums.
    """

    first: NDArray[np.int64]  # (n, columns): the lowest sum whose result is at least `step`
    step: NDArray[np.int64]  # (columns,)
    rising: int
    sums: Range
    centre: int | None
    fused: bool

    def run(self, start: NDArray[np.float32], exceptions: int) -> tuple[NDArray[Any], ...]:
        """Return the fields of FloatRescale, in order."""
        factor, offset = start.copy(), np.zeros_like(start)
        exact, added = np.zeros(len(start), np.bool_), np.zeros(len(start), np.int64)
        correction = np.zeros((2, len(start)), np.int64)
        exception = np.full((2, len(start)), _INT32.min, np.int64)
        pending = np.arange(len(start))
        for errors in _ERRORS:
            for ulps in _ULPS:
                if not pending.size or len(errors) > exceptions:
                    break
                trial = (start[pending].view(np.int32) + ulps).view(np.float32)
                shifts = np.rint((self.centre or 0) / trial.astype(np.float64)).astype(np.int64)
                shifts = np.clip(shifts, -_FARTHEST, _FARTHEST)
                valid, offsets, wrong = self._offsets(pending, trial, shifts, errors)
                done = pending[valid]
                factor[done], offset[done], exact[done] = trial[valid], offsets[valid], True
                added[done] = shifts[valid]
                for i, ((column, sums), error) in enumerate(zip(wrong, errors, strict=True)):
                    sign = np.where(column < self.rising, 1, -1)
                    exception[i, done] = (sign * sums + shifts)[valid]
                    correction[i, done] = (error * sign)[valid]
                pending = pending[~valid]
        return factor, offset, exact, added, exception, correction

    def _offsets(
        self,
        rows: NDArray[np.intp],
        factor: NDArray[np.float32],
        added: NDArray[np.int64],
        errors: tuple[int, ...],
    ) -> tuple[
        NDArray[np.bool_], NDArray[np.float32], list[tuple[NDArray[np.intp], NDArray[np.int64]]]
    ]:
        """Return which rows have a valid offset for the factors, the offsets, and the wrong steps.

        Each of `errors` allows a step to come one sum late (1) or early (-1).
        """
        low, high = (ends[rows] for ends in self.sums)
        counts = (self.rising, self.step.size - self.rising)
        begin = np.repeat(np.stack([low, -high], 1), counts, 1)
        end = np.repeat(np.stack([high, -low], 1), counts, 1)
        # Half steps are representable. Numbers up to half an ulp away round to a half step, which
        # rint then rounds to even. So a result steps half an ulp beside it.
        half = self.step.astype(np.float32) - np.float32(0.5)
        above = (np.nextafter(half, np.float32(np.inf)) - half).astype(np.float64) / 2
        below = (half - np.nextafter(half, np.float32(-np.inf))).astype(np.float64) / 2
        border = half + np.where(self.step % 2 == 1, above, -below)
        slack = 2.0**-40  # exceeds all float64 rounding errors here, for numbers below 2^9
        # The offset must be above `least` for the step not to come late, and below `most` for it
        # not to come early, unless no sum is there.
        at = np.clip(self.first[rows], begin, end + 1)
        least = border - self._products(at, factor, added)
        most = border - self._products(at - 1, factor, added)
        least[at > end] = -np.inf
        most[at == begin] = np.inf
        wrong_steps = []
        each = np.arange(rows.size)
        for error in errors:
            # The step that may be wrong must be, and be right one sum farther.
            column = least.argmax(1) if error > 0 else most.argmin(1)
            sums = at[each, column] - (error < 0)
            products = self._products((sums + error)[:, None], factor, added)[:, 0]
            farther = border[column] - products
            if error > 0:
                most[each, column], least[each, column] = least[each, column], farther
            else:
                least[each, column], most[each, column] = most[each, column], farther
            wrong_steps.append((column, sums))
        lower, upper = least.max(1) + slack, most.min(1) - slack
        lower, upper = np.maximum(lower, upper - 1), np.minimum(upper, lower + 1)
        offset = ((lower + upper) / 2).astype(np.float32)
        fits_int32 = (low + added >= _INT32.min) & (high + added <= _INT32.max)
        return fits_int32 & (offset > lower) & (offset < upper), offset, wrong_steps

    def _products(
        self, sums: NDArray[np.int64], factor: NDArray[np.float32], added: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        shifted = sums + added[:, None] if added.any() else sums
        if shifted.max() < 1 << 24 and shifted.min() > -(1 << 24):
            floats = shifted.astype(np.float64)
        else:
            floats = shifted.astype(np.float32).astype(np.float64)
        products: NDArray[np.float64] = floats * factor[:, None].astype(np.float64)
        return products if self.fused else products.astype(np.float32).astype(np.float64)
