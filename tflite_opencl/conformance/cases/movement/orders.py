# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE and REVERSE_V2, which change the order; TILE and BROADCAST_TO, which repeat."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tflite_opencl.common.build import Shape, numbers, sizes
from tflite_opencl.conformance.cases.movement.row import ALL, Inputs, Moved, Row, joined, without

_TRANSPOSES: tuple[tuple[Shape, Shape], ...] = (
    ((1, 5, 4, 3), (0, 3, 1, 2)),
    ((1, 5, 4, 3), (0, 2, 3, 1)),
    ((7, 5), (1, 0)),
    ((2, 3, 4), (2, 0, 1)),
    ((2, 3, 4, 5, 6), (4, 2, 0, 1, 3)),
    ((1, 8, 8, 16), (0, 3, 1, 2)),
)
_REVERSALS: tuple[tuple[Shape, Shape], ...] = (
    ((1, 5, 4, 3), (1,)),
    ((2, 7), (0,)),
    ((6, 5, 4), (2,)),
    ((2, 3, 4), (0, 1)),
)
_TILES: tuple[tuple[Shape, Shape], ...] = (
    ((2, 3), (2, 3)),
    ((1, 4, 5, 3), (1, 2, 1, 2)),
    ((7,), (5,)),
)
_BROADCASTS: tuple[tuple[Shape, Shape], ...] = (
    ((1, 1, 3), (4, 5, 3)),
    ((5,), (2, 5)),
    ((2, 1, 4), (2, 6, 4)),
    ((), (3, 2)),
)


def rows() -> Iterator[Row]:
    """Yield this family's rows."""
    for shape, order in _TRANSPOSES:
        out = tuple(shape[axis] for axis in order)
        detail = f"in{sizes(shape)}-order{joined(order)}"
        inputs: Inputs = [Moved(shape), numbers(order)]
        yield Row("TRANSPOSE", ALL, detail, inputs, [out], versions={"int8": 2})
    for shape, axes in _REVERSALS:
        detail = f"in{sizes(shape)}-axes{joined(axes)}"
        yield Row("REVERSE_V2", ALL, detail, [Moved(shape), numbers(axes)], [shape])
    for shape, times in _TILES:
        out = np.tile(np.zeros(shape), times).shape
        detail = f"in{sizes(shape)}-times{sizes(times)}"
        yield Row("TILE", without("16x8"), detail, [Moved(shape), numbers(times)], [out])
    for shape, out in _BROADCASTS:
        detail = f"in{sizes(shape)}-to{sizes(out)}"
        versions = {**dict.fromkeys(ALL, 2), "int8": 3, "uint8": 3, "int16": 3}
        inputs = [Moved(shape), numbers(out)]
        yield Row("BROADCAST_TO", ALL, detail, inputs, [out], versions=versions)
