# SPDX-License-Identifier: Apache-2.0
"""MEAN, SUM, REDUCE_*, ARG_MAX and ARG_MIN: every way the axes can lie."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from delegate.inspect import Graph
from tflite_opencl.common.build import (
    Case,
    case,
    dtype_of,
    numbers,
    one,
    same,
    sizes,
    tensor,
    usual,
)

_SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((2, 5, 4, 17), (1, 2)),
    ((1, 7, 7, 32), (1, 2)),
    ((3, 37), (-1,)),
    ((40,), (0,)),
    ((2, 3, 4, 5), (0, 2)),
    ((2, 3, 4, 19), (0, -1)),
    ((3, 4, 5, 3), (3, 1, 0, 2)),
    ((1, 9, 11, 16), (2, 1)),
    ((1, 1, 1, 8), (1, 2)),
    ((3, 2, 9), (1,)),
)
# Rows whose last element is the first of a round: kernels search eight elements a round.
_ROWS = (((23, 9), (1,)), ((23, 17), (-1,)))
_KINDS = {
    "MEAN": ("uint8", "int8", "16x8", "float32"),
    "SUM": ("uint8", "int8", "16x8", "float32", "int32"),
    "REDUCE_MAX": ("uint8", "int8", "16x8", "float32", "int32", "int64"),
    "REDUCE_MIN": ("uint8", "int8", "16x8", "float32", "int32", "int64"),
    "REDUCE_PROD": ("float32", "int32"),
    "REDUCE_ANY": ("bool",),
    "REDUCE_ALL": ("bool",),
    "ARG_MAX": ("uint8", "int8", "float32", "int32", "bool"),
    "ARG_MIN": ("uint8", "int8", "float32", "int32"),
}


def cases() -> Iterator[Case]:
    """Yield this family's cases."""
    for op, kinds in _KINDS.items():
        for kind in kinds:
            for shape, axes in (*_SHAPES, *(_ROWS if op.startswith("ARG") else ())):
                if op.startswith("ARG"):
                    for index in ("int32", "int64"):
                        detail = f"in{sizes(shape)}-axis{axes[0]}-{index}"
                        yield case(op.lower(), kind, detail, _arg, op, kind, shape, axes[0], index)
                    continue
                if (op, kind) == ("REDUCE_PROD", "int32") and shape == (1, 7, 7, 32):
                    continue  # products of so many are 0
                for keep in (False, True):
                    detail = f"in{sizes(shape)}-axes{'_'.join(map(str, axes))}"
                    detail += "-keep_dims" if keep else ""
                    yield case(op.lower(), kind, detail, _reduced, op, kind, shape, axes, keep)
    for op, kind in itertools.product(("MEAN", "SUM"), ("uint8", "int8", "16x8")):
        # Results in the middle of the range, which roundings of several kinds tell apart.
        shape, scales = (8, 7, 7, 32), (0.05, 0.37 if op == "SUM" else 0.07)
        detail = f"in{sizes(shape)}-axes1_2-scales{scales[0]:g}_{scales[1]:g}"
        args = (op, kind, shape, (1, 2), False, scales)
        yield case(op.lower(), kind, detail, _reduced, *args)


def _reduced(
    op: str,
    kind: str,
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    keep: bool,
    scales: tuple[float, float] | None = None,
) -> Graph:
    over = {axis % len(shape) for axis in axes}
    out = tuple(
        1 if axis in over else size for axis, size in enumerate(shape) if keep or axis not in over
    )
    dtype = dtype_of(kind)
    result = usual(out, dtype, True) if op in ("MEAN", "SUM") else same(out, dtype)
    limits = (-4, 4) if op == "REDUCE_PROD" and dtype == "int32" else None
    source = usual(shape, dtype, limits=limits)
    if scales is not None:
        zeros = {"uint8": (131, 120), "int8": (3, -8)}.get(dtype, (0, 0))
        source, result = (
            tensor(*each) for each in zip((shape, out), (dtype, dtype), scales, zeros, strict=True)
        )
    version = 1 if op in ("REDUCE_ANY", "REDUCE_ALL") else 2
    return one(op, [source, numbers(axes)], [result], {"keep_dims": keep}, version)


def _arg(op: str, kind: str, shape: tuple[int, ...], axis: int, index: str) -> Graph:
    out = tuple(size for i, size in enumerate(shape) if i != axis % len(shape))
    source = usual(shape, dtype_of(kind))
    version = {"float32": 1, "int8": 2, "uint8": 1, "int32": 1}.get(kind, 3)
    return one(op, [source, numbers(axis)], [tensor(out, index)], {"output_type": index}, version)
