# SPDX-License-Identifier: Apache-2.0
"""Bounds on the difference of equally correct float results; defined here only.

A float32 sum of n terms, in whatever order, is off the exact one by at most about (n - 1) u M: u
is 2^-24, M the sum of the terms' absolute values. So two of them may be 2 (n - 1) u M apart: for
7,410 terms 8.8e-4 of M, where a term that is left out makes 1.3e-4. That would notice nothing.

The reference's part of it is no unknown, for a judge can add the terms in float64. It adds one by
one, and where many terms are equal, as dequantised ones are, it rounds into one direction over
and over. A kernel of ours errs alike where it adds in that order, and less where it keeps several
sums. What else differs are roundings of any sign. They add up as the steps of a random walk do, to
sqrt(n) u M; units in M's last place are u M to 2 u M. So

    |ours - reference| <= |reference - exact| + 2 sqrt(n) units in the last place of M

In a mean of 7,410 equal terms the first part was 2.7e-5 of M and the second 1.6e-5. What 16 lanes
summed was 3.0e-5 of M away from the reference, and 3e-6 from the exact mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

# Of one value, and of the largest: what sums of 8,000 terms may differ by at worst, and a network
# of sums likely does. A wrong element is off by far more.
_RELATIVE, _OF_LARGEST = 1e-3, 1e-4
_LARGEST_HALF = 65504.0
# The same for fp16, whose last place is 2^-11 of a value: weights, a few sums of 32 products and
# the result are rounded.
_HALF_RELATIVE, _HALF_OF_LARGEST = 2e-2, 4e-3


def sum_bound(magnitudes: Doubles, terms: int, reference_error: Doubles | float = 0.0) -> Doubles:
    """Return how far a float32 sum may lie from the reference's: the docstring above derives it.

    `magnitudes`: the sum of the terms' absolute values, for cancellation makes a bound on the sum
    itself fail. `reference_error`: how far the reference's sum is off the exact one, where that
    is known. A device may take the least floats for zeros.
    """
    places = np.spacing(np.minimum(magnitudes, 3e38).astype(np.float32)).astype(np.float64)
    tiny = terms * float(np.finfo(np.float32).tiny)
    return np.asarray(reference_error + 2 * np.sqrt(terms) * places + tiny)


def halves_bound(bound: Doubles, expected: NDArray[Any]) -> Doubles:
    """Return the bound where floats are stored as fp16.

    `bound`: for float32, whose last place is 2^13 times as small; `expected`: its result. fp16 may
    flush to zero below 2^-14, and overflows to infinity above 65504, where anything is accepted.
    """
    sizes = np.abs(np.nan_to_num(expected.astype(np.float64), nan=0, posinf=0, neginf=0))
    wide = bound * 2.0**13 + 2.0**-10 * sizes + 2.0**-14
    return np.where(sizes + wide < _LARGEST_HALF, wide, np.inf)


def are_near(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether float outputs of two equivalent networks agree, without knowing their sums."""
    return _are_near(a, b, _RELATIVE, _OF_LARGEST)


def are_near_fp16(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether fp16 outputs of two alternatives of a node agree."""
    return _are_near(a.astype(np.float32), b.astype(np.float32), _HALF_RELATIVE, _HALF_OF_LARGEST)


def _are_near(a: NDArray[Any], b: NDArray[Any], relative: float, of_largest: float) -> bool:
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return False
    a, b = a[finite], b[finite]
    least = of_largest * float(np.abs(b).max(initial=0))
    return bool(np.allclose(a, b, rtol=relative, atol=least))
