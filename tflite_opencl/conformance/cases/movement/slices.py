# SPDX-License-Identifier: Apache-2.0
"""SLICE and STRIDED_SLICE: a box of a tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tflite_opencl.common.build import Shape, numbers, sizes
from tflite_opencl.conformance.cases.movement.row import ALL, Moved, Row, joined

_SLICES: tuple[tuple[Shape, Shape, Shape], ...] = (  # shape, begin, size; -1: to the end
    ((1, 7, 5, 3), (0, 2, 1, 0), (1, 3, 4, 3)),
    ((1, 7, 5, 8), (0, 0, 0, 3), (1, 7, 5, -1)),
    ((9,), (4,), (5,)),
    ((4, 5, 6), (1, 0, 2), (2, -1, 3)),
)
_STRIDED: tuple[tuple[Shape, Shape, Shape, Shape, Mapping[str, int]], ...] = (
    # shape, begin, end, strides, masks
    ((1, 7, 5, 3), (0, 1, 0, 0), (1, 6, 5, 3), (1, 2, 1, 1), {}),
    ((1, 7, 5, 3), (0, -1, 4, 0), (1, -8, 0, 3), (1, -2, -1, 1), {}),
    ((4, 9), (0, 0), (0, 0), (1, 3), {"begin_mask": 3, "end_mask": 3}),
    ((4, 9), (2, 1), (3, 8), (1, 2), {"shrink_axis_mask": 1}),
    ((2, 3, 8), (0, 0, 1), (2, 3, 8), (1, 1, 7), {"begin_mask": 1}),
)


def rows() -> Iterator[Row]:
    """Yield this family's rows."""
    for shape, begin, size in _SLICES:
        out = tuple(n - b if s < 0 else s for n, b, s in zip(shape, begin, size, strict=True))
        detail = f"in{sizes(shape)}-from{joined(begin)}-to{sizes(out)}"
        yield Row("SLICE", ALL, detail, [Moved(shape), numbers(begin), numbers(size)], [out])
    for shape, begin, end, strides, masks in _STRIDED:
        named = "".join(f"-{name}{value}" for name, value in masks.items())
        yield Row(
            "STRIDED_SLICE",
            ALL,
            f"in{sizes(shape)}-from{joined(begin)}-steps{joined(strides)}{named}",
            [Moved(shape), *map(numbers, (begin, end, strides))],
            [_strided(shape, begin, end, strides, masks)],
            masks,
            {"int8": 2, "bool": 3, "int16": 4},
        )


def _strided(
    shape: Shape, begin: Shape, end: Shape, strides: Shape, masks: Mapping[str, int]
) -> Shape:
    """Return the shape of the result, by numpy's slices."""

    def is_set(mask: str, axis: int) -> bool:
        return bool(masks.get(mask, 0) & (1 << axis))

    index: list[int | slice] = []
    for axis in range(len(shape)):
        if is_set("shrink_axis_mask", axis):
            index.append(begin[axis])
            continue
        first = None if is_set("begin_mask", axis) else begin[axis]
        last = None if is_set("end_mask", axis) else end[axis]
        index.append(slice(first, last, strides[axis]))
    return np.zeros(shape)[tuple(index)].shape
