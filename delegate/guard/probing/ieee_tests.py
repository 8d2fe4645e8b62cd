# SPDX-License-Identifier: Apache-2.0
"""Inputs and expected answers of the self-tests of precision "ieee": runtime_isa_ieee.clh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.isa import DENORMALS, DIVISION, IEEE

_RNG = np.random.default_rng(8)
_X = _RNG.uniform(-16, 16, 64).astype(np.float32)
_Y = _RNG.uniform(-1, 1, 64).astype(np.float32)
_WORDS = _RNG.integers(0, 2**32, (2, 64), np.uint32)
INPUTS: Mapping[str, tuple[NDArray[Any], NDArray[Any]]] = {
    IEEE: (_X, _Y),
    DENORMALS: (_X, _Y),
    DIVISION: (_WORDS[0], _WORDS[1]),
}
_TERMS, _ROUNDS = 60, 200


def answers(name: str) -> NDArray[np.int32]:
    """Return the expected answers of a self-test, of shape (16, 8)."""
    with np.errstate(all="ignore"):
        rows = {IEEE: _sums, DENORMALS: _denormals, DIVISION: _quotients}[name]()
    return np.concatenate(rows).view(np.int32).reshape(16, 8)


def _sums() -> list[NDArray[Any]]:
    total, power = np.zeros(64, np.float32), np.ones(64, np.float32)
    lanes = np.zeros((64, 4), np.float32)
    for k in range(_TERMS):
        value = np.roll(_X, -k)
        total = total + value * _Y[k]
        power = power * np.float32(0.5) + value
        lanes = lanes * _Y[k : k + 4] + value[:, None]
    both = total.view(np.int32) ^ power.view(np.int32)
    return [both, np.bitwise_xor.reduce(lanes.view(np.int32), axis=1)]


def _denormals() -> list[NDArray[Any]]:
    tiny = _X * np.float32(2.0**-120) * np.float32(2.0**-12)
    other = _Y * np.float32(2.0**-126) * np.float32(2.0**-4)
    return [tiny, (tiny + other) * np.float32(2.0**100)]


def _quotients() -> list[NDArray[Any]]:
    left, right = _WORDS
    quotients, roots = np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    for k in range(_ROUNDS):
        left, right = (each * np.uint32(1664525) + np.uint32(1013904223) for each in (left, right))
        x, y = (_drawn(each, k).view(np.float32) for each in (left, right))
        for each in (x / y, x / y, y / x, x / np.float32(3), np.float32(1) / y):
            quotients = quotients * np.uint32(31) + _words(each)
        roots = roots * np.uint32(31) + _words(np.sqrt(x))
    return [quotients, roots]


def _drawn(words: NDArray[np.uint32], k: int) -> NDArray[np.uint32]:
    near_1 = words & np.uint32(0x80FFFFFF) | np.uint32(0x3F000000)
    return near_1 if k % 2 else words


def _words(values: NDArray[np.float32]) -> NDArray[np.uint32]:
    return np.where(np.isnan(values), np.uint32(0x7FC00000), values.view(np.uint32))
