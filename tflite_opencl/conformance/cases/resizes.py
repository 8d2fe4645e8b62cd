# SPDX-License-Identifier: Apache-2.0
"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tflite_opencl.conformance.cases._rows import PICTURES, NodeTemplate, cases_of
from tflite_opencl.models.build import Case, Shape, numbers, sizes

_BILINEAR, _NEAREST = "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"
_CENTERS = ("align_corners", "half_pixel_centers")
_Sizes = tuple[tuple[Shape, Shape], ...]  # the input, and the output's height and width
_SIZES: _Sizes = (
    ((1, 3, 5, 3), (7, 11)), ((2, 4, 3, 5), (8, 6)), ((1, 5, 3, 16), (15, 9)),
    ((1, 1, 1, 21), (3, 2)), ((1, 13, 17, 4), (5, 3)), ((1, 7, 5, 1), (1, 1)),
    ((1, 6, 6, 33), (6, 6)),
)  # fmt: skip
# Multiples, with and without the corners, and three pictures.
_MORE_SIZES: _Sizes = (
    ((1, 5, 3, 16), (65, 33)), ((1, 3, 3, 19), (33, 17)), ((3, 13, 17, 4), (5, 3)),
    ((1, 3, 5, 21), (12, 5)), ((1, 3, 5, 21), (96, 5)),
)  # fmt: skip


def cases() -> Iterator[Case]:
    """Yield both ops, each with corners aligned, with half pixels, and with neither."""
    for op in (_BILINEAR, _NEAREST):
        yield from cases_of(_rows(op, _SIZES), PICTURES)


def edges() -> Iterator[Case]:
    """Yield more sizes, more types, and both options at once."""
    for op in (_BILINEAR, _NEAREST):
        yield from cases_of(_rows(op, _MORE_SIZES), PICTURES)
    yield from cases_of(_rows(_NEAREST, _SIZES[:3]), ("int32", "bool"))
    both = [resize(_NEAREST, (1, 3, 5, 3), size, *_CENTERS) for size in ((7, 11), (2, 1), (3, 5))]
    yield from cases_of(both, ("uint8",))


def _rows(op: str, of: _Sizes) -> Iterator[NodeTemplate]:
    for (shape, size), center in itertools.product(of, ("", *_CENTERS)):
        yield resize(op, shape, size, *([center] if center else []))


def resize(op: str, shape: Shape, size: Shape, *centers: str) -> NodeTemplate:
    """Return one resize to a height and width; `centers`: the options that are set."""
    detail = "-".join([f"in{sizes(shape)}-to{sizes(size)}", *centers])
    options = {name: name in centers for name in _CENTERS}
    versions = dict.fromkeys(("uint8", "int8", "int16", "float32", "int32", "bool"), 3)
    return NodeTemplate(op, detail, [shape, numbers(size)], options, versions)
