# SPDX-License-Identifier: Apache-2.0
"""RESHAPE, SQUEEZE and EXPAND_DIMS: the same bytes in another shape."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tflite_opencl.common.build import Shape, numbers, sizes
from tflite_opencl.conformance.cases.movement.row import ALL, Inputs, Moved, Row, joined

_RESHAPES: tuple[tuple[Shape, Shape], ...] = (
    ((2, 3, 4), (24,)),
    ((1, 7, 5, 3), (1, 105)),
    ((1,), (1, 1, 1)),
    ((6, 4), (2, 3, -1)),
)
_SQUEEZES: tuple[tuple[Shape, Shape], ...] = (  # shape, dimensions to drop; none given: all of 1
    ((1, 5, 1, 3), ()),
    ((1, 5, 1, 3), (0,)),
    ((2, 1, 3), (-2,)),
)
_EXPANSIONS: tuple[tuple[Shape, int], ...] = (((5, 3), 0), ((5, 3), -1), ((2, 3, 4), 1))


def rows() -> Iterator[Row]:
    """Yield this family's rows."""
    for shape, wanted in _RESHAPES:
        out = np.zeros(shape).reshape(wanted).shape
        detail = f"in{sizes(shape)}-to{sizes(out)}" + "-computed" * (-1 in wanted)
        inputs: Inputs = [Moved(shape), numbers(wanted)]
        yield Row("RESHAPE", ALL, detail, inputs, [out], {"new_shape": wanted})
    for shape, dims in _SQUEEZES:
        axes = tuple(axis % len(shape) for axis in dims)
        out = np.zeros(shape).squeeze(axes or None).shape
        detail = f"in{sizes(shape)}-dims{joined(dims) or 'all'}"
        yield Row("SQUEEZE", ALL, detail, [Moved(shape)], [out], {"squeeze_dims": dims})
    for shape, axis in _EXPANSIONS:
        out = np.expand_dims(np.zeros(shape), axis).shape
        detail = f"in{sizes(shape)}-axis{axis}"
        yield Row("EXPAND_DIMS", ALL, detail, [Moved(shape), numbers(axis)], [out])
