# SPDX-License-Identifier: Apache-2.0
"""Kernels that process bytes in words of four: macros, and the range of exact float sums."""

from __future__ import annotations

import numpy as np

from delegate.ops._convolution.records import Quant8Convolution
from delegate.ops._launches.types import ELEM
from delegate.target import Target

_WHOLE = 1 << 24  # floats represent all integers up to this
_FEW, _MANY = 40, 96  # registers, in `byte_extractions`


def word_defines(conv: Quant8Convolution, uses_floats: bool = False) -> dict[str, int | str]:
    """Return the macros of words.clh and finish.clh."""
    elem = ELEM[conv.source.dtype]
    return {
        "ELEM": elem,
        "IS_SIGNED": int(elem == "char"),
        "IS_PACKED": int(conv.in_c % 4 == 0),
        "IS_PACKED_OUT": int(conv.out_c % 4 == 0),
        "SINGLE_ROUNDING": int(conv.single_rounding),
        "IS_NEAREST": int(uses_floats),
        **conv.defines,
    }


def may_use_floats(target: Target) -> bool:
    """Whether results may be requantised in floats: the device is proven to round to nearest.

    A CPU that emulates a GPU executes both sides of a branch, so it only uses integers.
    """
    return "nearest" in target.isa and target.device_type != "cpu"


def byte_extractions(target: Target) -> tuple[bool, ...]:
    """Return whether to extract bytes by PLACED_OF of words.clh, with weights as floats.

    The one expected to be faster comes first, and is used until measured. PLACED_OF leaves a byte
    in its place in the word, which saves instructions if extraction takes a shift, a mask and a
    conversion. Compilers with as many registers as Mali's, whose conversions take any byte of a
    word, are expected not to need it. If a device's registers are unknown only FLOATS_OF is tried.
    """
    if not target.registers:
        return (False,)
    return (False, True) if _FEW <= target.registers < _MANY else (True, False)


def exact_terms(conv: Quant8Convolution, is_unsigned: bool = False) -> int:
    """Return how many products a float can sum exactly: all partial sums are below 2^24.

    `is_unsigned`: int8 inputs are offset by 128.
    """
    weights = np.abs(conv.centred())
    terms: int = weights[0].size
    is_unsigned = is_unsigned or conv.source.dtype == "uint8"
    largest = 255 if is_unsigned else 128  # of inputs as stored
    if largest * int(weights.sum((1, 2), dtype=np.int64).max()) < _WHOLE:
        return terms
    return (_WHOLE - 1) // (largest * int(weights.max()))
