# SPDX-License-Identifier: Apache-2.0
"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR: multiples, fractions, centres."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from delegate.inspect import Graph
from tflite_opencl.common.build import Case, case, dtype_of, numbers, one, same, sizes

_SIZES = (
    ((1, 3, 5, 3), (7, 11)),
    ((2, 4, 3, 5), (8, 6)),
    ((1, 5, 3, 16), (15, 9)),
    ((1, 1, 1, 21), (3, 2)),
    ((1, 13, 17, 4), (5, 3)),
    ((1, 7, 5, 1), (1, 1)),
    ((1, 6, 6, 33), (6, 6)),
)


def cases() -> Iterator[Case]:
    """Yield this family's cases."""
    for op, kind, (shape, size), centers in itertools.product(
        ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"),
        ("uint8", "int8", "16x8", "float32"),
        _SIZES,
        ("", "align_corners", "half_pixel_centers"),
    ):
        detail = f"in{sizes(shape)}-to{sizes(size)}" + (f"-{centers}" if centers else "")
        yield case(op.lower(), kind, detail, _graph, op, kind, shape, size, centers)


def _graph(
    op: str, kind: str, shape: tuple[int, ...], size: tuple[int, int], centers: str
) -> Graph:
    dtype = dtype_of(kind)
    out = same((shape[0], *size, shape[3]), dtype)
    options = {name: centers == name for name in ("align_corners", "half_pixel_centers")}
    return one(op, [same(shape, dtype), numbers(size)], [out], options, 3)
