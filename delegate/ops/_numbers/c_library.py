# SPDX-License-Identifier: Apache-2.0
"""The C library's float functions on arrays; TFLite fills its tables with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
# Name -> the C library's function, or None if it is not found.
FindFunction = Callable[[str], Callable[[float], float] | None]
_DOUBLE: dict[str, Callable[[float], float]] = {
    "expf": math.exp,
    "expm1f": math.expm1,
    "erfcf": math.erfc,
    "erff": math.erf,
    "logf": math.log,
    "tanhf": math.tanh,
}


def float_function(find: FindFunction, name: str) -> Callable[[Floats], Floats]:
    """Return a function of arrays whose results are bit-identical to those of TFLite.

    Without the C library it rounds a double's result, which rarely differs.
    """
    library_function = find(name)
    double_function = _DOUBLE[name]

    def scalar_function(value: float) -> float:
        if library_function is not None:
            return library_function(value)
        try:
            return double_function(value)
        except OverflowError:
            return math.inf
        except ValueError:  # a logarithm, as in C
            return -math.inf if value == 0 else math.nan

    def array_function(values: Floats) -> Floats:
        results: NDArray[Any] = np.array([scalar_function(float(value)) for value in values.flat])
        with np.errstate(over="ignore"):
            return results.astype(np.float32).reshape(values.shape)

    return array_function
