# SPDX-License-Identifier: Apache-2.0
"""What the kernels with NVIDIA's instructions share: their groups, and when results saturate."""

from __future__ import annotations

import numpy as np

from delegate.ops._convolution.records import Quant8Convolution

GROUP_ITEMS = 256


def saturates(conv: Quant8Convolution) -> bool:
    """Whether the type's own limits clamp, and no result is 2^22 or more before."""
    limits = np.iinfo(conv.result.dtype)
    if conv.clamp != (limits.min, limits.max):
        return False
    terms = conv.weights.size // conv.out_c
    largest = terms * 255 * 255 + np.abs(conv.bias).astype(np.float64)
    multiplier, shift = conv.scaling.astype(np.float64)
    return bool((largest * np.ldexp(multiplier, shift.astype(np.int64) - 31)).max() < 2**21)


def rounding(conv: Quant8Convolution, is_able: bool = True) -> dict[str, int | str]:
    """Return the macros of requantize_word.clh but SINGLE_ROUNDING.

    `is_able`: whether the device has what takes several numbers to their type's range at once.
    """
    is_saturated = is_able and saturates(conv)
    is_from_zero = conv.result.dtype == "uint8" and conv.output_zero == 0
    return {"SATURATES": int(is_saturated), "FROM_ZERO": int(is_saturated and is_from_zero)}
