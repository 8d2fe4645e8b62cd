# SPDX-License-Identifier: Apache-2.0
"""Ops on rows: SOFTMAX, LOG_SOFTMAX and L2_NORMALIZATION."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from delegate.inspect import Graph
from tflite_opencl.conformance.cases._rows import UNIT, VERSIONS, one
from tflite_opencl.models.build import USUAL, Case, Shape, case, dtype_of, sizes, tensor

_LINES: tuple[Shape, ...] = (
    (1, 2), (3, 5), (1, 10), (2, 64), (4, 65), (1, 511), (1, 1001), (2, 3, 4, 17), (5, 1),
)  # fmt: skip
# About as many elements as a vector has, as a table has, and as work-items a group.
_MORE_LINES: tuple[Shape, ...] = (
    (1, 1), (17,), (64, 3), (37, 4), (37, 8), (37, 16), (1, 31), (1, 32), (3, 33), (2, 47),
    (1, 255), (2, 256), (1, 257), (3, 509),
)  # fmt: skip
_8_BITS = ("uint8", "int8")
_OTHERS = ("LOG_SOFTMAX", "L2_NORMALIZATION")
# Scales of the input, and beta.
_STEEP: tuple[tuple[float, float], ...] = (
    (5e-4, 1.0), (0.1, 0.5), (1.0, 1.0), (8.0, 3.0), (0.05, 0.1), (0.0625, 1.0),
)  # fmt: skip
_STEEP_16 = ((0.0018, 1.0), (1e-4, 0.5), (1e-5, 1.0), (0.3, 2.0))
_OUT = {
    "SOFTMAX": UNIT,
    "LOG_SOFTMAX": {"uint8": (16 / 256, 255), "int8": (16 / 256, 127)},
    "L2_NORMALIZATION": {"uint8": (1 / 128, 128), "int8": (1 / 128, 0)},
}


def cases() -> Iterator[Case]:
    """Yield rows of all lengths."""
    for kind, shape, beta in itertools.product(
        ("uint8", "int8", "16x8", "float32"), _LINES, (1.0, 0.3)
    ):
        if kind in ("16x8", "float32"):
            yield _case("SOFTMAX", kind, shape, None, beta)
        elif shape[-1] <= 511:  # more equal values would sum to 512, and the reference aborts
            yield from (_case("SOFTMAX", kind, shape, scale, beta) for scale in (0.1, 0.01))
    for op, kind, shape in itertools.product(_OTHERS, (*_8_BITS, "float32"), _LINES):
        for scale in (None,) if kind == "float32" else (0.1, 0.02):
            yield _case(op, kind, shape, scale)


def edges() -> Iterator[Case]:
    """Yield more lengths, the limits of scales, betas and zero points, and 16 bits from 8."""
    for kind, shape in itertools.product(_8_BITS, _MORE_LINES):
        yield _case("SOFTMAX", kind, shape, 0.1, 1.0)
    for kind, shape in itertools.product(("16x8", "float32"), _MORE_LINES):
        yield _case("SOFTMAX", kind, shape, None, 1.0)
    for kind, shape, (scale, beta) in itertools.product(_8_BITS, ((3, 100), (37, 9)), _STEEP):
        yield _case("SOFTMAX", kind, shape, scale, beta)
    for shape, (scale, beta) in itertools.product(((3, 12), (2, 600)), _STEEP_16):
        yield _case("SOFTMAX", "16x8", shape, scale, beta)
    for kind, shape in itertools.product(_8_BITS, ((3, 12), (65, 3), (2, 300), (1, 1), (37, 8))):
        yield _case("SOFTMAX", kind, shape, 0.1, 1.0, result="int16")
    for beta in (0.0, 0.1, 3.0, 30.0):
        yield _case("SOFTMAX", "float32", (3, 5), None, beta)
        yield _case("SOFTMAX", "float32", (3, 40), None, max(beta, 0.01))
    for op, kind, shape in itertools.product(_OTHERS, (*_8_BITS, "float32"), _MORE_LINES[:4]):
        yield _case(op, kind, shape, None if kind == "float32" else 0.05)
    for kind, scale in itertools.product(_8_BITS, (0.004, 1 / 16, 0.125, 0.5, 2.0)):
        yield _case("LOG_SOFTMAX", kind, (30, 10), scale)
    for kind, zeros in (("uint8", (0, 128, 255)), ("int8", (-128, 0, 127))):
        for zero in zeros:
            yield _case("L2_NORMALIZATION", kind, (50, 4), 0.1, zero=zero)


def _case(
    op: str,
    kind: str,
    shape: Shape,
    scale: float | None,
    beta: float | None = None,
    zero: int | None = None,
    result: str = "",
) -> Case:
    detail = f"in{sizes(shape)}"
    detail += "" if beta is None else f"-beta{beta:g}"
    detail += "" if scale is None else f"-scale{scale:g}"
    detail += "" if zero is None else f"-zero{zero}"
    detail += f"-to_{result}" if result else ""
    given = op, dtype_of(kind), shape, scale, beta, zero, result
    return case(op.lower(), kind, detail, of_rows, *given)


def of_rows(
    op: str,
    dtype: str,
    shape: Shape,
    scale: float | None = None,
    beta: float | None = None,
    zero: int | None = None,
    result: str = "",
) -> Graph:
    """Return the model of one op, whose output has the only quantisation that TFLite takes.

    `scale`, `zero`: the input's, if not the default ones. `result`: another type of SOFTMAX's
    output.
    """
    source, out = tensor(shape), tensor(())
    if dtype != "float32":
        source = tensor(
            shape, dtype, scale or 10 / 32768, USUAL[dtype][0][1] if zero is None else zero
        )
        out = tensor((), dtype, *_OUT[op][dtype])
    if result:
        out = tensor((), result, 2.0**-16, -(2**15))
    options: dict[str, Any] = {} if beta is None else {"beta": beta}
    return one(op, [source], out, options, VERSIONS.get(dtype, 1))
