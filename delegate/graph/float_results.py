# SPDX-License-Identifier: Apache-2.0
"""Numeric properties of ops' float results, registered with each op.

Used to decide which tensors may be fp16, and to bound errors of float results.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

COPY, SELECTION, SUM, FUNCTION = "copy", "selection", "sum", "function"


class Growth(Enum):
    """How large a float result may be, by the largest values of the float inputs."""

    STEADY = auto()  # no larger than all of them
    ADDITION = auto()  # their sum
    REDUCTION = auto()  # the first one times the number of terms
    PRODUCT = auto()  # their product
    QUOTIENT = auto()  # that of the two inputs
    GATE = auto()  # no larger than the last one
    SQUARE = auto()  # the square of their sum
    EXPONENTIAL = auto()  # that of the first one
    UNBOUNDED = auto()  # unknown


@dataclass(frozen=True, slots=True)
class FloatResult:
    """How an op's float results depend on its inputs.

    Attributes:
        kind: COPY: bytes of inputs, of any type. SELECTION: values of inputs or constants, up to
            their sign. SUM: sums of products, bounded by the same op on absolute values.
            FUNCTION: of terms that are not larger than the result.
        growth: how large a result may be.
        roundings: that one value of a FUNCTION's result accumulates; 0: none, or unknown.
        limit: maximum absolute value of a result; infinite: it depends on the inputs.
        is_steep: a rounding of an input may change a result by any amount.
        is_activation: results are activations of a network, whatever the range of the inputs.
    """

    kind: str
    growth: Growth
    roundings: int = 0
    limit: float = math.inf
    is_steep: bool = False
    is_activation: bool = False


COPIES, SELECTS = FloatResult(COPY, Growth.STEADY), FloatResult(SELECTION, Growth.STEADY)
sums, roundings = partial(FloatResult, SUM), partial(FloatResult, FUNCTION)
PRODUCTS = sums(Growth.STEADY, is_activation=True)  # of an input and weights
EXACT = roundings(Growth.STEADY)  # values of another type, or floats without rounding
STEPS = roundings(Growth.STEADY, is_steep=True)
_registered: dict[str, FloatResult] = {}


def register(op: str, result: FloatResult) -> None:
    """Register an op's property."""
    _registered[op] = result


def float_result(op: str) -> FloatResult:
    """Return an op's property; EXACT for unregistered ops."""
    return _registered.get(op, EXACT)
