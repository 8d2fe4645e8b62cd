# SPDX-License-Identifier: Apache-2.0
"""Ops on a picture's height and width: windows inside, across and outside the borders, resizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tflite_opencl.common.build import Case, Shape, numbers, sizes
from tflite_opencl.conformance.cases._rows import Row, cases_of

_KINDS = ("uint8", "int8", "16x8", "float32")
_VERSIONS = {"int8": 2, "int16": 3}
_SIZES = ((7, 5, 3), (8, 8, 16), (9, 6, 33), (1, 1, 5), (14, 3, 1))
_WINDOWS = (
    ((2, 2), (2, 2)),
    ((3, 3), (1, 1)),
    ((3, 3), (2, 2)),
    ((1, 3), (1, 2)),
    ((7, 5), (1, 1)),
)
_RESIZES = (
    ((1, 3, 5, 3), (7, 11)),
    ((2, 4, 3, 5), (8, 6)),
    ((1, 5, 3, 16), (15, 9)),
    ((1, 1, 1, 21), (3, 2)),
    ((1, 13, 17, 4), (5, 3)),
    ((1, 7, 5, 1), (1, 1)),
    ((1, 6, 6, 33), (6, 6)),
)


def pools() -> Iterator[Case]:
    """Yield the cases of AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D."""
    yield from cases_of(_pools("AVERAGE_POOL_2D"), _KINDS)
    yield from cases_of(_pools("MAX_POOL_2D"), _KINDS)
    yield from cases_of(_pools("L2_POOL_2D"), ("float32",))


def _pools(op: str) -> Iterator[Row]:
    for size, (window, stride), padding in itertools.product(_SIZES, _WINDOWS, ("SAME", "VALID")):
        if padding == "SAME" or all(map(int.__le__, window, size)):
            yield _pool(op, (1, *size), window, stride, padding)
    for fused in ("RELU", "RELU6"):
        yield _pool(op, (1, 6, 6, 8), (2, 2), (2, 2), "SAME", fused)
    for batch in (2, 3):
        yield _pool(op, (batch, 5, 4, 6), (3, 3), (2, 2), "SAME")


def _pool(
    op: str,
    shape: Shape,
    window: tuple[int, int],
    stride: tuple[int, int],
    padding: str,
    fused: str = "NONE",
) -> Row:
    n, *size, c = shape
    height, width = (
        -(-(side if padding == "SAME" else side - k + 1) // step)
        for side, k, step in zip(size, window, stride, strict=True)
    )
    detail = f"in{sizes(shape)}-k{sizes(window)}-stride{sizes(stride)}-{padding.lower()}"
    detail += "" if fused == "NONE" else f"-{fused.lower()}"
    options = {
        "padding": padding,
        "filter_height": window[0],
        "filter_width": window[1],
        "stride_h": stride[0],
        "stride_w": stride[1],
        "fused_activation_function": fused,
    }
    return Row(op, detail, [shape], [(n, height, width, c)], options, _VERSIONS)


def resizes() -> Iterator[Case]:
    """Yield the cases of RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR."""
    for op in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"):
        yield from cases_of(_resizes(op), _KINDS)


def _resizes(op: str) -> Iterator[Row]:
    versions = dict.fromkeys(("uint8", "int8", "int16", "float32"), 3)
    centers = "align_corners", "half_pixel_centers"
    for (shape, size), center in itertools.product(_RESIZES, ("", *centers)):
        detail = f"in{sizes(shape)}-to{sizes(size)}" + (f"-{center}" if center else "")
        options = {name: name == center for name in centers}
        out = (shape[0], *size, shape[3])
        yield Row(op, detail, [shape, numbers(size)], [out], options, versions)
