# SPDX-License-Identifier: Apache-2.0
"""Products of matrices, BATCH_MATMUL, and CUMSUM."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from delegate.inspect import Graph
from tflite_opencl.conformance.cases._rows import one
from tflite_opencl.models.build import (
    Case,
    Shape,
    case,
    constant,
    dtype_of,
    integers,
    numbers,
    seeded,
    sizes,
    tensor,
)

_MATRICES: tuple[tuple[Shape, Shape], ...] = (
    ((3, 5), (5, 4)), ((1, 7, 16), (1, 16, 9)), ((2, 4, 6), (2, 6, 33)),
    ((2, 3, 4, 5), (2, 3, 5, 2)), ((2, 1, 4, 5), (1, 3, 5, 6)),
)  # fmt: skip


def cases() -> Iterator[Case]:
    """Yield the cases of BATCH_MATMUL, with adjoints and broadcast batches, and of CUMSUM."""
    both = (False, True)
    for kind, (a, b), left, right in itertools.product(
        ("int8", "16x8", "float32"), _MATRICES, both, both
    ):
        yield _product(kind, a, b, left, right)
    for kind, (shape, axis), exclusive, reverse in itertools.product(
        ("float32", "int32", "int64"), (((7,), 0), ((3, 5), 1), ((2, 4, 6), -2)), both, both
    ):
        yield _cumsum(kind, shape, axis, exclusive, reverse)


def _product(kind: str, a: Shape, b: Shape, left: bool, right: bool, **options: Any) -> Case:
    detail = f"{sizes(a)}_{sizes(b)}" + "-adjoint" * (left or right)
    detail += "_left" * left + "_right" * right
    for name, value in options.items():
        if value is True:
            detail += f"-{name.removeprefix('is_')}"
        elif value is not False:
            detail += f"-{name}" + "_".join(f"{number:g}" for number in np.atleast_1d(value))
    return case("batch_matmul", kind, detail, product, dtype_of(kind), a, b, left, right, **options)


def product(
    dtype: str,
    a: Shape,
    b: Shape,
    left: bool = False,
    right: bool = False,
    zeros: tuple[int, int, int] = (3, -8, -5),
    multiplier: float | None = None,
    is_constant: bool = False,
    times_int8: bool = False,
) -> Graph:
    """Return the model of a BATCH_MATMUL.

    Args:
        a, b: shapes of both matrices as they are multiplied.
        left, right: which of them are adjoint in the model.
        zeros: zero points of int8: of both inputs and the output.
        multiplier: the product of the inputs' scales in steps of the output, if not the default.
        is_constant, times_int8: the right matrix is constant, or of int8 beside int16.
    """
    scale = {"int8": 0.05, "int16": 0.0002}.get(dtype)
    zeros = zeros if dtype == "int8" else (0, 0, 0)
    of_right = "int8" if times_int8 else dtype
    turned = (*b[:-2], b[-1], b[-2]) if right else b
    data: Any = None
    if is_constant:
        rng = seeded(dtype, a, b)
        data = rng.standard_normal(turned) if scale is None else integers(rng, turned, of_right)
    inputs = [
        tensor((*a[:-2], a[-1], a[-2]) if left else a, dtype, scale, zeros[0]),
        tensor(turned, of_right, scale, zeros[1], data=data),
    ]
    out_scale = scale and (scale * scale / multiplier if multiplier else scale * 4)
    options = {"adj_x": left, "adj_y": right, "asymmetric_quantize_inputs": False}
    version = {"int8": 2, "int16": 3}.get(dtype, 1)
    return one("BATCH_MATMUL", inputs, tensor((), dtype, out_scale, zeros[2]), options, version)


# Left operands, and the batches of right ones, which are broadcast.
_HYBRID_MATRICES: tuple[tuple[Shape, Shape, int], ...] = (
    ((5, 37), (), 19), ((2, 3, 64), (), 16), ((1, 1, 130), (1,), 33), ((2, 4, 20), (2,), 7),
    ((4, 20), (3,), 5), ((2, 1, 3, 16), (4,), 9),
)  # fmt: skip


def hybrids() -> Iterator[Case]:
    """Yield the cases of BATCH_MATMUL of float rows and int8 matrices, which may be computed."""
    both = (False, True)
    for (a, batch, columns), right, form in itertools.product(
        _HYBRID_MATRICES, both, ("constant", "computed", "asymmetric")
    ):
        detail = f"{sizes(a)}_{sizes((*batch, a[-1], columns))}-{form}{'-adjoint_right' * right}"
        make = partial(_hybrid_product, a, batch, columns, right, form)
        yield case("batch_matmul", "hybrid", detail, make)


def _hybrid_product(a: Shape, batch: Shape, columns: int, right: bool, form: str) -> Graph:
    shape = (*batch, columns, a[-1]) if right else (*batch, a[-1], columns)
    values = integers(seeded(a, batch, columns, right), shape, "int8")
    b = tensor(shape, "int8", 0.05) if form == "computed" else constant(values, 0.05)
    options = {"adj_y": right, "asymmetric_quantize_inputs": form == "asymmetric"}
    version = 4 if form == "asymmetric" else 1
    return one("BATCH_MATMUL", [tensor(a), b], tensor(()), options, version)


_ROWS: tuple[tuple[Shape, Shape, bool, bool], ...] = (  # shapes, and which are adjoint
    ((1, 1), (1, 1), False, False), ((3, 4, 16), (3, 16, 16), False, False),
    ((2, 3, 7, 17), (3, 17, 33), False, True), ((1, 2, 9, 33), (2, 1, 33, 1), False, True),
    ((2, 1, 17, 11), (1, 3, 11, 19), False, True), ((2, 16, 3), (3, 33), True, True),
)  # fmt: skip


def edges() -> Iterator[Case]:
    """Yield more shapes of BATCH_MATMUL, constants, zero points, multipliers, and int16 by int8."""
    for kind in ("int8", "16x8", "float32"):
        for row in _ROWS:
            yield _product(kind, *row)
        yield _product(kind, (2, 1, 3, 3, 5), (4, 1, 5, 19), False, False, is_constant=True)
        yield _product(kind, (20, 11), (11, 9), False, True, is_constant=True)
    for left, right in itertools.product((-128, 127), repeat=2):
        yield _product("int8", (5, 11), (11, 9), False, False, zeros=(left, right, -left - 1))
    for multiplier in (1.7, 2.0**-20, 1e-12):
        yield _product("int8", (3, 5), (5, 4), False, False, multiplier=multiplier)
    for multiplier in (2.0**-18, 2.0**-15 / 3, 1.7):
        yield _product("16x8", (3, 33), (33, 4), False, False, multiplier=multiplier)
    for is_constant in (False, True):
        yield _product(
            "16x8", (5, 11), (11, 9), False, True, is_constant=is_constant, times_int8=True
        )


def _cumsum(kind: str, shape: Shape, axis: int, exclusive: bool, reverse: bool) -> Case:
    limits = None if kind == "float32" else (-10000.0, 10000.0)
    inputs = [tensor(shape, kind, limits=limits), numbers(axis)]
    options = {"exclusive": exclusive, "reverse": reverse}
    detail = f"in{sizes(shape)}-axis{axis}" + "-exclusive" * exclusive + "-reverse" * reverse
    return case("cumsum", kind, detail, one, "CUMSUM", inputs, tensor((), kind), options)
