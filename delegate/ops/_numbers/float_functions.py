# SPDX-License-Identifier: Apache-2.0
"""Float functions of one argument, with the roundings of TFLite's reference kernels.

Their names are those of the macros of activation.cl and unary.cl.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.ops._numbers.c_library import FindFunction, float_function

Floats = NDArray[np.float32]
FloatFunction = Callable[[Floats], Floats]
# float32 like the numbers of C with an f: NumPy 1 would compute in doubles with Python's.
_HALF, _ONE, _SIX = np.float32(0.5), np.float32(1), np.float32(6)
# LOGISTIC is 1 above, and exp(x) below. Source: internal/reference/logistic.h
_ALL_ONES, _ALMOST_EXP = np.float32(16.619047164916992188), np.float32(-9)

# Functions of IEEE operations alone, which NumPy and C round alike.
_EXACT: Mapping[str, Callable[[Any], Any]] = {
    "ABSOLUTE": np.abs,
    "NEGATIVE": np.negative,
    "SQUARE": np.square,
    "FLOOR": np.floor,
    "CEILING": np.ceil,
    "ROUND": np.rint,
    "SIGN_OF": np.sign,
    "SQUARE_ROOT": np.sqrt,
    "RECIPROCAL_ROOT": lambda x: _ONE / np.sqrt(x),
    "HARD_SWISH": lambda x: x * np.minimum(np.maximum(x + np.float32(3), 0), _SIX) / _SIX,
}
# Function of the C library -> names.
_OF_C = {"EXPONENTIAL": "expf", "LOGARITHM": "logf", "TANH": "tanhf"}


def function_of_floats(name: str, find: FindFunction) -> FloatFunction | None:
    """Return a function of arrays; None: the host does not compute it as TFLite does.

    `find`: finds the functions of the C library that TFLite calls.
    Source: tflite/kernels/activations.cc, elementwise.cc, exp.cc, internal/reference
    """
    if name in _EXACT:
        return _EXACT[name]
    if name in _OF_C:
        return float_function(find, _OF_C[name])
    if name in ("GELU", "GELU_TANH"):
        return gelu(name == "GELU_TANH", find)
    if name == "ELU":
        return elu(find)
    return _logistic(find) if name == "LOGISTIC" else None


def elu(find: FindFunction) -> FloatFunction:
    """Return ELU. Source: internal/reference/elu.h"""
    expm1 = float_function(find, "expm1f")
    return lambda values: np.where(values < 0, expm1(values), values)


def gelu(is_approximate: bool, find: FindFunction) -> FloatFunction:
    """Return GELU, exact or approximated by tanh. Source: internal/reference/gelu.h"""
    tanh, erfc = float_function(find, "tanhf"), float_function(find, "erfcf")

    def function(values: Floats) -> Floats:
        if is_approximate:
            # M_2_SQRTPI * M_SQRT1_2
            factor = np.float32(math.sqrt(2 / math.pi))
            cubic = values + np.float32(0.044715) * values * values * values
            cdf2 = _ONE + tanh(factor * cubic)
        else:
            cdf2 = erfc(values * np.float32(-math.sqrt(0.5)))
        results: Floats = _HALF * values * cdf2
        return results

    return function


def _logistic(find: FindFunction) -> FloatFunction:
    exp = float_function(find, "expf")

    def function(values: Floats) -> Floats:
        shares = _ONE / (_ONE + exp(-values))
        results: Floats = np.where(values < _ALMOST_EXP, exp(values), shares)
        return np.where(values > _ALL_ONES, _ONE, results)

    return function
