# SPDX-License-Identifier: Apache-2.0
"""What kernels that take bytes by four share on the host: macros, constants, how far floats reach.

Lowers no node.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from delegate.launch import Constant
from delegate.ops._checks import quantized
from delegate.ops._convolution.records import Convolution, DepthwiseConvolution
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import fixed_point
from delegate.ops._numbers.float_requantize import float_form
from delegate.target import Target

AnyConvolution = Convolution | DepthwiseConvolution

_WHOLE = 1 << 24  # floats hold every whole number up to here


def word_defines(conv: AnyConvolution, uses_floats: bool = False) -> dict[str, int | str]:
    """Return the macros of words.clh, requantize4.clh and residual.clh."""
    elem = ELEM[conv.source.dtype]
    return {
        "ELEM": elem,
        "IS_SIGNED": int(elem == "char"),
        "IS_PACKED": int(conv.weights.shape[-1] % 4 == 0),  # the channels of an input pixel
        "IS_PACKED_OUT": int(len(conv.bias) % 4 == 0),
        "SINGLE_ROUNDING": int(isinstance(conv, Convolution) and conv.single_rounding),
        "IS_NEAREST": int(uses_floats),
        **(conv.defines if isinstance(conv, Convolution) else {}),
    }


def may_use_floats(target: Target) -> bool:
    """Whether results may be scaled in floats: the device was proven to round to the nearest.

    A CPU that imitates a GPU runs both sides of a branch; it has the integers alone.
    """
    return "nearest" in target.isa and target.device_type != "cpu"


def scaling_rows(
    conv: AnyConvolution, bias: Callable[[], NDArray[np.int64]], uses_floats: bool
) -> Constant:
    """Each channel's bias, multiplier and shift, or the bits of a float factor and offset.

    The offset's bits are above any shift; either all channels have them or none.

    Shapes:
        three rows of int32
    """

    def pack() -> NDArray[np.int32]:
        scaling = conv.scaling
        if uses_floats:
            form = float_form(
                scaling,
                quantized.per_tensor(conv.result)[1],
                conv.clamp,
                fused=False,
                single_rounding=isinstance(conv, Convolution) and conv.single_rounding,
            )
            if (form.exact & (form.offset > 0)).all():
                scaling = np.stack([form.factor, form.offset]).view(np.int32)
        return np.concatenate([fixed_point.wrap_int32(bias())[None], scaling])

    return Constant(12 * len(conv.bias), pack)


def exact_terms(conv: AnyConvolution) -> int:
    """Return how many products a float may add up: every sum on the way is below 2^24."""
    weights = np.abs(conv.weights.astype(np.int16) - np.int16(conv.weight_zero))
    taps_axes = 0 if isinstance(conv, DepthwiseConvolution) else (1, 2)
    terms: int = weights.size // len(conv.bias)
    largest = 255 if conv.source.dtype == "uint8" else 128  # inputs are taken as stored
    if largest * int(weights.sum(taps_axes, dtype=np.int64).max()) < _WHOLE:
        return terms
    return (_WHOLE - 1) // (largest * int(weights.max()))
