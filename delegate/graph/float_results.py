# SPDX-License-Identifier: Apache-2.0
"""Numeric properties of ops' float results, registered with each op.

Used to decide which tensors may be fp16, and to bound errors of float results.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial

COPY, SELECTION, SUM, FUNCTION = "copy", "selection", "sum", "function"
STEADY, ADDITION, REDUCTION, PRODUCT = "steady", "addition", "reduction", "product"
QUOTIENT, GATE, SQUARE = "quotient", "gate", "square"
EXPONENTIAL, UNBOUNDED = "exponential", "unbounded"


@dataclass(frozen=True, slots=True)
class FloatResult:
    """How an op's float results depend on its inputs.

    Attributes:
        kind: COPY: bytes of inputs, of any type. SELECTION: values of inputs or constants, up to
            their sign. SUM: sums of products, bounded by the same op on absolute values.
            FUNCTION: of terms that are not larger than the result.
        growth: how large a result may be. STEADY: as the largest input. ADDITION: as the sum of
            the inputs. REDUCTION: as the first input times the number of terms. PRODUCT: of the
            inputs. QUOTIENT: of the two inputs. GATE: as the last input. SQUARE: of ADDITION.
            EXPONENTIAL: of the first input. UNBOUNDED: the inputs' sizes say nothing.
        roundings: that one value of a FUNCTION's result accumulates; 0: none, or unknown.
        limit: maximum absolute value of a result; infinite: it depends on the inputs.
        is_steep: a rounding of an input may change a result by any amount.
        is_activation: results are activations of a network, whatever the range of the inputs.
    """

    kind: str
    growth: str = field(kw_only=True)
    roundings: int = 0
    limit: float = math.inf
    is_steep: bool = False
    is_activation: bool = False


COPIES, SELECTS = FloatResult(COPY, growth=STEADY), FloatResult(SELECTION, growth=STEADY)
sums = partial(FloatResult, SUM)
PRODUCTS = sums(growth=STEADY, is_activation=True)  # of an input and weights
roundings = partial(FloatResult, FUNCTION)
EXACT = roundings(0, growth=STEADY)  # values of another type, or floats without rounding
STEPS = roundings(0, growth=STEADY, is_steep=True)
_registered: dict[str, FloatResult] = {}


def register(op: str, result: FloatResult) -> None:
    """Register an op's property."""
    _registered[op] = result


def float_result(op: str) -> FloatResult:
    """Return an op's property; EXACT for unregistered ops."""
    return _registered.get(op, EXACT)
