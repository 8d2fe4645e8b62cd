# SPDX-License-Identifier: Apache-2.0
"""Ops on one tensor, element by element: activations, roots, rounding, signs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from delegate.inspect import Graph
from tflite_opencl.common.build import (
    USUAL,
    Case,
    case,
    constant,
    dtype_of,
    graph,
    node,
    one,
    seeded,
    sizes,
    tensor,
)

_SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (3,), (63,), (65,), (2, 3, 5, 7), (1, 17, 16, 4))
_QUANT = ("uint8", "int8")
_KINDS = {
    "RELU": (*_QUANT, "16x8", "float32"),
    "RELU6": (*_QUANT, "16x8", "float32"),
    "RELU_N1_TO_1": (*_QUANT, "float32"),
    "RELU_0_TO_1": (*_QUANT, "float32"),
    "LEAKY_RELU": (*_QUANT, "16x8", "float32"),
    "ELU": ("int8", "float32"),
    "GELU": (*_QUANT, "float32"),
    "LOGISTIC": (*_QUANT, "16x8", "float32"),
    "TANH": (*_QUANT, "16x8", "float32"),
    "HARD_SWISH": (*_QUANT, "float32"),
    "ABS": ("int8", "16x8", "float32", "int32"),
    "NEG": ("float32", "int32", "int64"),
    "SQRT": ("float32",),
    "RSQRT": ("int8", "float32"),
    "SQUARE": ("float32",),
    "EXP": ("int8", "16x8", "float32"),
    "LOG": ("int8", "float32"),
    "SIN": ("float32",),
    "COS": ("float32",),
    "FLOOR": ("float32",),
    "CEIL": ("float32",),
    "ROUND": ("float32",),
    "SIGN": ("float32", "int32"),
    "LOGICAL_NOT": ("bool",),
}
# The one output quantisation TFLite takes; by op and type.
_FIXED: dict[tuple[str, str], tuple[float, int]] = {
    ("LOGISTIC", "uint8"): (1 / 256, 0),
    ("LOGISTIC", "int8"): (1 / 256, -128),
    ("LOGISTIC", "int16"): (2.0**-15, 0),
    ("TANH", "uint8"): (1 / 128, 128),
    ("TANH", "int8"): (1 / 128, 0),
    ("TANH", "int16"): (2.0**-15, 0),
}
_POSITIVE = ("SQRT", "RSQRT", "LOG")
# Of ABS a ratio that floats and doubles round apart; of functions, to the ends of their tables.
_SCALES_16 = {
    "ABS": ((0.0007, 0.0008), (0.001, 0.001)),
    "LOGISTIC": ((2.0**-12, 2.0**-15), (5.3, 2.0**-15)),
    "TANH": ((2.0**-12, 2.0**-15), (5.3, 2.0**-15)),
}
_SCALES = ((0.1, 0.07), (0.02, 0.5), (0.3, 0.004), (1.0, 1.0), (0.0078125, 0.0078125))


def cases() -> Iterator[Case]:
    """Yield this family's cases."""
    for op, kinds in _KINDS.items():
        for kind in kinds:
            for shape in _SHAPES:
                yield case(op.lower(), kind, f"in{sizes(shape)}", _graph, op, kind, shape)
            options: dict[str, Any]
            if kind in _QUANT:
                low, high = (0, 255) if kind == "uint8" else (-128, 127)
                for scales, zeros in itertools.product(
                    _SCALES, ((low, low), (high, high), (3, 3), (low, high))
                ):
                    if op in _POSITIVE and zeros[0] != low:
                        continue
                    options = {"scales": scales, "zeros": zeros}
                    detail = "in256-scales{:g}_{:g}-zeros{}_{}".format(*scales, *zeros)
                    yield case(op.lower(), kind, detail, _graph, op, kind, (256,), **options)
            for scales in _SCALES_16.get(op, ()) if kind == "16x8" else ():
                detail = "in4096-scales{:g}_{:g}".format(*scales)
                options = {"scales": scales, "zeros": (0, 0)}
                yield case(op.lower(), kind, detail, _graph, op, kind, (4096,), **options)
            if op == "LEAKY_RELU":
                for alpha in (0.01, 0.5, 1.5):
                    options = {"alpha": alpha}
                    yield case(
                        "leaky_relu", kind, f"in2x65-alpha{alpha:g}", _graph, op, kind, (2, 65),
                        **options,
                    )  # fmt: skip
            if op == "GELU":
                options = {"approximate": True}
                yield case("gelu", kind, "in2x65-approximate", _graph, op, kind, (2, 65), **options)
    yield case("round", "float32", "in257-halves", _halves)
    for kind in (*_QUANT, "float32"):
        for shape, slopes in (
            ((1, 7, 5, 3), (1, 1, 3)),
            ((2, 4, 4, 17), (1, 1, 17)),
            ((1, 5, 4, 3), (5, 4, 3)),
            ((1, 5, 4, 8), (1, 1, 1)),
        ):
            detail = f"in{sizes(shape)}-slopes{sizes(slopes)}"
            yield case("prelu", kind, detail, _prelu, kind, shape, slopes)


