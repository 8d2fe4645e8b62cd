# SPDX-License-Identifier: Apache-2.0
"""How float results of ops come about: a property of each op, given where it is registered.

Who may store floats as fp16, and who judges float results, asks for it here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

COPY, SELECTION, SUM, FUNCTION = "copy", "selection", "sum", "function"


@dataclass(frozen=True, slots=True)
class FloatResult:
    """How an op's float results follow from its inputs.

    Attributes:
        kind: COPY: bytes of inputs, of any type. SELECTION: values of inputs or constants, up to
            their sign. SUM: sums of products, which the same op gives of absolute values. FUNCTION:
            of terms that are not larger than the result.
        roundings: of which one number of a FUNCTION's result is made; 0: none, or not known.
        limit: the largest absolute value of a result; infinite: it depends on the inputs.
        is_steep: a rounded input may change a result by any amount.
        is_activation: results are activations of a network, whatever the range of the inputs.
    """

    kind: str
    roundings: int = 0
    limit: float = math.inf
    is_steep: bool = False
    is_activation: bool = False


COPIES, SELECTS, SUMS = FloatResult(COPY), FloatResult(SELECTION), FloatResult(SUM)
PRODUCTS = FloatResult(SUM, is_activation=True)  # of an input and weights
EXACT = FloatResult(FUNCTION)  # numbers of another type, or floats without a rounding of their own
STEPS = FloatResult(FUNCTION, is_steep=True)
_registered: dict[str, FloatResult] = {}


def roundings(
    roundings: int, limit: float = math.inf, is_steep: bool = False, is_activation: bool = False
) -> FloatResult:
    """Return the property of a FUNCTION; arguments as the fields of FloatResult."""
    return FloatResult(FUNCTION, roundings, limit, is_steep, is_activation)


def register(op: str, result: FloatResult) -> None:
    """Note an op's property."""
    _registered[op] = result


def float_result(op: str) -> FloatResult:
    """Return an op's property; that of one that no device has: EXACT."""
    return _registered.get(op, EXACT)
