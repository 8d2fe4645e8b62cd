# SPDX-License-Identifier: Apache-2.0
"""Quantises weights to a single scale with the minimum output error.

Two steps. The scale: of some candidates, the one with the least weighted sum of squared errors; a
smaller scale clamps the largest weights. The rounding: inputs after a RELU are
never negative, so errors of an output channel in the same direction add up to a bias of the
channel. Weights almost midway between two integers are rounded the other way until the errors,
weighted by the inputs' means, sum to about 0.

Source of the rounding: Guo et al., SQuant: On-the-Fly Data-Free Quantization via Diagonal Hessian
Approximation (ICLR 2022), its sums over an output channel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
MOST_CODE = 127  # of int8 weights; TFLite's kernels require symmetric ones
_CLAMPS = np.geomspace(0.3, 1, 13)  # candidates: fraction of the largest weight that is not clamped
_LEAST_SCALE = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """Quantised weights with a single scale."""

    scale: float  # an exact float32 value
    codes: Reals  # integers

    @property
    def values(self) -> Reals:
        """The dequantised weights."""
        return self.codes * self.scale


def coded(weights: Reals, counts: Reals, means: Reals, least_scale: float = 0.0) -> Coded:
    """Return weights quantised at the best scale.

    `counts`: weights of the squared errors. `means`: mean of the value that each weight is
    multiplied by. `least_scale`: lower bound, for other data that shares the scale.

    Shapes: (outputs, ...), or broadcastable to it; the errors of one output are summed.
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
    """Return weights whose errors, times the means, sum to about 0 for each output."""
    rows = len(weights)
    errors = (first.values - weights).reshape(rows, -1)
    codes = first.codes.reshape(rows, -1)
    means = np.broadcast_to(means, weights.shape).reshape(rows, -1)
    sums = (errors * means).sum(axis=1)
    towards = np.sign(errors)  # the other integer is one step in the opposite direction
    can = (errors * means * np.sign(sums)[:, None] > 0) & (np.abs(codes - towards) <= MOST_CODE)
    # Those closest to the midpoint first: they add the least error.
    order = np.argsort(np.where(can, -np.abs(errors), np.inf), axis=1, kind="stable")
    can = np.take_along_axis(can, order, axis=1)
    gains = np.where(can, np.take_along_axis(np.abs(means) * first.scale, order, axis=1), 0)
    left = np.abs(sums)[:, None] - np.cumsum(gains, axis=1)
    left = np.concatenate([np.abs(sums)[:, None], np.where(can, left, np.inf)], axis=1)
    taken = can & (np.arange(can.shape[1]) < np.abs(left).argmin(axis=1)[:, None])
    moved = np.zeros_like(codes)
    np.put_along_axis(moved, order, taken.astype(codes.dtype), axis=1)
    return np.asarray((codes - moved * towards).reshape(weights.shape))