def _graph(
    op: str,
    kind: str,
    shape: tuple[int, ...],
    scales: tuple[float, float] | None = None,
    zeros: tuple[int, int] | None = None,
    **options: Any,
) -> Graph:
    dtype = dtype_of(kind)
    inside: tuple[Any, ...] = ()
    outside: tuple[Any, ...] = ()
    if dtype in USUAL:
        usual = USUAL[dtype]
        if dtype == "int16" and op == "EXP":
            usual = ((0.0003, 0), (0.6, 0))
        if op in _POSITIVE:
            usual = ((0.1, -128), (0.07, -8))
        inside, outside = (
            (scales[i] if scales else usual[i][0], zeros[i] if zeros else usual[i][1])
            for i in (0, 1)
        )
        outside = _FIXED.get((op, dtype), outside)
    if op == "LEAKY_RELU":
        options.setdefault("alpha", 0.2)
    limits = None
    if op in _POSITIVE:
        limits = (1e-3, 50.0) if dtype == "float32" else (-127, 127)
    elif (op == "EXP" and dtype == "float32") or op in ("SIN", "COS"):
        limits = (-20.0, 20.0)
    elif op in ("ABS", "NEG") and dtype == "int32":
        limits = (1 - 2**31, 2**31 - 1)  # C leaves open what becomes of the least number
    version = {"uint8": 1, "float32": 1, "int8": 2, "int16": 3}.get(dtype, 1)
    version = {
        ("ABS", "int16"): 3, ("ABS", "int32"): 4, ("ABS", "int8"): 2, ("EXP", "int16"): 2,
        ("LEAKY_RELU", "int16"): 2, ("GELU", "uint8"): 2, ("ELU", "int8"): 1,
        ("RELU", "int16"): 2, ("RELU6", "int16"): 2, ("RELU", "int8"): 2, ("HARD_SWISH", "int8"): 1,
        ("RELU_N1_TO_1", "int8"): 1, ("RELU_0_TO_1", "int8"): 1,
    }.get((op, dtype), version)  # fmt: skip
    return one(
        op,
        [tensor(shape, dtype, *inside, limits=limits)],
        [tensor(shape, dtype, *outside)],
        options,
        version,
    )


def _prelu(kind: str, shape: tuple[int, ...], slopes: tuple[int, ...]) -> Graph:
    rng = seeded(kind, shape, slopes)
    dtype = dtype_of(kind)
    if dtype == "float32":
        alpha = constant(rng.standard_normal(slopes).astype(dtype))
        return one("PRELU", [tensor(shape), alpha], [tensor(shape)])
    inside, outside = USUAL[dtype]
    limits = (0, 255) if dtype == "uint8" else (-128, 127)
    data = rng.integers(*limits, slopes, endpoint=True).astype(dtype)
    alpha = constant(data, 0.01, 120 if dtype == "uint8" else 3)
    return one("PRELU", [tensor(shape, dtype, *inside), alpha], [tensor(shape, dtype, *outside)])


def _halves() -> Graph:
    """Return ROUND behind DEQUANTIZE: whole numbers and the ties between them."""
    stored, plain, rounded = tensor((257,), "uint8", 0.5, 128), tensor((257,)), tensor((257,))
    return graph([node("DEQUANTIZE", [stored], [plain]), node("ROUND", [plain], [rounded])])
