# SPDX-License-Identifier: Apache-2.0
"""Real weights -> codes of one scale, with the least error of the outputs.

Two steps. The scale: of those tried, the one with the least sum of squared errors, each counted as
its input says; a smaller scale clamps the greatest weights. The rounding: inputs behind a RELU are
never below 0, so errors of one output channel that point the same way add up to a shift of the
whole channel. Weights that lie nearly between two codes take the other one until the errors, times
their inputs' means, come to about 0.

Source of the rounding: Guo et al., SQuant: On-the-Fly Data-Free Quantization via Diagonal Hessian
Approximation (ICLR 2022), its sums over an output channel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
MOST_CODE = 127  # of int8 weights; TFLite's kernels want no -128
_CLAMPS = np.geomspace(0.3, 1, 13)  # tried: which part of the greatest weight is not clamped
_LEAST_SCALE = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """Weights at one scale."""

    scale: float  # an exact float32 value
    codes: Reals  # whole numbers

    @property
    def values(self) -> Reals:
        """The real numbers that the codes stand for."""
        return self.codes * self.scale


def coded(weights: Reals, counts: Reals, means: Reals, least_scale: float = 0.0) -> Coded:
    """Return the codes of weights at the best scale.

    `counts`: how much the square of an error in each weight counts. `means`: the mean of what it is
    multiplied by. `least_scale`: what else is stored by this scale allows no smaller one.

    Shapes: (outputs, ...), or what is broadcast to it; the errors of one output add up.
    """
    best = Coded(_LEAST_SCALE, np.zeros_like(weights))
    least = np.inf
    for part in _CLAMPS:
        step = max(np.abs(weights).max(initial=0) * part / MOST_CODE, least_scale, _LEAST_SCALE)
        scale = float(np.float32(step))
        rounded = Coded(scale, np.clip(np.rint(weights / scale), -MOST_CODE, MOST_CODE))
        error = float((counts * (rounded.values - weights) ** 2).sum())
        if error < least:
            best, least = rounded, error
    return Coded(best.scale, _with_even_sums(best, weights, means))


def _with_even_sums(first: Coded, weights: Reals, means: Reals) -> Reals:
    """Return codes whose errors times the means add up to about 0 for each output."""
    rows = len(weights)
    errors = (first.values - weights).reshape(rows, -1)
    codes = first.codes.reshape(rows, -1)
    means = np.broadcast_to(means, weights.shape).reshape(rows, -1)
    sums = (errors * means).sum(axis=1)
    towards = np.sign(errors)  # the other code lies one step against it
    can = (errors * means * np.sign(sums)[:, None] > 0) & (np.abs(codes - towards) <= MOST_CODE)
    # Those nearest to the middle between two codes first: another code costs them least.
    order = np.argsort(np.where(can, -np.abs(errors), np.inf), axis=1, kind="stable")
    can = np.take_along_axis(can, order, axis=1)
    gains = np.where(can, np.take_along_axis(np.abs(means) * first.scale, order, axis=1), 0)
    left = np.abs(sums)[:, None] - np.cumsum(gains, axis=1)
    left = np.concatenate([np.abs(sums)[:, None], np.where(can, left, np.inf)], axis=1)
    taken = can & (np.arange(can.shape[1]) < np.abs(left).argmin(axis=1)[:, None])
    moved = np.zeros_like(codes)
    np.put_along_axis(moved, order, taken.astype(codes.dtype), axis=1)
    return np.asarray((codes - moved * towards).reshape(weights.shape))
