# SPDX-License-Identifier: Apache-2.0
"""GATHER, GATHER_ND and ONE_HOT: values placed by indices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tflite_opencl.common.build import Shape, numbers, sizes, tensor
from tflite_opencl.conformance.cases.movement.row import ALL, Moved, Row, without

_GATHERS: tuple[tuple[Shape, int, Any], ...] = (  # shape, axis, indices
    ((5, 7), 0, (4, 0, 0, 2)),
    ((1, 5, 4, 3), 2, (3, 1)),
    ((2, 3, 8), -1, ((0, 7), (1, 1))),
    ((9,), 0, 4),
)
_POINTS: tuple[tuple[Shape, Any], ...] = (  # shape, indices of its first dimensions
    ((4, 5), ((0, 0), (3, 4))),
    ((4, 5, 3), ((1,), (3,))),
    ((2, 6, 4), (((0, 1), (1, 5)),)),
)
_ONE_HOTS: tuple[tuple[Shape, int, int], ...] = (  # shape, depth, axis
    ((3,), 4, -1),
    ((2, 5), 3, 0),
    ((2, 3), 7, 1),
)


def rows() -> Iterator[Row]:
    """Yield this family's rows."""
    for shape, axis, places in _GATHERS:
        where = np.asarray(places)
        yield Row(
            "GATHER",
            ALL,
            f"in{sizes(shape)}-axis{axis}-at{sizes(where.shape)}",
            [Moved(shape), numbers(where)],
            [np.take(np.zeros(shape), where, axis).shape],
            {"axis": axis, "batch_dims": 0},
            {"int8": 2, "bool": 3, "int16": 4},
        )
    for shape, places in _POINTS:
        where = np.asarray(places)
        yield Row(
            "GATHER_ND",
            ALL,
            f"in{sizes(shape)}-at{sizes(where.shape)}",
            [Moved(shape), numbers(where)],
            [(*where.shape[:-1], *shape[where.shape[-1] :])],
            versions={"int8": 2, "int16": 3, "bool": 5},
        )
    for shape, depth, axis in _ONE_HOTS:
        place = axis if axis >= 0 else len(shape)
        indices = tensor(shape, "int32", limits=(-1, depth))
        yield Row(
            "ONE_HOT",
            without("16x8"),
            f"in{sizes(shape)}-depth{depth}-axis{axis}",
            [indices, numbers(depth), Moved((), 9), Moved((), 0)],
            [(*shape[:place], depth, *shape[place:])],
            {"axis": axis},
        )
