# SPDX-License-Identifier: Apache-2.0
"""What kernels that take bytes by four share: their macros, and how far float sums are exact."""

from __future__ import annotations

import numpy as np

from delegate.ops._convolution.records import Quant8Convolution
from delegate.ops._launches.types import ELEM
from delegate.target import Target

_WHOLE = 1 << 24  # floats hold every whole number up to here
_FEW, _MANY = 40, 96  # registers, of `ways_to_take_bytes`


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
    """Whether results may be scaled in floats: the device was proven to round to the nearest.

    A CPU that imitates a GPU runs both sides of a branch; it has the integers alone.
    """
    return "nearest" in target.isa and target.device_type != "cpu"


def ways_to_take_bytes(target: Target) -> tuple[bool, ...]:
    """Return whether bytes are taken by PLACED_OF of words.clh, with weights as floats.

    What is expected to be faster comes first, and is used until times tell. A byte by its place
    takes fewer instructions where bytes are shifted, masked and converted. Compilers that keep
    as many values as Mali's, whose converters take any byte of a word, are expected to need no
    places. Where a device does not tell its registers, nothing is known of its compiler, and
    FLOATS_OF is all that is tried.
    """
    if not target.registers:
        return (False,)
    return (False, True) if _FEW <= target.registers < _MANY else (True, False)


def exact_terms(conv: Quant8Convolution, is_unsigned: bool = False) -> int:
    """Return how many products a float may add up: every sum on the way is below 2^24.

    `is_unsigned`: int8 inputs are taken with 128 more.
    """
    weights = np.abs(conv.centred())
    terms: int = weights[0].size
    is_unsigned = is_unsigned or conv.source.dtype == "uint8"
    largest = 255 if is_unsigned else 128  # inputs are taken as stored
    if largest * int(weights.sum((1, 2), dtype=np.int64).max()) < _WHOLE:
        return terms
    return (_WHOLE - 1) // (largest * int(weights.max()))
