# SPDX-License-Identifier: Apache-2.0
"""Elementwise binary ops: broadcasting, constants, scales."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from delegate.inspect import Graph, Tensor
from tflite_opencl.conformance.cases._rows import one
from tflite_opencl.models.build import (
    FUSED,
    Case,
    Shape,
    case,
    dtype_of,
    integers,
    seeded,
    sizes,
    tensor,
)

_SHAPES: tuple[tuple[Shape, Shape], ...] = (
    ((1, 7, 5, 3), (1, 7, 5, 3)),
    ((1,), (1,)),
    ((2, 5, 4, 33), (1, 1, 1, 33)),
    ((1, 1, 1, 17), (1, 5, 4, 17)),
    ((1, 5, 4, 7), (1, 5, 4, 1)),
    ((31, 1), (1, 37)),
    ((6,), (2, 3, 6)),
    ((2, 3, 64), (2, 3, 64)),
    ((1, 5, 4, 33), ()),
)
_ARITHMETIC = ("ADD", "SUB", "MUL", "DIV")
_COMPARISONS = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
_KINDS = {
    "ADD": ("uint8", "int8", "16x8", "float32", "int32", "int64"),
    "SUB": ("uint8", "int8", "16x8", "float32", "int32", "int64"),
    "MUL": ("uint8", "int8", "16x8", "float32", "int32", "int64"),
    "DIV": ("uint8", "int8", "16x8", "float32", "int32"),
    "MAXIMUM": ("uint8", "int8", "16x8", "float32", "int32", "int64"),
    "MINIMUM": ("uint8", "int8", "16x8", "float32", "int32", "int64"),
    "SQUARED_DIFFERENCE": ("int8", "float32", "int32"),
    "FLOOR_DIV": ("float32", "int32"),
    "FLOOR_MOD": ("int32", "float32", "int64"),
    "POW": ("float32", "int32"),
    **dict.fromkeys(_COMPARISONS, ("uint8", "int8", "float32", "int32", "int64")),
    "ATAN2": ("float32",),
    "STABLEHLO_ADD": ("float32", "int32", "int64"),
    "STABLEHLO_MULTIPLY": ("float32", "int32", "int64"),
    "STABLEHLO_MAXIMUM": ("uint8", "int8", "16x8", "float32", "int32", "int64"),
    "STABLEHLO_MINIMUM": ("uint8", "int8", "16x8", "float32", "int32", "int64"),
    "STABLEHLO_AND": ("int8", "16x8", "int32", "int64", "bool"),
    "STABLEHLO_SHIFT_LEFT": ("int8", "16x8", "int32"),
    "BITWISE_XOR": ("uint8", "int8", "16x8", "int32"),
    "RIGHT_SHIFT": ("uint8", "int8", "16x8", "int32"),
    "LOGICAL_AND": ("bool",),
    "LOGICAL_OR": ("bool",),
}
_EQUALITY = ("EQUAL", "NOT_EQUAL")
_BITWISE = ("BITWISE_XOR", "RIGHT_SHIFT")
# More than five differing dimensions.
_DEEP: tuple[tuple[Shape, Shape], ...] = (
    ((2, 1, 3, 1, 2, 1), (1, 2, 1, 3, 1, 5)),
    ((2, 1, 3, 1, 2, 1, 4, 1), (1, 2, 1, 3, 1, 2, 1, 5)),
)
# Scales and zero points of left, right and output, besides the defaults.
# NOTE: with a scale of 1 or more TFLite aborts in a comparison.
_SCALES = ((0.5, 0.5, 0.5), (0.001, 0.9, 0.3), (0.9, 0.001, 2.0), (0.02, 0.03, 0.0004))


# The defaults: scales, zero points.
_USUAL: dict[str, tuple[tuple[float, float, float], tuple[int, int, int]]] = {
    "uint8": ((0.1, 0.07, 0.13), (131, 120, 125)),
    "int8": ((0.1, 0.07, 0.13), (3, -8, -3)),
    "int16": ((0.0004, 0.0003, 0.0005), (0, 0, 0)),
}
_VERSIONS = {("ADD", "int16"): 3, ("SUB", "int16"): 5, ("MUL", "int16"): 4, ("ADD", "int64"): 4}


def cases() -> Iterator[Case]:
    """Yield this family's cases."""
    for op, kind in ((op, kind) for op, kinds in _KINDS.items() for kind in kinds):
        for shapes in _SHAPES:
            if not _broadcasts(op) and shapes[0] != shapes[1]:
                continue
            if op == "STABLEHLO_SHIFT_LEFT":  # shifts beyond the width of an int are undefined
                yield _case(op, kind, shapes, constant="right")
                continue
            if kind != "bool" or () not in shapes:  # a single value would decide all
                yield _case(op, kind, shapes)
        for shapes in _DEEP if _broadcasts(op) and kind in ("int32", "float32") else ():
            yield _case(op, kind, shapes)
        for constant in ("left", "right") if op != "STABLEHLO_SHIFT_LEFT" else ():
            for shapes in (_SHAPES[0], _SHAPES[2])[: 2 if _broadcasts(op) else 1]:
                yield _case(op, kind, shapes, constant=constant)
        # Few delegates divide by values known only at run time, which may be 0.
        side: dict[str, Any] = {"constant": "right"} if op == "DIV" else {}
        if op in _ARITHMETIC and kind != "int64":
            for fused in FUSED[1:]:
                yield _case(op, kind, _SHAPES[0], fused=fused, **side)
        if op in ("POW", "DIV"):
            yield _case(op, kind, _SHAPES[-1], constant="right")
        is_free = op in (*_ARITHMETIC, "SQUARED_DIFFERENCE", *_COMPARISONS)
        if is_free and kind in ("uint8", "int8"):
            for scales in _SCALES:
                yield _case(op, kind, _SHAPES[0], scales=scales, **side)
            low, high = (0, 255) if kind == "uint8" else (-128, 127)
            for zeros in itertools.product((low, high), repeat=3):
                if op != "DIV" or zeros[1] == low:  # otherwise no divisor is positive
                    yield _case(op, kind, _SHAPES[0], zeros=zeros, **side)


