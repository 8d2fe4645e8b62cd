# SPDX-License-Identifier: Apache-2.0
"""Conversions of one type, or one quantisation, to another: QUANTIZE, DEQUANTIZE and CAST."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

from delegate.inspect import Graph
from tflite_opencl.conformance.cases._rows import ENDS, VERSIONS, one
from tflite_opencl.models.build import USUAL, Case, Shape, case, sizes, tensor

_INTEGERS = {"uint8": "uint8", "int8": "int8", "int16": "16x8"}  # type -> column of the matrix
_CHANGES = ((0.1, 0.07), (0.02, 0.5), (0.5, 0.02), (0.25, 0.25), (1.0, 1 / 3))
_CASTS = ("float32", "int32", "int64", "uint8", "int8", "int16", "bool")
_CAST_TO = (*_CASTS, "float16", "uint32", "uint16")  # no other op supports these three
_RATIOS = ((1e-12, 1.0), (1e-7, 1.0), (3.0, 0.001), (0.5, 0.5))


def cases() -> Iterator[Case]:
    """Yield all pairs of types, larger and smaller scales."""
    for source, result in itertools.product(_INTEGERS, repeat=2):
        if (source, result) == ("int16", "uint8"):
            continue  # unsupported by TFLite
        for scales in _CHANGES:
            inside, outside = (
                (scale / (100 if dtype == "int16" else 1), {"uint8": 120, "int8": -8}.get(dtype, 0))
                for dtype, scale in zip((source, result), scales, strict=True)
            )
            detail = "to_{}-in2x65-scales{:.3g}_{:.3g}".format(result, *scales)
            make = partial(quantize, source, result, (2, 65), inside, outside)
            yield case("quantize", _INTEGERS[source], detail, make)
    for dtype, shape in itertools.product(_INTEGERS, ((1,), (65,), (2, 5, 7, 3))):
        make = partial(quantize, "float32", dtype, shape, None, USUAL[dtype][0])
        yield case("quantize", "float32", f"to_{dtype}-in{sizes(shape)}", make)
        yield _dequantize(dtype, shape)
    for source, result in itertools.product(_CASTS, _CAST_TO):
        if source != result:
            yield _cast(source, result)
    yield _cast("float32", "int64", "-large", (-(2.0**60), 2.0**60))


def edges() -> Iterator[Case]:
    """Yield limits of zero points and scales, lengths, and QUANTIZE of int32."""
    for source, result in itertools.product(ENDS, repeat=2):
        for zeros in itertools.product(ENDS[source], ENDS[result]):
            for scales in ((0.1, 0.07), (0.25, 0.5)):
                yield _quantize(source, result, (256,), scales, zeros)
        for scales in _RATIOS:  # results may all be equal
            yield _quantize(source, result, (3, 5), scales, (0, 0))
    yield _quantize("uint8", "int8", (256,), (0.5, 0.5), (128, 0))
    for length in (3, 63, 64, 4095, 4097):
        yield _quantize("uint8", "int8", (length,), (0.1, 0.07), (3, 8))
        yield _quantize("float32", "uint8", (length,), (1.0, 0.07), (0, 8))
        yield _dequantize("uint8", (length,))
    for source, result in (
        *(("uint8", "int16"), ("int8", "int16"), ("int16", "int8"), ("int16", "int16")),
        *(("int32", "int8"), ("int32", "int16")),
    ):
        for scales in _RATIOS:
            yield _quantize(source, result, (3, 5), scales, (0, 0))
        if source == "int32":
            yield _quantize(source, result, (3, 683), (1e-8, 0.07), (0, 0))
    for dtype, zeros in ENDS.items():
        for zero, scale in itertools.product(zeros, (0.1, 1e30, 2.0**-126)):
            yield _dequantize(dtype, (256,), (scale, zero))


def _quantize(
    source: str, result: str, shape: Shape, scales: tuple[float, float], zeros: tuple[int, int]
) -> Case:
    detail = "to_{}-in{}-scales{:g}_{:g}-zeros{}_{}".format(result, sizes(shape), *scales, *zeros)
    inside, outside = zip(scales, zeros, strict=True)
    make = partial(quantize, source, result, shape, inside, outside)
    return case("quantize", _INTEGERS.get(source, source), detail, make)


def quantize(
    source: str,
    result: str,
    shape: Shape,
    inside: tuple[float, int] | None,
    outside: tuple[float, int],
) -> Graph:
    """Return the model of a QUANTIZE; `inside`, `outside`: scales and zero points of integers."""
    is_float = source == "float32"
    version = VERSIONS.get(result, 1) if is_float else 3 if "int16" in (source, result) else 2
    values = tensor(shape) if is_float or inside is None else tensor(shape, source, *inside)
    return one("QUANTIZE", [values], tensor(shape, result, *outside), {}, version)


def _dequantize(dtype: str, shape: Shape, quantization: tuple[float, int] | None = None) -> Case:
    detail = f"in{sizes(shape)}"
    if quantization is not None:
        detail += "-scale{:g}-zero{}".format(*quantization).replace("+", "")
    make = partial(dequantize, dtype, shape, *(quantization or USUAL[dtype][0]))
    return case("dequantize", _INTEGERS[dtype], detail, make)


def dequantize(dtype: str, shape: Shape, scale: float, zero: int) -> Graph:
    """Return the model of a DEQUANTIZE."""
    values = tensor(shape, dtype, scale, zero)
    return one("DEQUANTIZE", [values], tensor(shape), {}, VERSIONS.get(dtype, 1))


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
