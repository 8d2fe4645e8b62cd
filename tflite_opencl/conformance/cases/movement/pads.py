# SPDX-License-Identifier: Apache-2.0
"""PAD, PADV2 and MIRROR_PAD: a tensor with a border."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tflite_opencl.common.build import Shape, numbers, sizes
from tflite_opencl.conformance.cases.movement.row import Inputs, Moved, Row, pairs, without

_PADS: tuple[tuple[Shape, tuple[tuple[int, int], ...]], ...] = (  # shape, (before, after) an axis
    ((1, 5, 4, 3), ((0, 0), (1, 1), (1, 1), (0, 0))),
    ((1, 5, 4, 3), ((0, 0), (0, 1), (2, 0), (0, 0))),
    ((1, 5, 4, 3), ((0, 0), (0, 0), (0, 0), (1, 2))),
    ((2, 3, 4, 17), ((1, 0), (0, 2), (3, 1), (0, 0))),
    ((6, 5), ((1, 2), (0, 3))),
)


def rows() -> Iterator[Row]:
    """Yield this family's rows."""
    for shape, edges in _PADS:
        out = np.pad(np.zeros(shape), edges).shape
        detail = f"in{sizes(shape)}-by{pairs(edges)}"
        inputs: Inputs = [Moved(shape), numbers(edges)]
        versions = {"int8": 2, "int16": 2}
        yield Row("PAD", without("bool"), detail, inputs, [out], versions=versions)
        inputs_with_value = [*inputs, Moved((), 7)]
        kinds = without("16x8", "bool")
        yield Row("PADV2", kinds, detail, inputs_with_value, [out], versions={"int8": 2})
        # TFLite repeats no more elements than the axis has.
        if all(max(pair) < n for n, pair in zip(shape, edges, strict=True)):
            for mode in ("REFLECT", "SYMMETRIC"):
                named = f"{detail}-{mode.lower()}"
                yield Row("MIRROR_PAD", kinds, named, inputs, [out], {"mode": mode})
