# SPDX-License-Identifier: Apache-2.0
"""Elementwise ops: functions and selections."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
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
_SCALES_OF_GELU = ((0.0002, 0.0001), (0.001, 0.001), (5e-5, 3e-4))  # of int16
_ZEROS = ((3, 3), (-20, -100), (-128, 5))
_SLOPES: tuple[Shape, ...] = (
    (1,), (8,), (3, 1, 1), (3, 5, 8), (3, 1, 8), (2, 1, 5, 1), (2, 3, 5, 8),
)  # fmt: skip
_SCALES_OF_PRELU = ((0.1, 0.02, 0.07), (0.5, 0.5, 0.25))
_ROOTS = (  # scales, and the output's zero point
    ((0.01, 0.1), -128), ((0.02, 0.5), 5), ((0.0039, 0.05), -100), ((7.0, 0.1), -128),
)  # fmt: skip
_OTHER_VERSIONS = {
    ("ABS", "int32"): 4, ("EXP", "int16"): 2, ("LEAKY_RELU", "int16"): 2, ("RELU", "int16"): 2,
    ("RELU6", "int16"): 2, ("GELU", "uint8"): 2, ("ELU", "int8"): 1, ("HARD_SWISH", "int8"): 1,
    ("RELU_N1_TO_1", "int8"): 1, ("RELU_0_TO_1", "int8"): 1, ("SQRT", "int8"): 1,
    ("SQRT", "int16"): 1, ("LOG", "int16"): 2, ("NEG", "int8"): 1, ("NEG", "int16"): 1,
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
        yield case("prelu", kind, detail, prelu, kind, shape, slopes)


def edges() -> Iterator[Case]:
    """Yield more scales, slopes of both signs, and lengths around the ends of vectors."""
    for kind, scales, zeros in itertools.product(_QUANT, _SCALES[:3], ((3, 3), (127, 0))):
        words = "-approximate-scales{:g}_{:g}-zeros{}_{}".format(*scales, *zeros)
        yield _function("GELU", kind, (256,), words, scales, zeros, approximate=True)
    for scales, is_approximate in itertools.product(_SCALES_OF_GELU, (False, True)):
        words = "-approximate" * is_approximate + "-scales{:g}_{:g}".format(*scales)
        yield _function("GELU", "16x8", (4096,), words, scales, (0, 0), approximate=is_approximate)
    for kind, alpha in itertools.product((*_QUANT, "16x8"), (-0.5, -1.7, 3.0)):
        yield _function("LEAKY_RELU", kind, (256,), f"-alpha{alpha:g}", alpha=alpha)
    for op, kind in itertools.product(("LOGISTIC", "TANH"), _QUANT):
        yield _function(op, kind, (256,), "-scale20", (20.0, 0.0), (3, 0))
    for op, scale in itertools.product(("LOGISTIC", "TANH"), (2.0**-11, 2.0**-13, 0.0003, 1e-6)):
        yield _function(op, "16x8", (4096,), f"-scale{scale:g}", (scale, 0.0), (0, 0))
    for kind, scales in itertools.product(_QUANT, ((0.004, 0.01), (0.02, 0.02), (30.0, 1.0))):
        words = "-scales{:g}_{:g}".format(*scales)
        yield _function("HARD_SWISH", kind, (256,), words, scales, (3, 5))
    for count in (32, 64, 96, 127, 200, 4096, 4097, 9001):
        yield _function("LOGISTIC", "int8", (count,))
        yield _function("TANH", "uint8", (count,))
    for (scales, zero), op in itertools.product(_ROOTS, ("SQRT", "RSQRT")):
        words = "-scales{:g}_{:g}-zero{}".format(*scales, zero)
        yield _function(op, "int8", (256,), words, scales, (-128, zero))
    for op, scales, zeros in itertools.product(("NEG", "LOG"), _SCALES[:3], _ZEROS):
        words = "-scales{:g}_{:g}-zeros{}_{}".format(*scales, *zeros)
        yield _function(op, "int8", (256,), words, scales, zeros)
    yield from _prelus()


def _prelus() -> Iterator[Case]:
    rows: list[tuple[Shape, Shape]] = [((2, 3, 5, 8), slopes) for slopes in _SLOPES]
    rows += [((n,), (n,)) for n in (63, 64, 65, 4097)] + [((3, 4097), (4097,))]
    for kind, (shape, slopes) in itertools.product(("uint8", "float32"), rows):
        detail = f"in{sizes(shape)}-slopes{sizes(slopes)}"
        yield case("prelu", kind, detail, prelu, kind, shape, slopes)
    for kind, shape in itertools.product(("uint8", "float32", "16x8"), ((1, 5, 7, 11), (2, 65))):
        detail = f"in{sizes(shape)}-slopes{shape[-1]}-computed"
        slopes = shape[-1:]
        given = dtype_of(kind), shape, slopes, None, None, False
        yield case("prelu", kind, detail, prelu, *given)
    for slopes in ((1,), (3, 1, 8), (8,)):
        detail = f"in2x3x5x8-slopes{sizes(slopes)}"
        yield case("prelu", "16x8", detail, prelu, "int16", (2, 3, 5, 8), slopes)
    for scales, zeros in itertools.product(_SCALES_OF_PRELU, ((-128, 127, -128), (127, -128, 127))):
        detail = "in1x5x7x11-slopes11-scales{:g}_{:g}_{:g}-zeros{}_{}_{}".format(*scales, *zeros)
        yield case("prelu", "int8", detail, prelu, "int8", (1, 5, 7, 11), (11,), scales, zeros)


def _function(
    op: str,
    kind: str,
    shape: Shape,
    words: str = "",
    scales: tuple[float, float] | None = None,
    zeros: tuple[int, int] | None = None,
    **options: Any,
) -> Case:
    given = op, dtype_of(kind), shape, scales, zeros
    return case(op.lower(), kind, f"in{sizes(shape)}{words}", function, *given, **options)


def function(
    op: str,
    dtype: str,
    shape: Shape,
    scales: tuple[float, float] | None = None,
    zeros: tuple[int, int] | None = None,
    **options: Any,
) -> Graph:
    """Return the model of one op; `scales` and `zeros` are of the input and of the output."""
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
    return one(op, inputs, out, options, version)


def prelu(
    dtype: str,
    shape: Shape,
    slopes: Shape,
    scales: tuple[float, float, float] | None = None,
    zeros: tuple[int, int, int] | None = None,
    is_constant: bool = True,
) -> Graph:
    """Return the model of a PRELU; `scales` and `zeros` are of the input, slopes and output."""
    rng = seeded(dtype, shape, slopes)
    if dtype == "float32":
        alpha = constant(rng.standard_normal(slopes).astype(dtype))
        return one("PRELU", [tensor(shape), alpha if is_constant else tensor(slopes)], tensor(()))
    of_slopes = "int8" if dtype == "int16" else dtype
    inside, outside = USUAL[dtype]
    middle = (0.01, 120 if dtype == "uint8" else 3)
    if scales and zeros:
        inside, middle, outside = zip(scales, zeros, strict=True)
    limits = (0, 255) if of_slopes == "uint8" else (-128, 127)
    alpha = constant(rng.integers(*limits, slopes, endpoint=True).astype(of_slopes), *middle)
    if not is_constant:
        alpha = tensor(slopes, of_slopes, *middle)
    return one("PRELU", [tensor(shape, dtype, *inside), alpha], tensor((), dtype, *outside))


def _halves() -> Graph:
    """Return ROUND after DEQUANTIZE: integers and the ties between them."""
    stored, plain, rounded = tensor((257,), "uint8", 0.5, 128), tensor((257,)), tensor((257,))
    return graph([node("DEQUANTIZE", [stored], [plain]), node("ROUND", [plain], [rounded])])


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
