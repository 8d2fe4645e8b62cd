# SPDX-License-Identifier: Apache-2.0
"""What the kernels with NVIDIA's instructions share: kernels/requantize_word.clh's constants."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from delegate.launch import Constant
from delegate.ops._checks import quantized
from delegate.ops._convolution.records import Convolution, DepthwiseConvolution
from delegate.ops._numbers import fixed_point
from delegate.ops._numbers.float_requantize import float_form

GROUP_ITEMS = 256


def saturates(conv: Convolution | DepthwiseConvolution) -> bool:
    """Whether the type's own limits clamp, and no result is 2^22 or more before."""
    limits = np.iinfo(conv.result.dtype)
    if conv.clamp != (limits.min, limits.max):
        return False
    terms = conv.weights.size // len(conv.bias)
    largest = terms * 255 * 255 + np.abs(conv.bias).astype(np.float64)
    multiplier, shift = conv.scaling.astype(np.float64)
    return bool((largest * np.ldexp(multiplier, shift.astype(np.int64) - 31)).max() < 2**21)


def scaling_rows(conv: Convolution | DepthwiseConvolution, padded_c: int) -> Constant:
    """Each channel's bias, multiplier and shift, or where proven the bits of a float form.

    Shapes:
        three rows of padded_c int32
    """

    def pack() -> NDArray[np.int32]:
        channels = len(conv.bias)
        fixed = np.zeros((3, padded_c), np.int32)
        fixed[0, :channels] = fixed_point.wrap_int32(conv.folded_bias())
        fixed[1:, :channels] = conv.scaling
        form = float_form(
            conv.scaling,
            quantized.per_tensor(conv.result)[1],
            conv.clamp,
            single_rounding=isinstance(conv, Convolution) and conv.single_rounding,
        )
        floats = fixed.copy()
        floats[1, :channels] = form.factor.view(np.int32)
        floats[2, :channels] = form.offset.view(np.int32)
        # Eight neighbours have one form; what tells it is an offset above 0.
        usable = np.ones(-(-padded_c // 8) * 8, np.bool_)
        usable[:channels] = form.exact & (form.offset > 0)
        is_float = usable.reshape(-1, 8).all(1).repeat(8)[:padded_c]
        return np.where(is_float, floats, fixed)

    return Constant(12 * padded_c, pack)
