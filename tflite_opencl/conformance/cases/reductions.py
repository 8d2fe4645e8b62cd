# SPDX-License-Identifier: Apache-2.0
"""Ops that reduce axes or matrices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from delegate.inspect import Graph
from tflite_opencl.conformance.cases._rows import ENDS, one, step
from tflite_opencl.models.build import (
    Case,
    Shape,
    case,
    dtype_of,
    graph,
    numbers,
    sizes,
    tensor,
    usual,
)  # fmt: skip

_REDUCED: tuple[tuple[Shape, Shape], ...] = (  # shape, axes
    ((2, 5, 4, 17), (1, 2)), ((1, 7, 7, 32), (1, 2)), ((3, 37), (-1,)), ((40,), (0,)),
    ((2, 3, 4, 5), (0, 2)), ((2, 3, 4, 19), (0, -1)), ((3, 4, 5, 3), (3, 1, 0, 2)),
    ((1, 9, 11, 16), (2, 1)), ((1, 1, 1, 8), (1, 2)), ((3, 2, 9), (1,)),
)  # fmt: skip
# Rows whose last element starts a new block: kernels search eight elements at a time.
_ROWS: tuple[tuple[Shape, Shape], ...] = (((23, 9), (1,)), ((23, 17), (-1,)))
_REDUCTIONS = {
    "MEAN": ("uint8", "int8", "16x8", "float32", "int64"),
    "SUM": ("uint8", "int8", "16x8", "float32", "int32", "int64"),
    "REDUCE_MAX": ("uint8", "int8", "16x8", "float32", "int32", "int64"),
    "REDUCE_MIN": ("uint8", "int8", "16x8", "float32", "int32", "int64"),
    "REDUCE_PROD": ("float32", "int32", "int64"),
    "REDUCE_ANY": ("bool",),
    "REDUCE_ALL": ("bool",),
    "ARG_MAX": ("uint8", "int8", "float32", "int32", "bool"),
    "ARG_MIN": ("uint8", "int8", "float32", "int32"),
}


# Kept and reduced axes in turns, repeated ones, only ones of size 1, and more elements.
_MORE_REDUCED: tuple[tuple[Shape, Shape], ...] = (
    ((2, 3, 4, 5, 6), (0, 2, 4)), ((2, 3, 4, 1, 5, 6), (1, -2)), ((1, 33, 29, 16), (2, 1, -3)),
    ((3, 2, 3, 9, 2), (3,)), ((1, 4, 1, 8), (0, 2)),
)  # fmt: skip
_MORE_MEANS: tuple[Shape, ...] = ((1, 64, 65, 2), (2, 3, 5, 4), (1, 2, 3, 15), (1, 7, 7, 64))
_MORE_PLACES: tuple[tuple[Shape, int], ...] = (
    ((5, 300), 1), ((3, 256), -1), ((2, 3, 4, 5, 3), 2), ((67, 8, 1), 1), ((5, 1), 1), ((7, 4), 1),
)  # fmt: skip
_RATIOS = ((0.1, 0.1), (0.5, 20.0), (1.0, 0.125), (1e-12, 1.0), (1.0, 0.001))
_SCALED = ("uint8", "int8", "16x8")


def reductions() -> Iterator[Case]:
    """Yield the cases of MEAN, SUM, REDUCE_*, ARG_MAX and ARG_MIN: all combinations of axes."""
    for op, kind in ((op, kind) for op, kinds in _REDUCTIONS.items() for kind in kinds):
        if op.startswith("ARG"):
            for (shape, axes), index in itertools.product((*_REDUCED, *_ROWS), ("int32", "int64")):
                yield _arg(op, kind, shape, axes[0], index)
            continue
        for (shape, axes), keep in itertools.product(_REDUCED, (False, True)):
            # Products of that many are 0.
            if (op, kind, shape) != ("REDUCE_PROD", "int32", (1, 7, 7, 32)):
                yield _reduced(op, kind, shape, axes, keep)
    for op, kind in itertools.product(("MEAN", "SUM"), _SCALED):
        # Results in the middle of the range, where different rounding modes are visible.
        scales = (0.05, 0.37 if op == "SUM" else 0.07)
        yield _reduced(op, kind, (8, 7, 7, 32), (1, 2), False, scales)


def edges() -> Iterator[Case]:
    """Yield more shapes of these ops, and the limits of scales and zero points."""
    for op in ("MEAN", "SUM", "REDUCE_MAX"):
        for kind, (number, more) in itertools.product(_REDUCTIONS[op], enumerate(_MORE_REDUCED)):
            yield _reduced(op, kind, *more, number % 2 == 0)
    for number, (shape, axes) in enumerate((*_REDUCED, *_MORE_REDUCED)):
        yield _reduced("MEAN", "int32", shape, axes, number % 2 == 0)
    for op, kind in itertools.product(("MEAN", "SUM"), _SCALED):
        for scales in _RATIOS if op == "MEAN" else _RATIOS[:-1]:
            yield _reduced(op, kind, (1, 7, 5, 3), (1, 2), False, scales)
        for zeros in itertools.product(ENDS.get(kind, ()), repeat=2):
            yield _reduced(op, kind, (1, 7, 5, 3), (1, 2), False, (0.1, 0.07), zeros)
    for shape, kind in itertools.product(_MORE_MEANS, ("uint8", "int8")):
        yield _reduced("MEAN", kind, shape, (1, 2), False)
        # With equal quantisations TFLite takes another path.
        yield _reduced("MEAN", kind, shape, (1, 2), True, (0.1, 0.1), (5, 5))
    for op in ("ARG_MAX", "ARG_MIN"):
        for kind, (number, row) in itertools.product(_REDUCTIONS[op], enumerate(_MORE_PLACES)):
            yield _arg(op, kind, *row, ("int32", "int64")[number % 2])


def _reduced(
    op: str,
    kind: str,
    shape: Shape,
    axes: Shape,
    keep: bool,
    scales: tuple[float, ...] = (),
    zeros: tuple[int, ...] = (),
) -> Case:
    detail = f"in{sizes(shape)}-axes{'_'.join(map(str, axes))}" + "-keep_dims" * keep
    detail += "-scales{:g}_{:g}".format(*scales) if scales else ""
    detail += "-zeros{}_{}".format(*zeros) if zeros else ""
    given = op, dtype_of(kind), shape, axes, keep, scales, zeros
    return case(op.lower(), kind, detail, reduction, *given)


def reduction(
    op: str,
    dtype: str,
    shape: Shape,
    axes: Shape,
    keep: bool = False,
    scales: tuple[float, ...] = (),
    zeros: tuple[int, ...] = (),
) -> Graph:
    """Return the model of MEAN, SUM or REDUCE_*; `scales`, `zeros`: the input's, the output's."""
    limits = (-4, 4) if (op, dtype) == ("REDUCE_PROD", "int32") else None
    source, result = usual(shape, dtype, limits=limits), usual((), dtype, op in ("MEAN", "SUM"))
    if scales:
        zeros = zeros or {"uint8": (131, 120), "int8": (3, -8)}.get(dtype, (0, 0))
        source, result = map(tensor, (shape, ()), (dtype, dtype), scales, zeros)
    version = 1 if op in ("REDUCE_ANY", "REDUCE_ALL") else 2
    return one(op, [source, numbers(axes)], result, {"keep_dims": keep}, version)


def _arg(op: str, kind: str, shape: Shape, axis: int, index: str) -> Case:
    detail = f"in{sizes(shape)}-axis{axis}-{index}"
    return case(op.lower(), kind, detail, arg, op, kind, shape, axis, index)


def arg(op: str, dtype: str, shape: Shape, axis: int, index: str = "int32") -> Graph:
    """Return the model of an ARG_MAX or ARG_MIN; `index`: the type of its results."""
    inputs, out = [usual(shape, dtype), numbers(axis)], tensor((), index)
    version = {"float32": 1, "int8": 2, "uint8": 1, "int32": 1}.get(dtype, 3)
    return one(op, inputs, out, {"output_type": index}, version)


_RANKED: tuple[tuple[Shape, int], ...] = (
    ((5,), 5), ((1, 1), 1), ((3, 65), 5), ((2, 3, 7), 3), ((1, 1001), 5), ((2, 300), 17),
    ((1, 257), 257), ((1, 8400), 300),
)  # fmt: skip


def ranks() -> Iterator[Case]:
    """Yield the cases of TOPK_V2: few elements of short and of long rows, and all of them."""
    for kind, (shape, count) in itertools.product(("uint8", "int8", "float32", "int32"), _RANKED):
        detail = f"in{sizes(shape)}-k{count}"
        yield case("topk_v2", kind, detail, _ranked, kind, shape, count)


def _ranked(kind: str, shape: Shape, count: int) -> Graph:
    # Few different integers, so that many are equal: the lower index comes first.
    limits = (-50.0, 50.0) if kind == "int32" else None
    source = usual(shape, kind, limits=limits)
    outputs = [usual((1,), kind), tensor((1,), "int32")]
    return graph([step("TOPK_V2", [source, numbers(count)], outputs)])
