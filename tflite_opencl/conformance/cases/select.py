# SPDX-License-Identifier: Apache-2.0
"""SELECT and SELECT_V2: a condition that has all dimensions, or is broadcast."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from delegate.inspect import Graph
from tflite_opencl.common.build import Case, case, one, same, sizes, tensor

Shape = tuple[int, ...]
_SHAPES: tuple[tuple[Shape, Shape, Shape], ...] = (
    ((1, 7, 5, 3),) * 3,
    ((1,),) * 3,
    ((1, 5, 4, 1), (1, 5, 4, 7), (1, 5, 4, 7)),
    ((2, 1, 9), (1, 6, 9), (2, 6, 1)),
    ((5,), (3, 5), (3, 1)),
    ((2, 1, 3, 1, 4), (1, 2, 1, 3, 4), (2, 2, 3, 3, 1)),
)


def cases() -> Iterator[Case]:
    """Yield this family's cases."""
    for kind in ("uint8", "int8", "float32", "int32", "bool", "int64"):
        for shapes in _SHAPES:
            detail = "_".join(map(sizes, dict.fromkeys(shapes)))
            yield case("select_v2", kind, detail, _graph, "SELECT_V2", kind, shapes)
        yield case("select", kind, "1x7x5x3", _graph, "SELECT", kind, _SHAPES[0])


def _graph(op: str, kind: str, shapes: tuple[Shape, Shape, Shape]) -> Graph:
    condition, *values = shapes
    inputs = [tensor(condition, "bool"), *(same(shape, kind) for shape in values)]
    return one(op, inputs, [same(np.broadcast_shapes(*shapes), kind)], {}, 1)
