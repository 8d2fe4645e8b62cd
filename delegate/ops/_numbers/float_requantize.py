# SPDX-License-Identifier: Apache-2.0
"""When one float multiplication and addition requantise exactly as TFLite's fixed point does.

A channel without such a form keeps the fixed-point one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_STEEPEST = 23  # right shifts up to this keep the thresholds' numerators in 63 bits
_ULPS = (0, 1, -1, 2, -2)  # factors tried around the true one; others round worse
# Steps that may err, and how; see _Search.
_ERRORS: tuple[tuple[int, ...], ...] = ((), (1,), (-1,), (1, 1), (1, -1), (-1, -1))
_INT32 = np.iinfo(np.int32)
_BEYOND = 1 << 10  # more than any result that is not clamped
_FARTHEST = 1 << 23  # what may be added to sums: more would cost them bits as floats

Range = tuple[NDArray[np.int64], NDArray[np.int64]]  # the least and the most, (channels,) each


@dataclass(frozen=True, slots=True, eq=False)
class FloatRescale:
    """How each channel's sums become results before the zero point and the clamp.

    rint(sum * factor + offset), with -offset for a negative sum; with a centre rint((sum + added) *
    factor + offset) for all.
    Where sum + added is an exception, its correction, 1 or -1, is added.
    """

    factor: NDArray[np.float32]  # (channels,)
    offset: NDArray[np.float32]  # (channels,)
    exact: NDArray[np.bool_]  # (channels,): the form is proven to equal fixed point
    added: NDArray[np.int64]  # (channels,), 0 without a centre
    exception: NDArray[np.int64]  # (2, channels), int32's least value where there is none
    correction: NDArray[np.int64]  # (2, channels), 0 where there is none


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
    """Return each channel's float form and whether it is proven.

    Every rounding is to nearest, ties to even: of the int32 sum to float32, of the fused
    `sum * factor + offset` once (or of the product and of the addition, with `fused=False`), and
    of rint. Both the form and fixed point grow with the sum, so they are equal everywhere if they
    step from one answer to the next at the same sums, of which the clamp leaves at most 255. Up to
    `exceptions` of these steps may come one sum too late or too early, which is corrected.

    With a `centre` a sum of 0 becomes that number, and negative results anything up to it: for a
    clamp at the zero point. As small floats are finer than large ones, more channels have a form
    with their results about 0.

    Shapes:
        scaling (2, channels): multipliers and shifts of fixed_point.py; sums: those that occur, by
        default all of int32 -> (channels,) each
    """
    multiplier, shift = scaling.astype(np.int64)
    right = np.maximum(-shift, 0)
    channels = multiplier.size
    low, high = _that_occur(sums, channels)
    down = 0 if centre is not None else max(0, zero_point - clamp[0])
    up = max(0, clamp[1] - zero_point)
    lowest, highest = (_fixed(s, multiplier, right, single_rounding) for s in (low, high))
    exact = ((shift <= 0) & (lowest == highest)) | (up + down == 0)  # one answer to all
    factor = np.ldexp(multiplier.astype(np.float64), shift - 31).astype(np.float32)
    factor[exact] = 0
    offset = np.zeros(channels, np.float32)
    answer = np.clip(lowest[exact], -_BEYOND, _BEYOND)
    offset[exact] = np.abs(answer) if centre is None else answer + centre
    added, correction = np.zeros(channels, np.int64), np.zeros((2, channels), np.int64)
    exception = np.full((2, channels), _INT32.min, np.int64)
    todo = np.flatnonzero(~exact & (shift <= 0) & (shift >= -_STEEPEST))
    if todo.size:
        first, inverse, joint = _once((multiplier << 6 | right)[todo], (low[todo], high[todo]))
        rising, falling = _thresholds(
            multiplier[todo[first]], right[todo[first]], max(up, down), single_rounding
        )
        found = _Search(
            np.concatenate([rising[:, :up], falling[:, :down]], 1),
            np.concatenate([np.arange(1, up + 1), np.arange(1, down + 1)]) + (centre or 0),
            up,
            joint,
            centre,
            fused,
        ).run(factor[todo[first]], exceptions)
        columns = (factor, offset, exact, added, exception, correction)
        for values, part in zip(columns, found, strict=True):
            values[..., todo] = part[..., inverse]
    return FloatRescale(factor, offset, exact, added, exception, correction)


def _that_occur(sums: Range | None, channels: int) -> Range:
    """Return the least and the greatest sum of each channel."""
    low, high = np.full(channels, _INT32.min), np.full(channels, _INT32.max)
    if sums is not None:  # sums beyond int32 wrap, so that any may occur
        fits = (sums[0] >= _INT32.min) & (sums[1] <= _INT32.max)
        low, high = np.where(fits, sums[0], low), np.where(fits, sums[1], high)
    return low, high


def _once(keys: NDArray[np.int64], sums: Range) -> tuple[NDArray[np.intp], NDArray[np.intp], Range]:
    """Find channels that are equal, as all of a tensor with one scale are: they are proven once.

    Shapes:
        (n,) -> the first channel of each kind (m,), each channel's kind (n,), each kind's sums (m,)
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
    """Return TFLite's fixed point for right shifts, as fixed_point.py computes it."""
    product = sums * multiplier
    if single_rounding:
        return (product + (1 << (30 + right)) - (product < 0)) >> (31 + right)
    high = (product + (1 << 30)) >> 31
    half = np.where(right > 0, 1 << np.maximum(right - 1, 0), 0)
    return (high + half - ((high < 0) & (right > 0))) >> right


