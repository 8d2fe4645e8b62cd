# SPDX-License-Identifier: Apache-2.0
"""Elementwise ops: functions, conversions, selections."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

from delegate.inspect import Graph
from tflite_opencl.conformance.cases._rows import UNIT, VERSIONS, NodeTemplate, cases_of, one
from tflite_opencl.models.build import (
    USUAL,
    Case,
    Shape,
    case,
    constant,
    dtype_of,
    graph,
    node,
    seeded,
    sizes,
    tensor,
)

_SHAPES: tuple[Shape, ...] = ((), (1,), (3,), (63,), (65,), (2, 3, 5, 7), (1, 17, 16, 4))
_QUANT = ("uint8", "int8")
_FUNCTIONS = {
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
    "SQRT": ("int8", "16x8", "float32"),
    "RSQRT": ("int8", "16x8", "float32"),
    "SQUARE": ("float32",),
    "EXP": ("int8", "16x8", "float32"),
    "LOG": ("int8", "16x8", "float32"),
    "SIN": ("float32",),
    "COS": ("float32",),
    "FLOOR": ("float32",),
    "CEIL": ("float32",),
    "ROUND": ("float32",),
    "SIGN": ("float32", "int32"),
    "LOGICAL_NOT": ("bool",),
}
# The output quantisation that TFLite requires; by op and type.
_FIXED: dict[str, dict[str, tuple[float, int]]] = {
    "LOGISTIC": UNIT,
    "TANH": {"uint8": (1 / 128, 128), "int8": (1 / 128, 0), "int16": (2.0**-15, 0)},
}
_POSITIVE = ("SQRT", "RSQRT", "LOG")
# ABS with a ratio that float and double round differently; functions up to their tables' ends.
_SCALES_16 = {
    "ABS": ((0.0007, 0.0008), (0.001, 0.001)),
    **dict.fromkeys(_POSITIVE, ((0.01, 0.0005), (1.0, 0.001))),
    "LOGISTIC": ((2.0**-12, 2.0**-15), (5.3, 2.0**-15)),
    "TANH": ((2.0**-12, 2.0**-15), (5.3, 2.0**-15)),
}
_SCALES = ((0.1, 0.07), (0.02, 0.5), (0.3, 0.004), (1.0, 1.0), (0.0078125, 0.0078125))
_OTHER_VERSIONS = {
    ("ABS", "int32"): 4, ("EXP", "int16"): 2, ("LEAKY_RELU", "int16"): 2, ("RELU", "int16"): 2,
    ("RELU6", "int16"): 2, ("GELU", "uint8"): 2, ("ELU", "int8"): 1, ("HARD_SWISH", "int8"): 1,
    ("RELU_N1_TO_1", "int8"): 1, ("RELU_0_TO_1", "int8"): 1, ("SQRT", "int8"): 1,
    ("SQRT", "int16"): 1, ("LOG", "int16"): 2,
}  # fmt: skip


def functions() -> Iterator[Case]:
    """Yield the cases of unary ops and PRELU: activations, roots, rounding, signs."""
    for op, kind in ((op, kind) for op, kinds in _FUNCTIONS.items() for kind in kinds):
        for shape in _SHAPES:
            yield _function(op, kind, shape)
        if kind in _QUANT:
            low, high = (0, 255) if kind == "uint8" else (-128, 127)
            all_zeros = ((low, low), (high, high), (3, 3), (low, high))
            for scales, zeros in itertools.product(_SCALES, all_zeros):
                if op not in _POSITIVE or zeros[0] == low:  # otherwise an input is negative
                    words = "-scales{:g}_{:g}-zeros{}_{}".format(*scales, *zeros)
                    yield _function(op, kind, (256,), words, scales, zeros)
        for scales in _SCALES_16.get(op, ()) if kind == "16x8" else ():
            words = "-scales{:g}_{:g}".format(*scales)
            yield _function(op, kind, (4096,), words, scales, (0, 0))
        for alpha in (0.01, 0.5, 1.5) if op == "LEAKY_RELU" else ():
            yield _function(op, kind, (2, 65), f"-alpha{alpha:g}", alpha=alpha)
        if op == "GELU":
            yield _function(op, kind, (2, 65), "-approximate", approximate=True)
    yield case("round", "float32", "in257-halves", _halves)
    for kind, (shape, slopes) in itertools.product(
        (*_QUANT, "float32"),
        (
            ((1, 7, 5, 3), (1, 1, 3)),
            ((2, 4, 4, 17), (1, 1, 17)),
            ((1, 5, 4, 3), (5, 4, 3)),
            ((1, 5, 4, 8), (1, 1, 1)),
        ),
    ):
        detail = f"in{sizes(shape)}-slopes{sizes(slopes)}"
        yield case("prelu", kind, detail, _prelu, kind, shape, slopes)


def _function(
    op: str,
    kind: str,
    shape: Shape,
    words: str = "",
    scales: tuple[float, float] | None = None,
    zeros: tuple[int, int] | None = None,
    **options: Any,
) -> Case:
    """Return a case; `scales` and `zeros` are of the input and of the output."""
    dtype = dtype_of(kind)
    inside: tuple[Any, ...] = ()
    outside: tuple[Any, ...] = ()
    if dtype in USUAL:
        usual = USUAL[dtype]
        if dtype == "int16" and op == "EXP":
            usual = ((0.0003, 0), (0.6, 0))
        if op in _POSITIVE:
            usual = ((0.1, -128), (0.07, -8))
            usual = ((0.001, 0), (0.0005, 0)) if dtype == "int16" else usual
        inside, outside = zip(scales, zeros, strict=True) if scales and zeros else usual
        outside = _FIXED.get(op, {}).get(dtype, outside)
    limits = None
    if op in _POSITIVE:
        limits = {"float32": (1e-3, 50.0), "int8": (-127, 127), "int16": (0, 32767)}[dtype]
    elif (op == "EXP" and dtype == "float32") or op in ("SIN", "COS"):
        limits = (-20.0, 20.0)
    elif op in ("ABS", "NEG") and dtype == "int32":
        limits = (1 - 2**31, 2**31 - 1)  # the absolute value of the minimum is undefined in C
    inputs, out = [tensor(shape, dtype, *inside, limits=limits)], tensor((), dtype, *outside)
    options = ({"alpha": 0.2} if op == "LEAKY_RELU" else {}) | options
    version = _OTHER_VERSIONS.get((op, dtype), VERSIONS.get(dtype, 1))
    detail = f"in{sizes(shape)}{words}"
    return case(op.lower(), kind, detail, one, op, inputs, out, options, version)


def _prelu(kind: str, shape: Shape, slopes: Shape) -> Graph:
    rng = seeded(kind, shape, slopes)
    if kind == "float32":
        alpha = constant(rng.standard_normal(slopes).astype(kind))
        return one("PRELU", [tensor(shape), alpha], tensor(()))
    inside, outside = USUAL[kind]
    limits = (0, 255) if kind == "uint8" else (-128, 127)
    data = rng.integers(*limits, slopes, endpoint=True).astype(kind)
    alpha = constant(data, 0.01, 120 if kind == "uint8" else 3)
    return one("PRELU", [tensor(shape, kind, *inside), alpha], tensor((), kind, *outside))


def _halves() -> Graph:
    """Return ROUND after DEQUANTIZE: integers and the ties between them."""
    stored, plain, rounded = tensor((257,), "uint8", 0.5, 128), tensor((257,)), tensor((257,))
    return graph([node("DEQUANTIZE", [stored], [plain]), node("ROUND", [plain], [rounded])])


_INTEGERS = {"uint8": "uint8", "int8": "int8", "int16": "16x8"}  # type -> column of the matrix
_CHANGES = ((0.1, 0.07), (0.02, 0.5), (0.5, 0.02), (0.25, 0.25), (1.0, 1 / 3))
_CASTS = ("float32", "int32", "int64", "uint8", "int8", "int16", "bool")
_CAST_TO = (*_CASTS, "float16", "uint32", "uint16")  # no other op supports these three


def conversions() -> Iterator[Case]:
    """Yield the cases of QUANTIZE, DEQUANTIZE and CAST: all types, larger and smaller scales."""
    for source, result in itertools.product(_INTEGERS, repeat=2):
        if (source, result) == ("int16", "uint8"):
            continue  # unsupported by TFLite
        version = 3 if "int16" in (source, result) else 2
        for scales in _CHANGES:
            inside, outside = (
                tensor((2, 65), dtype, scale / (100 if dtype == "int16" else 1),
                       {"uint8": 120, "int8": -8}.get(dtype, 0))
                for dtype, scale in zip((source, result), scales, strict=True)
            )  # fmt: skip
            detail = "to_{}-in2x65-scales{:.3g}_{:.3g}".format(result, *scales)
            make = partial(one, "QUANTIZE", [inside], outside, {}, version)
            yield case("quantize", _INTEGERS[source], detail, make)
    for dtype, shape in itertools.product(_INTEGERS, ((1,), (65,), (2, 5, 7, 3))):
        detail, version = f"in{sizes(shape)}", VERSIONS.get(dtype, 1)
        integers, floats = tensor(shape, dtype, *USUAL[dtype][0]), tensor(shape)
        make = partial(one, "QUANTIZE", [floats], integers, {}, version)
        yield case("quantize", "float32", f"to_{dtype}-{detail}", make)
        make = partial(one, "DEQUANTIZE", [integers], floats, {}, version)
        yield case("dequantize", _INTEGERS[dtype], detail, make)
    for source, result in itertools.product(_CASTS, _CAST_TO):
        if source != result:
            yield _cast(source, result)
    yield _cast("float32", "int64", "-large", (-(2.0**60), 2.0**60))


def _cast(
    source: str, result: str, words: str = "", limits: tuple[float, float] = (0.0, 100.0)
) -> Case:
    # Out-of-range float conversions are undefined in C. A bool has no range: any number is valid.
    allowed = limits if source == "float32" and result != "bool" else None
    options = {"in_data_type": source, "out_data_type": result}
    version = 1 if {source, result} <= {"float32", "int32", "int64", "uint8", "bool"} else 4
    inputs, out = [tensor((2, 37), source, limits=allowed)], tensor((), result)
    make = partial(one, "CAST", inputs, out, options, version)
    return case("cast", source, f"to_{result}-in2x37{words}", make)


_CHOICES: tuple[tuple[Shape, Shape, Shape], ...] = (
    ((1, 7, 5, 3),) * 3,
    ((1,),) * 3,
    ((1, 5, 4, 1), (1, 5, 4, 7), (1, 5, 4, 7)),
    ((2, 1, 9), (1, 6, 9), (2, 6, 1)),
    ((5,), (3, 5), (3, 1)),
    ((2, 1, 3, 1, 4), (1, 2, 1, 3, 4), (2, 2, 3, 3, 1)),
)


def choices() -> Iterator[Case]:
    """Yield the cases of SELECT_V2 and SELECT, with and without broadcast conditions."""
    rows = []
    for op, choices in (("SELECT_V2", _CHOICES), ("SELECT", _CHOICES[:1])):
        for condition, *values in choices:
            detail = "_".join(map(sizes, dict.fromkeys((condition, *values))))
            rows.append(NodeTemplate(op, detail, [tensor(condition, "bool"), *values]))
    return cases_of(rows, ("uint8", "int8", "float32", "int32", "bool", "int64"))