_LENGTHS = (3, 63, 64, 65, 1024, 1025)  # about as many as vectors, groups and tiles have
_MANY: tuple[Shape, Shape] = (2, 1, 3, 1, 20), (1, 4, 1, 5, 20)
_SMALL: tuple[Shape, Shape] = (3, 5), (3, 5)  # results may all be equal
_RATIOS = ((1e-9, 0.9, 0.01), (1e-5, 0.9, 0.9), (1.0, 1e-6, 1.0), (3.0, 0.7, 0.01))
_SHIFTS = ((0.25, 0.5, 0.5), (0.5, 0.25, 0.5), (0.5, 0.125, 0.5))  # powers of two
DIVISORS = {  # of both signs
    "uint8": (1, 2, 3, 7, 119, 121, 200, 255),
    "int8": (-128, -7, -3, -2, 1, 2, 3, 5, 127),
    "int16": (-32768, -700, -3, -2, 1, 2, 3, 5, 32767),
    "int32": (-1000003, -7, -3, -2, 1, 2, 3, 5, 1000003),
    "float32": (-1000003, -7, -3, -2, 1, 2, 3, 5, 1000003),
}
_EXPONENTS = (0, 1, 2, 5, 31, 64, 2**31 - 1)


def edges() -> Iterator[Case]:
    """Yield lengths, ratios of scales, broadcast constants, and divisors of both signs."""
    for op, kind, length in itertools.product(("ADD", "MUL"), ("uint8", "int8"), _LENGTHS):
        yield _case(op, kind, ((length,), (length,)))
    for op in (*_ARITHMETIC[:3], "MAXIMUM", "LESS"):
        for kind in ("int8", "float32"):
            yield _case(op, kind, _MANY)
    for op, kind, scales in itertools.product(
        (*_ARITHMETIC[:3], "SQUARED_DIFFERENCE"), ("uint8", "int8"), _RATIOS
    ):
        if kind in _KINDS[op]:
            yield _case(op, kind, _SMALL, scales=scales)
    for op, scales in itertools.product(("ADD", "SUB"), _SHIFTS):
        yield _case(op, "16x8", _SHAPES[0], scales=scales)
        for fused in ("NONE", "RELU6"):
            yield _case(op, "16x8", _SHAPES[0], scales=scales, fused=fused, shifts=True)
    for kind in ("uint8", "int8", "16x8", "float32"):
        yield _case("ADD", kind, ((48, 4, 17), ()), constant="right")
        yield _case("MUL", kind, ((7, 3, 8), (8,)), constant="right")
        yield _case("SUB", kind, ((48, 4, 1), (1, 17)), constant="left")
    for op, kinds in (
        ("DIV", ("uint8", "int8", "16x8", "int32")),
        ("FLOOR_DIV", ("int32", "float32")),
        ("FLOOR_MOD", ("int32",)),
    ):
        for kind, shapes in itertools.product(kinds, (_SHAPES[0], _SHAPES[2])):
            yield _case(op, kind, shapes, constant="right", values=DIVISORS[dtype_of(kind)])
    for exponent in _EXPONENTS:
        yield _case("POW", "int32", ((3, 5), ()), constant="right", values=(exponent,))
    for op in _COMPARISONS:
        for shapes in (_SHAPES[0], _SHAPES[2], _SHAPES[4]):
            yield _case(op, "16x8", shapes)
            if op in _EQUALITY:
                yield _case(op, "bool", shapes)


