# SPDX-License-Identifier: Apache-2.0
"""8-bit SOFTMAX in numpy, in gemmlowp's fixed-point arithmetic like TFLite's reference kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import fixed_point

_BITS = 8


def softmax(values: NDArray[Any], scale: float) -> NDArray[np.int64]:
    """Return each row's softmax in steps of 1 / 256, 0 to 256.

    `scale`: that of the input times beta.

    Shapes:
        (..., n) -> (rows, n)
    Source: tflite/kernels/internal/reference/softmax.h Softmax
    """
    digits = 31 - fixed_point.DISTANCE_BITS
    real = scale * (1 << digits)
    multiplier, left = fixed_point.quantize_multiplier(min(real, float((1 << 31) - 1)))
    rows = values.reshape(-1, values.shape[-1]).astype(np.int64)
    distances = rows - rows.max(axis=1, keepdims=True)
    scaled = fixed_point.rounding_doubling_high_mul(distances << left, multiplier)
    is_near = distances >= -fixed_point.farthest_distance(left)
    shares = np.where(is_near, fixed_point.exp_on_negative_values(scaled), 0)
    sums = fixed_point.rounding_divide_by_pot(shares, 12).sum(axis=1)
    quanta = np.empty(rows.shape, np.int64)
    for row, total in enumerate(sums.tolist()):
        headroom = 32 - total.bit_length()
        share = _one_over_one_plus((total << headroom) - (1 << 31))
        products = fixed_point.rounding_doubling_high_mul(shares[row], share)
        exponent = 12 - headroom + 31 - _BITS
        quanta[row] = fixed_point.rounding_divide_by_pot(products, exponent)
    return quanta


def _one_over_one_plus(fraction: int) -> int:
    """Return 1 / (1 + x), x in [0, 1), both in 31 fractional bits.

    Source: gemmlowp fixedpoint.h one_over_one_plus_x_for_x_in_0_1, with its constants: three steps
    of Newton's method with 2 integer bits
    """

    def product(a: int, b: int) -> int:
        return int(fixed_point.rounding_doubling_high_mul(a, b))

    half = (fraction + (1 << 31)) // 2  # of x + the greatest below one, rounded half up
    x = 1515870810 + product(half, -1010580540)  # 48/17 - 32/17 * half
    for _ in range(3):
        rest = (1 << 29) - product(half, x)
        x += product(x, rest) << 2
    return min(x << 1, (1 << 31) - 1)
