# SPDX-License-Identifier: Apache-2.0
"""AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D: windows inside, across and outside the borders."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from delegate.inspect import Graph
from tflite_opencl.common.build import Case, case, dtype_of, one, same, sizes

_SIZES = ((7, 5, 3), (8, 8, 16), (9, 6, 33), (1, 1, 5), (14, 3, 1))
_WINDOWS = (
    ((2, 2), (2, 2)),
    ((3, 3), (1, 1)),
    ((3, 3), (2, 2)),
    ((1, 3), (1, 2)),
    ((7, 5), (1, 1)),
)
_KINDS = ("uint8", "int8", "16x8", "float32")


def cases() -> Iterator[Case]:
    """Yield this family's cases."""
    for op in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"):
        for kind in _KINDS if op != "L2_POOL_2D" else ("float32",):
            for size, (window, stride), padding in itertools.product(
                _SIZES, _WINDOWS, ("SAME", "VALID")
            ):
                if padding == "SAME" or all(map(int.__le__, window, size)):
                    yield _case(op, kind, (1, *size), window, stride, padding)
            for fused in ("RELU", "RELU6"):
                yield _case(op, kind, (1, 6, 6, 8), (2, 2), (2, 2), "SAME", fused)
            for batch in (2, 3):
                yield _case(op, kind, (batch, 5, 4, 6), (3, 3), (2, 2), "SAME")


def _case(
    op: str,
    kind: str,
    shape: tuple[int, ...],
    window: tuple[int, int],
    stride: tuple[int, int],
    padding: str,
    fused: str = "NONE",
) -> Case:
    detail = f"in{sizes(shape)}-k{sizes(window)}-stride{sizes(stride)}-{padding.lower()}"
    detail += "" if fused == "NONE" else f"-{fused.lower()}"
    return case(op.lower(), kind, detail, _graph, op, kind, shape, window, stride, padding, fused)


def _graph(
    op: str,
    kind: str,
    shape: tuple[int, ...],
    window: tuple[int, int],
    stride: tuple[int, int],
    padding: str,
    fused: str,
) -> Graph:
    out = [
        -(-(side if padding == "SAME" else side - k + 1) // step)
        for side, k, step in zip(shape[1:3], window, stride, strict=True)
    ]
    dtype = dtype_of(kind)
    options = {
        "padding": padding,
        "filter_height": window[0],
        "filter_width": window[1],
        "stride_h": stride[0],
        "stride_w": stride[1],
        "fused_activation_function": fused,
    }
    version = {"uint8": 1, "float32": 1, "int8": 2, "int16": 3}[dtype]
    return one(
        op, [same(shape, dtype)], [same((shape[0], *out, shape[3]), dtype)], options, version
    )
