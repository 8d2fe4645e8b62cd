# SPDX-License-Identifier: Apache-2.0
"""The C library's float functions: its own where it is found, else rounded doubles."""

from __future__ import annotations

import math

import numpy as np
import pytest

from delegate.host.tflite.library import float_function as of_library
from delegate.ops._numbers.c_library import FindFunction, float_function
from delegate.target import Rules

VALUES = np.linspace(-5, 5, 64, dtype=np.float32).reshape(8, 8)
NAMES = {"expf": np.exp, "expm1f": np.expm1, "tanhf": np.tanh}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("find", [Rules().float_function, of_library], ids=["own", "libm"])
def test_functions_of_arrays(name: str, find: FindFunction) -> None:
    found = float_function(find, name)(VALUES)
    assert (found.dtype, found.shape) == (np.float32, VALUES.shape)
    exact = NAMES[name](VALUES.astype(np.float64))
    assert (np.abs(found - exact) <= 2.5 * np.spacing(np.abs(found))).all()


def test_erfc_and_infinities() -> None:
    values = np.array([0.0, 1.0, np.inf, -np.inf], np.float32)
    for find in (Rules().float_function, of_library):
        assert float_function(find, "erfcf")(values)[[0, 2, 3]].tolist() == [1, 0, 2]
        assert float_function(find, "expf")(np.float32([100, -200])).tolist() == [math.inf, 0]


def test_logarithms_of_zero_and_less() -> None:
    for find in (Rules().float_function, of_library):
        zero, less = float_function(find, "logf")(np.float32([0, -1])).tolist()
        assert zero == -math.inf
        assert math.isnan(less)


def test_the_library_comes_first() -> None:
    sevens = float_function(lambda name: lambda value: 7.0, "tanhf")
    assert sevens(VALUES).tolist() == np.full((8, 8), 7.0).tolist()
