# SPDX-License-Identifier: Apache-2.0
"""Pooling of pictures: AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from delegate.inspect import Graph, Tensor
from tflite_opencl.conformance.cases._rows import ENDS, PICTURES, VERSIONS, one
from tflite_opencl.models.build import Case, Shape, case, dtype_of, sizes, tensor, usual

_Pair = tuple[int, int]

_OPS = {"AVERAGE_POOL_2D": PICTURES, "MAX_POOL_2D": PICTURES, "L2_POOL_2D": ("float32",)}
_POOLED = ((7, 5, 3), (8, 8, 16), (9, 6, 33), (1, 1, 5), (14, 3, 1))
_WINDOWS: tuple[tuple[_Pair, _Pair], ...] = (  # window, stride
    ((2, 2), (2, 2)), ((3, 3), (1, 1)), ((3, 3), (2, 2)), ((1, 3), (1, 2)), ((7, 5), (1, 1)),
)  # fmt: skip


def cases() -> Iterator[Case]:
    """Yield all windows over all pictures."""
    for op, kinds in _OPS.items():
        for kind in kinds:
            yield from _cases(op, kind)


def edges() -> Iterator[Case]:
    """Yield gaps between windows, windows of one pixel and of a whole picture, and zero points."""
    for op, kinds in _OPS.items():
        for kind in kinds:
            yield from _edges(op, kind)


def _cases(op: str, kind: str) -> Iterator[Case]:
    for size, (window, stride), padding in itertools.product(_POOLED, _WINDOWS, ("SAME", "VALID")):
        if padding == "SAME" or all(map(int.__le__, window, size)):
            yield _case(op, kind, (1, *size), window, stride, padding)
    for fused in ("RELU", "RELU6"):
        yield _case(op, kind, (1, 6, 6, 8), (2, 2), (2, 2), fused=fused)
    for batch in (2, 3):
        yield _case(op, kind, (batch, 5, 4, 6), (3, 3), (2, 2))


def _edges(op: str, kind: str) -> Iterator[Case]:
    yield _case(op, kind, (3, 13, 11, 1), (2, 2), (3, 5))
    yield _case(op, kind, (1, 7, 7, 11), (7, 7), (1, 1), "VALID")
    yield _case(op, kind, (2, 5, 3, 4), (3, 3), (1, 1))
    for depth in (63, 64, 65):
        yield _case(op, kind, (1, 1, 1, depth), (1, 1), (1, 1), "VALID")
    yield _case(op, kind, (1, 6, 6, 8), (2, 2), (2, 2), fused="RELU_N1_TO_1")
    for zero in ENDS.get(kind, ()):
        yield _case(op, kind, (2, 5, 3, 17), (3, 3), (1, 1), zero=zero)
        yield _case(op, kind, (1, 7, 5, 3), (3, 3), (1, 1), fused="RELU_N1_TO_1", zero=zero)


def _case(
    op: str,
    kind: str,
    shape: Shape,
    window: _Pair,
    stride: _Pair,
    padding: str = "SAME",
    fused: str = "NONE",
    zero: int | None = None,
) -> Case:
    detail = f"in{sizes(shape)}-k{sizes(window)}-stride{sizes(stride)}-{padding.lower()}"
    detail += "" if fused == "NONE" else f"-{fused.lower()}"
    detail += "" if zero is None else f"-zero{zero}"
    arguments = op, dtype_of(kind), shape, window, stride, padding, fused
    return case(op.lower(), kind, detail, pool, *arguments, None if zero is None else (0.04, zero))


def pool(
    op: str,
    dtype: str,
    shape: Shape,
    window: _Pair,
    stride: _Pair = (1, 1),
    padding: str = "SAME",
    fused: str = "NONE",
    quantization: tuple[float, int] | None = None,
) -> Graph:
    """Return the model of a pool; `quantization`: scale and zero point, if not the default ones."""

    def picture(shape: Shape) -> Tensor:
        return tensor(shape, dtype, *quantization) if quantization else usual(shape, dtype)

    options = {
        "padding": padding, "filter_height": window[0], "filter_width": window[1],
        "stride_h": stride[0], "stride_w": stride[1], "fused_activation_function": fused,
    }  # fmt: skip
    return one(op, [picture(shape)], picture((1,)), options, VERSIONS.get(dtype, 1))
