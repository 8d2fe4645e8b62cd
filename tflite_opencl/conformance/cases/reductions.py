# SPDX-License-Identifier: Apache-2.0
"""Ops that reduce axes, rows, matrices, or windows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

from delegate.inspect import Graph, Tensor
from tflite_opencl.conformance.cases._rows import UNIT, VERSIONS, NodeTemplate, cases_of, one, step
from tflite_opencl.models.build import (
    USUAL,
    Case,
    Shape,
    case,
    constant,
    dtype_of,
    graph,
    integers,
    numbers,
    seeded,
    sizes,
    tensor,
    usual,
)  # fmt: skip

_PICTURES = ("uint8", "int8", "16x8", "float32")
_REDUCED: tuple[tuple[Shape, Shape], ...] = (  # shape, axes
    ((2, 5, 4, 17), (1, 2)), ((1, 7, 7, 32), (1, 2)), ((3, 37), (-1,)), ((40,), (0,)),
    ((2, 3, 4, 5), (0, 2)), ((2, 3, 4, 19), (0, -1)), ((3, 4, 5, 3), (3, 1, 0, 2)),
    ((1, 9, 11, 16), (2, 1)), ((1, 1, 1, 8), (1, 2)), ((3, 2, 9), (1,)),
)  # fmt: skip
# Rows whose last element starts a new block: kernels search eight elements at a time.
_ROWS: tuple[tuple[Shape, Shape], ...] = (((23, 9), (1,)), ((23, 17), (-1,)))
_REDUCTIONS = {
    "MEAN": ("uint8", "int8", "16x8", "float32", "int64"),
    "SUM": ("uint8", "int8", "16x8", "float32", "int32", "int64"),
    "REDUCE_MAX": ("uint8", "int8", "16x8", "float32", "int32", "int64"),
    "REDUCE_MIN": ("uint8", "int8", "16x8", "float32", "int32", "int64"),
    "REDUCE_PROD": ("float32", "int32", "int64"),
    "REDUCE_ANY": ("bool",),
    "REDUCE_ALL": ("bool",),
    "ARG_MAX": ("uint8", "int8", "float32", "int32", "bool"),
    "ARG_MIN": ("uint8", "int8", "float32", "int32"),
}


def reductions() -> Iterator[Case]:
    """Yield the cases of MEAN, SUM, REDUCE_*, ARG_MAX and ARG_MIN: all combinations of axes."""
    for op, kind in ((op, kind) for op, kinds in _REDUCTIONS.items() for kind in kinds):
        if op.startswith("ARG"):
            for (shape, axes), index in itertools.product((*_REDUCED, *_ROWS), ("int32", "int64")):
                yield _arg(op, kind, shape, axes[0], index)
            continue
        for (shape, axes), keep in itertools.product(_REDUCED, (False, True)):
            # Products of that many are 0.
            if (op, kind, shape) != ("REDUCE_PROD", "int32", (1, 7, 7, 32)):
                yield _reduced(op, kind, shape, axes, keep)
    for op, kind in itertools.product(("MEAN", "SUM"), ("uint8", "int8", "16x8")):
        # Results in the middle of the range, where different rounding modes are visible.
        scales = (0.05, 0.37 if op == "SUM" else 0.07)
        yield _reduced(op, kind, (8, 7, 7, 32), (1, 2), False, scales)


def _reduced(
    op: str,
    kind: str,
    shape: Shape,
    axes: Shape,
    keep: bool,
    scales: tuple[float, ...] = (),
) -> Case:
    dtype = dtype_of(kind)
    limits = (-4, 4) if (op, dtype) == ("REDUCE_PROD", "int32") else None
    source, result = usual(shape, dtype, limits=limits), usual((), dtype, op in ("MEAN", "SUM"))
    if scales:
        zeros = {"uint8": (131, 120), "int8": (3, -8)}.get(dtype, (0, 0))
        source, result = map(tensor, (shape, ()), (dtype, dtype), scales, zeros)
    detail = f"in{sizes(shape)}-axes{'_'.join(map(str, axes))}" + "-keep_dims" * keep
    detail += "-scales{:g}_{:g}".format(*scales) if scales else ""
    inputs, version = [source, numbers(axes)], 1 if op in ("REDUCE_ANY", "REDUCE_ALL") else 2
    return case(op.lower(), kind, detail, one, op, inputs, result, {"keep_dims": keep}, version)


def _arg(op: str, kind: str, shape: Shape, axis: int, index: str) -> Case:
    inputs, out = [usual(shape, dtype_of(kind)), numbers(axis)], tensor((), index)
    version = {"float32": 1, "int8": 2, "uint8": 1, "int32": 1}.get(kind, 3)
    detail, options = f"in{sizes(shape)}-axis{axis}-{index}", {"output_type": index}
    return case(op.lower(), kind, detail, one, op, inputs, out, options, version)


_LINES: tuple[Shape, ...] = (
    (1, 2), (3, 5), (1, 10), (2, 64), (4, 65), (1, 511), (1, 1001), (2, 3, 4, 17), (5, 1),
)  # fmt: skip
_OUT = {
    "SOFTMAX": UNIT,
    "LOG_SOFTMAX": {"uint8": (16 / 256, 255), "int8": (16 / 256, 127)},
    "L2_NORMALIZATION": {"uint8": (1 / 128, 128), "int8": (1 / 128, 0)},
}


def softmaxes() -> Iterator[Case]:
    """Yield the cases of SOFTMAX, LOG_SOFTMAX and L2_NORMALIZATION: rows of all lengths."""
    for kind, shape, beta in itertools.product(
        ("uint8", "int8", "16x8", "float32"), _LINES, (1.0, 0.3)
    ):
        if kind in ("16x8", "float32"):
            yield _of_rows("SOFTMAX", kind, shape, None, beta)
        elif shape[-1] <= 511:  # more equal values would sum to 512, and the reference aborts
            yield from (_of_rows("SOFTMAX", kind, shape, scale, beta) for scale in (0.1, 0.01))
    for op, kind, shape in itertools.product(
        ("LOG_SOFTMAX", "L2_NORMALIZATION"), ("uint8", "int8", "float32"), _LINES
    ):
        for scale in (None,) if kind == "float32" else (0.1, 0.02):
            yield _of_rows(op, kind, shape, scale)


def _of_rows(
    op: str, kind: str, shape: Shape, scale: float | None, beta: float | None = None
) -> Case:
    dtype, detail = dtype_of(kind), f"in{sizes(shape)}"
    options: dict[str, Any] = {} if beta is None else {"beta": beta}
    detail += "" if beta is None else f"-beta{beta:g}"
    detail += "" if scale is None else f"-scale{scale:g}"
    source, out = tensor(shape), tensor(())
    if dtype != "float32":
        source = tensor(shape, dtype, scale or 10 / 32768, USUAL[dtype][0][1])
        out = tensor((), dtype, *_OUT[op][dtype])
    version = VERSIONS.get(dtype, 1)
    return case(op.lower(), kind, detail, one, op, [source], out, options, version)


_MATRICES: tuple[tuple[Shape, Shape], ...] = (
    ((3, 5), (5, 4)), ((1, 7, 16), (1, 16, 9)), ((2, 4, 6), (2, 6, 33)),
    ((2, 3, 4, 5), (2, 3, 5, 2)), ((2, 1, 4, 5), (1, 3, 5, 6)),
)  # fmt: skip


def products() -> Iterator[Case]:
    """Yield the cases of BATCH_MATMUL, with adjoints and broadcast batches, and of CUMSUM."""
    both = (False, True)
    for kind, (a, b), left, right in itertools.product(
        ("int8", "16x8", "float32"), _MATRICES, both, both
    ):
        yield _product(kind, a, b, left, right)
    for kind, (shape, axis), exclusive, reverse in itertools.product(
        ("float32", "int32", "int64"), (((7,), 0), ((3, 5), 1), ((2, 4, 6), -2)), both, both
    ):
        yield _cumsum(kind, shape, axis, exclusive, reverse)


def _product(kind: str, a: Shape, b: Shape, left: bool, right: bool) -> Case:
    detail = f"{sizes(a)}_{sizes(b)}" + "-adjoint" * (left or right)
    detail += "_left" * left + "_right" * right

    def made(shape: Shape, factor: int, zero: int) -> Tensor:
        scale = {"int8": 0.05, "16x8": 0.0002}.get(kind)
        if scale is None:
            return tensor(shape)
        return tensor(shape, dtype_of(kind), scale * factor, zero if kind == "int8" else 0)

    inputs = [
        made((*a[:-2], a[-1], a[-2]) if left else a, 1, 3),
        made((*b[:-2], b[-1], b[-2]) if right else b, 1, -8),
    ]
    options = {"adj_x": left, "adj_y": right, "asymmetric_quantize_inputs": False}
    rest = made((), 4, -5), options, {"int8": 2, "16x8": 3}.get(kind, 1)
    return case("batch_matmul", kind, detail, one, "BATCH_MATMUL", inputs, *rest)


# Left operands, and the batches of right ones, which are broadcast.
_HYBRID_MATRICES: tuple[tuple[Shape, Shape, int], ...] = (
    ((5, 37), (), 19), ((2, 3, 64), (), 16), ((1, 1, 130), (1,), 33), ((2, 4, 20), (2,), 7),
    ((4, 20), (3,), 5), ((2, 1, 3, 16), (4,), 9),
)  # fmt: skip


def hybrid_products() -> Iterator[Case]:
    """Yield the cases of BATCH_MATMUL of float rows and int8 matrices, which may be computed."""
    both = (False, True)
    for (a, batch, columns), right, form in itertools.product(
        _HYBRID_MATRICES, both, ("constant", "computed", "asymmetric")
    ):
        detail = f"{sizes(a)}_{sizes((*batch, a[-1], columns))}-{form}{'-adjoint_right' * right}"
        make = partial(_hybrid_product, a, batch, columns, right, form)
        yield case("batch_matmul", "hybrid", detail, make)


def _hybrid_product(a: Shape, batch: Shape, columns: int, right: bool, form: str) -> Graph:
    shape = (*batch, columns, a[-1]) if right else (*batch, a[-1], columns)
    values = integers(seeded(a, batch, columns, right), shape, "int8")
    b = tensor(shape, "int8", 0.05) if form == "computed" else constant(values, 0.05)
    options = {"adj_y": right, "asymmetric_quantize_inputs": form == "asymmetric"}
    version = 4 if form == "asymmetric" else 1
    return one("BATCH_MATMUL", [tensor(a), b], tensor(()), options, version)


def _cumsum(kind: str, shape: Shape, axis: int, exclusive: bool, reverse: bool) -> Case:
    limits = None if kind == "float32" else (-10000.0, 10000.0)
    inputs = [tensor(shape, kind, limits=limits), numbers(axis)]
    options = {"exclusive": exclusive, "reverse": reverse}
    detail = f"in{sizes(shape)}-axis{axis}" + "-exclusive" * exclusive + "-reverse" * reverse
    return case("cumsum", kind, detail, one, "CUMSUM", inputs, tensor((), kind), options)


_POOLED = ((7, 5, 3), (8, 8, 16), (9, 6, 33), (1, 1, 5), (14, 3, 1))
_WINDOWS = (
    ((2, 2), (2, 2)), ((3, 3), (1, 1)), ((3, 3), (2, 2)), ((1, 3), (1, 2)), ((7, 5), (1, 1)),
)  # fmt: skip
_RESIZES = (
    ((1, 3, 5, 3), (7, 11)), ((2, 4, 3, 5), (8, 6)), ((1, 5, 3, 16), (15, 9)),
    ((1, 1, 1, 21), (3, 2)), ((1, 13, 17, 4), (5, 3)), ((1, 7, 5, 1), (1, 1)),
    ((1, 6, 6, 33), (6, 6)),
)  # fmt: skip


def pools() -> Iterator[Case]:
    """Yield the cases of AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D."""
    yield from cases_of(_pools("AVERAGE_POOL_2D"), _PICTURES)
    yield from cases_of(_pools("MAX_POOL_2D"), _PICTURES)
    yield from cases_of(_pools("L2_POOL_2D"), ("float32",))


def _pools(op: str) -> Iterator[NodeTemplate]:
    for size, (window, stride), padding in itertools.product(_POOLED, _WINDOWS, ("SAME", "VALID")):
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
) -> NodeTemplate:
    detail = f"in{sizes(shape)}-k{sizes(window)}-stride{sizes(stride)}-{padding.lower()}"
    detail += "" if fused == "NONE" else f"-{fused.lower()}"
    options = {
        "padding": padding, "filter_height": window[0], "filter_width": window[1],
        "stride_h": stride[0], "stride_w": stride[1], "fused_activation_function": fused,
    }  # fmt: skip
    return NodeTemplate(op, detail, [shape], options, VERSIONS)


_RANKED: tuple[tuple[Shape, int], ...] = (
    ((5,), 5), ((1, 1), 1), ((3, 65), 5), ((2, 3, 7), 3), ((1, 1001), 5), ((2, 300), 17),
    ((1, 257), 257), ((1, 8400), 300),
)  # fmt: skip


def ranks() -> Iterator[Case]:
    """Yield the cases of TOPK_V2: few elements of short and of long rows, and all of them."""
    for kind, (shape, count) in itertools.product(("uint8", "int8", "float32", "int32"), _RANKED):
        detail = f"in{sizes(shape)}-k{count}"
        yield case("topk_v2", kind, detail, _ranked, kind, shape, count)


def _ranked(kind: str, shape: Shape, count: int) -> Graph:
    # Few different integers, so that many are equal: the lower index comes first.
    limits = (-50.0, 50.0) if kind == "int32" else None
    source = usual(shape, kind, limits=limits)
    outputs = [usual((1,), kind), tensor((1,), "int32")]
    return graph([step("TOPK_V2", [source, numbers(count)], outputs)])


def resizes() -> Iterator[Case]:
    """Yield the cases of RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR."""
    for op in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"):
        yield from cases_of(_resizes(op), _PICTURES)


def _resizes(op: str) -> Iterator[NodeTemplate]:
    versions = dict.fromkeys(("uint8", "int8", "int16", "float32"), 3)
    centers = "align_corners", "half_pixel_centers"
    for (shape, size), center in itertools.product(_RESIZES, ("", *centers)):
        detail = f"in{sizes(shape)}-to{sizes(size)}" + (f"-{center}" if center else "")
        options = {name: name == center for name in centers}
        yield NodeTemplate(op, detail, [shape, numbers(size)], options, versions)