def _broadcasts(op: str) -> bool:
    # TFLite rejects STABLEHLO_*, and reads past the end of ATAN2's shorter tensor.
    return op != "ATAN2" and not op.startswith("STABLEHLO_")


def _case(op: str, kind: str, shapes: tuple[Shape, Shape], **options: Any) -> Case:
    words = ["_".join(dict.fromkeys(map(sizes, shapes)))]
    for name, value in options.items():
        if name == "constant":
            words.append(f"{value}_constant")
        elif name == "shifts":
            words.append(name)
        elif name == "fused":
            words.append(value.lower())
        else:
            numbers = (n if isinstance(n, int) else f"{n:g}" for n in value)
            words.append(name + "_".join(map(str, numbers)))
    return case(op.lower(), kind, "-".join(words), pair, op, kind, shapes, **options)


def pair(
    op: str,
    kind: str,
    shapes: tuple[Shape, Shape],
    constant: str = "",
    fused: str = "NONE",
    scales: tuple[float, float, float] | None = None,
    zeros: tuple[int, int, int] | None = None,
    values: tuple[int, ...] = (),
    shifts: bool = False,
) -> Graph:
    """Return the model of one op.

    Args:
        constant: the input that is one, "left" or "right"; it repeats `values`, if there are any.
        scales, zeros: of left, right and output, if not the default ones.
        shifts: sums of int16 are rescaled by shifts: all scales are powers of two.
    """
    dtype = dtype_of(kind)
    has_one = op.endswith(("MAXIMUM", "MINIMUM")) or (op in _EQUALITY and not (scales or zeros))

    def made(which: int, shape: Shape, side: str = "") -> Tensor:
        numbers: tuple[Any, ...] = ()
        if dtype in _USUAL:
            of = 0 if has_one else which
            numbers = (scales or _USUAL[dtype][0])[of], (zeros or _USUAL[dtype][1])[of]
        limits = _limits(op, dtype, which, numbers[1] if numbers else 0)
        if side and side == constant:
            data = np.resize(values, shape) if values else _values(op, kind, shape, limits)
            return tensor(shape, dtype, *numbers, data=data)
        return tensor(shape, dtype, *numbers, limits=limits)

    out = tensor((), "bool") if op in _COMPARISONS else made(2, ())
    options: dict[str, Any] = {"fused_activation_function": fused} if op in _ARITHMETIC else {}
    if op in ("ADD", "SUB") and dtype == "int16":
        options["pot_scale_int16"] = shifts
    is_newer = dtype in _USUAL and _broadcasts(op) and op not in _BITWISE
    version = _VERSIONS.get((op, dtype), 2 if is_newer else 1)
    inputs = [made(0, shapes[0], "left"), made(1, shapes[1], "right")]
    return one(op, inputs, out, options, version)


def _values(op: str, kind: str, shape: Shape, limits: tuple[float, float] | None) -> Any:
    rng, dtype = seeded(op, kind, shape), dtype_of(kind)
    low, high = limits or (-3, 3)
    if dtype == "float32":
        return rng.uniform(low, high, shape)
    if dtype == "bool":
        return rng.integers(0, 2, shape)
    if op == "POW" and not shape:
        return 3
    if limits is None:
        return integers(rng, shape, dtype)
    return rng.integers(int(low), int(high), shape, endpoint=True)


def _limits(op: str, dtype: str, which: int, zero: int) -> tuple[float, float] | None:
    """Return values that avoid overflow, division by 0, and undefined results."""
    if op == "POW":
        if dtype == "int32":
            return ((-5, 5), (0, 6), (0, 0))[which]
        return ((0.05, 8.0), (-4.0, 4.0), (0, 0))[which]
    if op in ("DIV", "FLOOR_DIV", "FLOOR_MOD"):
        if dtype in _USUAL:
            return (zero + 1, np.iinfo(dtype).max) if which == 1 else None
        if which == 1:
            return (1, 40) if dtype in ("int32", "int64") else (0.3, 20.0)
        return (-1000, 1000) if dtype in ("int32", "int64") else (-30.0, 30.0)
    if op in ("STABLEHLO_SHIFT_LEFT", "RIGHT_SHIFT"):
        return (0, 31) if which == 1 else None
    if op in _EQUALITY and dtype in ("int32", "int64", "uint8", "int8"):
        return (0, 12)  # so that some are equal
    if dtype in ("int32", "int64") and op in (
        *("ADD", "SUB", "MUL", "SQUARED_DIFFERENCE", "STABLEHLO_ADD", "STABLEHLO_MULTIPLY"),
    ):
        return (-20000, 20000)
    return None
