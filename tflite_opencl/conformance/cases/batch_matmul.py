# SPDX-License-Identifier: Apache-2.0
"""BATCH_MATMUL and CUMSUM: adjoints, batches that are broadcast, sums from either end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from delegate.inspect import Graph
from tflite_opencl.common.build import Case, case, dtype_of, numbers, one, sizes, tensor

_SHAPES = (
    ((3, 5), (5, 4)),
    ((1, 7, 16), (1, 16, 9)),
    ((2, 4, 6), (2, 6, 33)),
    ((2, 3, 4, 5), (2, 3, 5, 2)),
    ((2, 1, 4, 5), (1, 3, 5, 6)),
)


def cases() -> Iterator[Case]:
    """Yield this family's cases."""
    for kind, shapes, left, right in itertools.product(
        ("int8", "16x8", "float32"), _SHAPES, (False, True), (False, True)
    ):
        detail = "_".join(map(sizes, shapes))
        detail += "-adjoint" if left or right else ""
        detail += "_left" * left + "_right" * right
        yield case("batch_matmul", kind, detail, _product, kind, shapes, left, right)
    for kind, (shape, axis), exclusive, reverse in itertools.product(
        ("float32", "int32", "int64"),
        (((7,), 0), ((3, 5), 1), ((2, 4, 6), -2)),
        (False, True),
        (False, True),
    ):
        detail = f"in{sizes(shape)}-axis{axis}" + "-exclusive" * exclusive + "-reverse" * reverse
        yield case("cumsum", kind, detail, _cumsum, kind, shape, axis, exclusive, reverse)


def _product(
    kind: str, shapes: tuple[tuple[int, ...], tuple[int, ...]], left: bool, right: bool
) -> Graph:
    dtype = dtype_of(kind)
    a, b = shapes
    out = (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])
    a = (*a[:-2], a[-1], a[-2]) if left else a
    b = (*b[:-2], b[-1], b[-2]) if right else b
    options = {"adj_x": left, "adj_y": right, "asymmetric_quantize_inputs": False}
    if kind == "float32":
        return one("BATCH_MATMUL", [tensor(a), tensor(b)], [tensor(out)], options, 1)
    scale = 0.05 if kind == "int8" else 0.0002
    zeros = (3, -8, -5) if kind == "int8" else (0, 0, 0)
    result = tensor(out, dtype, scale * 4, zeros[2])
    inputs = [tensor(a, dtype, scale, zeros[0]), tensor(b, dtype, scale, zeros[1])]
    return one("BATCH_MATMUL", inputs, [result], options, 2 if kind == "int8" else 3)


def _cumsum(kind: str, shape: tuple[int, ...], axis: int, exclusive: bool, reverse: bool) -> Graph:
    limits = None if kind == "float32" else (-10000.0, 10000.0)
    options = {"exclusive": exclusive, "reverse": reverse}
    source = tensor(shape, kind, limits=limits)
    return one("CUMSUM", [source, numbers(axis)], [tensor(shape, kind)], options, 1)
