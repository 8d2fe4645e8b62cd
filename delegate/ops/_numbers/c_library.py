# SPDX-License-Identifier: Apache-2.0
"""The C library's float functions, which TFLite fills its tables with, on arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
# The C library's function of a name, None where it is not found.
Find = Callable[[str], Callable[[float], float] | None]
_DOUBLE: dict[str, Callable[[float], float]] = {
    "expf": math.exp,
    "expm1f": math.expm1,
    "erfcf": math.erfc,
    "erff": math.erf,
    "logf": math.log,
    "tanhf": math.tanh,
}


def float_function(find: Find, name: str) -> Callable[[Floats], Floats]:
    """Return a function of arrays that gives the results of TFLite's own call, to the last bit.

    Where the C library is not found, it rounds a double's result, which differs in few places.
    """
    of_library = find(name)
    of_double = _DOUBLE[name]

    def of_one(value: float) -> float:
        if of_library is not None:
            return of_library(value)
        try:
            return of_double(value)
        except OverflowError:
            return math.inf
        except ValueError:  # a logarithm, where C gives these
            return -math.inf if value == 0 else math.nan

    def of_array(values: Floats) -> Floats:
        found: NDArray[Any] = np.array([of_one(float(value)) for value in values.flat])
        with np.errstate(over="ignore"):
            return found.astype(np.float32).reshape(values.shape)

    return of_array
