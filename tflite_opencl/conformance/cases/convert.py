# SPDX-License-Identifier: Apache-2.0
"""QUANTIZE, DEQUANTIZE and CAST: between all types, scales that grow and shrink."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from delegate.inspect import Graph
from tflite_opencl.common.build import USUAL, Case, case, one, sizes, tensor

_SHAPES = ((1,), (65,), (2, 5, 7, 3))
_QUANT = ("uint8", "int8", "int16")
_SCALES = ((0.1, 0.07), (0.02, 0.5), (0.5, 0.02), (0.25, 0.25), (1.0, 1 / 3))
_CASTS = ("float32", "int32", "int64", "uint8", "int8", "int16", "bool")


def cases() -> Iterator[Case]:
    """Yield this family's cases."""
    for source, result in itertools.product(_QUANT, repeat=2):
        if (source, result) == ("int16", "uint8"):
            continue  # which TFLite does not have
        for scales in _SCALES:
            detail = f"to_{result}-in2x65-scales{scales[0]:.3g}_{scales[1]:.3g}"
            yield case("quantize", _kind(source), detail, _requantize, source, result, scales)
    for dtype, shape in itertools.product(_QUANT, _SHAPES):
        detail = f"to_{dtype}-in{sizes(shape)}"
        yield case("quantize", "float32", detail, _quantize, "QUANTIZE", shape, dtype)
        detail = f"in{sizes(shape)}"
        yield case("dequantize", _kind(dtype), detail, _quantize, "DEQUANTIZE", shape, dtype)
    for source, result in itertools.product(_CASTS, repeat=2):
        if source != result:
            yield case("cast", source, f"to_{result}-in2x37", _cast, source, result)
    detail = "to_int64-in2x37-large"
    yield case("cast", "float32", detail, _cast, "float32", "int64", (-(2.0**60), 2.0**60))


def _kind(dtype: str) -> str:
    return "16x8" if dtype == "int16" else dtype


def _zero(dtype: str) -> int:
    return {"uint8": 120, "int8": -8}.get(dtype, 0)


def _requantize(source: str, result: str, scales: tuple[float, float]) -> Graph:
    inside = tensor((2, 65), source, scales[0] / (100 if source == "int16" else 1), _zero(source))
    outside = tensor((2, 65), result, scales[1] / (100 if result == "int16" else 1), _zero(result))
    version = 3 if "int16" in (source, result) else 2
    return one("QUANTIZE", [inside], [outside], {}, version)


def _quantize(op: str, shape: tuple[int, ...], dtype: str) -> Graph:
    quantised, plain = tensor(shape, dtype, *USUAL[dtype][0]), tensor(shape)
    pair = [plain, quantised] if op == "QUANTIZE" else [quantised, plain]
    version = {"uint8": 1, "int8": 2, "int16": 3}[dtype]
    return one(op, pair[:1], pair[1:], {}, version)


def _cast(source: str, result: str, limits: tuple[float, float] = (0.0, 100.0)) -> Graph:
    # Beyond a type's range C says nothing of what a float becomes. A bool has none: any number is.
    allowed = limits if source == "float32" and result != "bool" else None
    options = {"in_data_type": source, "out_data_type": result}
    version = 1 if {source, result} <= {"float32", "int32", "int64", "uint8", "bool"} else 4
    return one(
        "CAST",
        [tensor((2, 37), source, limits=allowed)],
        [tensor((2, 37), result)],
        options,
        version,
    )