def _thresholds(
    multiplier: NDArray[np.int64], right: NDArray[np.int64], most: int, single_rounding: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the least sums that fixed point takes to 1..most, and of -sum to -1..-most.

    Shapes:
        (n,), (n,) -> (n, most) each
    """
    odd = 2 * np.arange(1, most + 1, dtype=np.int64) - 1
    multiplier, right = multiplier[:, None], right[:, None]
    if single_rounding:  # |sum| * multiplier / 2^(31 + right), ties away from zero
        up = -(-(odd << (30 + right)) // multiplier)
        return up, up
    # The high product is rounded half up, then divided with ties away from zero. A positive one
    # gets to `step` where it is step * 2^right - 2^(right-1) less a half; -sum where it is above.
    numerator = ((odd << right) - (right > 0)) << 30
    whole = numerator // multiplier
    return whole + (whole * multiplier < numerator), whole + 1


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """Looks for factors and offsets that step where fixed point does. A row is a channel.

    The first `rising` columns are steps of sums, the others of sums with their sign changed.
    """

    first: NDArray[np.int64]  # (n, columns): the least sum whose result is at or above `step`
    step: NDArray[np.int64]  # (columns,)
    rising: int
    sums: Range
    centre: int | None
    fused: bool

    def run(self, start: NDArray[np.float32], exceptions: int) -> tuple[NDArray[Any], ...]:
        """Return FloatRescale's columns, in its order."""
        factor, offset = start.copy(), np.zeros_like(start)
        exact, added = np.zeros(len(start), np.bool_), np.zeros(len(start), np.int64)
        correction = np.zeros((2, len(start)), np.int64)
        exception = np.full((2, len(start)), _INT32.min, np.int64)
        todo = np.arange(len(start))
        for errors in _ERRORS:
            for ulps in _ULPS:
                if not todo.size or len(errors) > exceptions:
                    break
                tried = (start[todo].view(np.int32) + ulps).view(np.float32)
                moved = np.rint((self.centre or 0) / tried.astype(np.float64)).astype(np.int64)
                moved = np.clip(moved, -_FARTHEST, _FARTHEST)
                good, chosen, places = self._offsets(todo, tried, moved, errors)
                found = todo[good]
                factor[found], offset[found], exact[found] = tried[good], chosen[good], True
                added[found] = moved[good]
                for i, ((column, sums), error) in enumerate(zip(places, errors, strict=True)):
                    sign = np.where(column < self.rising, 1, -1)
                    exception[i, found] = (sign * sums + moved)[good]
                    correction[i, found] = (error * sign)[good]
                todo = todo[~good]
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
        """Return which rows have an offset for these factors, the offsets, and where they err.

        Each of `errors` is a step that comes one sum late (1) or one sum early (-1).
        """
        low, high = (ends[rows] for ends in self.sums)
        counts = (self.rising, self.step.size - self.rising)
        begin = np.repeat(np.stack([low, -high], 1), counts, 1)
        end = np.repeat(np.stack([high, -low], 1), counts, 1)
        # Half steps are floats. A number rounds to one from up to half a float's spacing away, and
        # rint takes that to the even side: so a step begins beside it, not there.
        half = self.step.astype(np.float32) - np.float32(0.5)
        above = (np.nextafter(half, np.float32(np.inf)) - half).astype(np.float64) / 2
        below = (half - np.nextafter(half, np.float32(-np.inf))).astype(np.float64) / 2
        border = half + np.where(self.step % 2 == 1, above, -below)
        slack = 2.0**-40  # more than all roundings of float64 here, for numbers below 2^9
        # An offset has to be above `least` for the step to come in time, below `most` for it not
        # to come before that; unless no sum is there.
        at = np.clip(self.first[rows], begin, end + 1)
        least = border - self._products(at, factor, added)
        most = border - self._products(at - 1, factor, added)
        least[at > end] = -np.inf
        most[at == begin] = np.inf
        places = []
        each = np.arange(rows.size)
        for error in errors:
            # The one that errs must do so, and be right one sum farther.
            column = least.argmax(1) if error > 0 else most.argmin(1)
            sums = at[each, column] - (error < 0)
            products = self._products((sums + error)[:, None], factor, added)[:, 0]
            farther = border[column] - products
            if error > 0:
                most[each, column], least[each, column] = least[each, column], farther
            else:
                least[each, column], most[each, column] = most[each, column], farther
            places.append((column, sums))
        need, bound = least.max(1) + slack, most.min(1) - slack
        need, bound = np.maximum(need, bound - 1), np.minimum(bound, need + 1)
        offset = ((need + bound) / 2).astype(np.float32)
        good = (low + added >= _INT32.min) & (high + added <= _INT32.max)
        return good & (offset > need) & (offset < bound), offset, places

    def _products(
        self, sums: NDArray[np.int64], factor: NDArray[np.float32], added: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        moved = sums + added[:, None] if added.any() else sums
        if moved.max() < 1 << 24 and moved.min() > -(1 << 24):
            floats = moved.astype(np.float64)
        else:
            floats = moved.astype(np.float32).astype(np.float64)
        products: NDArray[np.float64] = floats * factor[:, None].astype(np.float64)
        return products if self.fused else products.astype(np.float32).astype(np.float64)
