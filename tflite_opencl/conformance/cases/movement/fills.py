# SPDX-License-Identifier: Apache-2.0
"""FILL: one value everywhere."""

from __future__ import annotations

from collections.abc import Iterator

from tflite_opencl.common.build import Shape, numbers, sizes
from tflite_opencl.conformance.cases.movement.row import Inputs, Moved, Row, without

_SHAPES: tuple[Shape, ...] = ((1,), (5, 7), (2, 3, 4, 5))


def rows() -> Iterator[Row]:
    """Yield this family's rows."""
    for shape in _SHAPES:
        inputs: Inputs = [numbers(shape), Moved(())]
        yield Row("FILL", without("uint8"), f"to{sizes(shape)}", inputs, [shape])
