# SPDX-License-Identifier: Apache-2.0
"""QUANTIZE, DEQUANTIZE and CAST: conversions to another type, scale or zero point.

8-bit and 16-bit inputs use lookup tables, or one multiplication where that is exact.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.float_results import EXACT, SELECTS, Growth, sums
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Defines, Launch, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.node import elements_of, require_same_shape, tensors_of
from delegate.ops._launches.copy import view
from delegate.ops._launches.lookup import lookup
from delegate.ops._launches.tiles import lanes_of, over_elements, over_vectors
from delegate.ops._launches.types import ELEM, copy_type
from delegate.ops._numbers import bits, fixed_point
from delegate.ops._registry import lowers
from delegate.target import Rules, Target

# Integers that TFLite does not convert to every quantised type.
_OUTPUTS = {"int16": ("int8", "int16"), "int32": ("int8", "int16")}
_CAST_TYPES = (
    *("uint8", "int8", "uint16", "int16", "uint32", "int32", "int64"),
    *("float16", "float32", "bool"),
)
_KIND = {
    "float32": "IS_FLOAT",
    "float16": "IS_HALF",
    "int64": "IS_LONG",
    "bool": "IS_BOOL",
    "uint32": "IS_UNSIGNED",
}
_SATURATING = ("uint16", "uint32", "float16")  # specified only where TFLite's casts saturate


@lowers("QUANTIZE", floats=EXACT)
def lower_quantize(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Quantise floats, or requantise integers to another scale, zero point or type.

    Raises:
        Unsupported: type pairs that TFLite does not convert, several scales.
    Source: tflite/kernels/quantize.cc, internal/reference/quantize.h AffineQuantize, requantize.h
    """
    source, result = tensors_of(node, 1)
    require_same_shape(source, result)
    out_scale, out_zero = quantized.per_tensor(result, quantized.QUANT)
    if source.dtype == "float32":
        if not 2.0**-96 < out_scale < 2.0**96:
            raise Unsupported(
                f"scale {out_scale}: only 2^-96 to 2^96, so that its reciprocal is exact"
            )
        params = _float_params(out_scale, out_zero, result.dtype)
        fallback = _computed("quantize_float", source, result, params, target)
        return (*_vectors(source, result, params, target), *fallback)
    in_scale, in_zero = quantized.per_tensor(source, (*quantized.QUANT, "int32"))
    out_types = _OUTPUTS.get(source.dtype, quantized.QUANT)
    if result.dtype not in out_types:
        raise Unsupported(f"{source.dtype} to {result.dtype}: only to {' and '.join(out_types)}")
    multiplier, shift = quantized.multiplier_of(in_scale / out_scale)
    if source.dtype == "int32":
        params = {"input_zero": in_zero, "multiplier": multiplier, "shift": shift}
        params |= {"output_zero": out_zero}
        return _computed("quantize_int32", source, result, params, target)

    def table(values: NDArray[np.int64]) -> NDArray[np.int64]:
        scaled = fixed_point.multiply_by_quantized_multiplier(values - in_zero, multiplier, shift)
        return fixed_point.clamped(fixed_point.wrap_int32(scaled + out_zero), result.dtype)

    return lookup(source, result, table, target)


def _float_params(scale: float, zero_point: int, dtype: str) -> Params:
    limits = np.iinfo(dtype)
    # This machine's conversion of quotients that overflow int32: undefined in C, so TFLite's result
    # is the processor's.
    with np.errstate(invalid="ignore"):
        converted = np.array([-3e9, 3e9, np.nan], np.float32).astype(np.int32)
    sums = fixed_point.wrap_int32(converted.astype(np.int64) + zero_point)
    lowest, highest, nan = np.clip(sums, limits.min, limits.max).tolist()
    return {
        "factor": bits(1 / scale),
        "output_zero": zero_point,
        "thresholds": Constant(
            4 * (int(limits.max) - int(limits.min) + 1),
            lambda: _thresholds(scale, zero_point, int(limits.min), int(limits.max)),
        ),
        "beyond": bits(float(_first_to_reach(np.array([2.0**31], np.float32), scale)[0])),
        "lowest": lowest,
        "highest": highest,
        "not_a_number": nan,
    }


def _computed(
    kernel: str, source: Tensor, result: Tensor, numbers: Params, target: Target
) -> tuple[Alternative, ...]:
    fields: Params = {"input": source, "output": result, **numbers, **quantized.whole_range(result)}
    defines: Defines = {"ELEM": ELEM[result.dtype]}
    launch = over_elements("quantize", kernel, elements_of(result), target, fields, defines)
    return (Alternative("plain", (launch,)),)


def _vectors(
    source: Tensor, result: Tensor, numbers: Params, target: Target
) -> tuple[Alternative, ...]:
    """Return the launch over vectors of floats; none if there are too few.

    For 16 bits a product with the reciprocal is too inexact.
    """
    elements = elements_of(result)
    lanes = lanes_of(elements, target)
    if result.dtype not in quantized.QUANT8 or not lanes:
        return ()
    fields: Params = {"input": source, "output": result, **numbers, **quantized.whole_range(result)}
    defines: Defines = {"ELEM": ELEM[result.dtype]}
    kernel = "quantize_vector_float"
    launch = over_vectors("quantize", kernel, elements, lanes, target, fields, defines)
    return (Alternative(f"vector {lanes}", (launch,)),)


def _thresholds(scale: float, zero_point: int, lowest: int, highest: int) -> NDArray[np.float32]:
    """Return for each output value the least float that is quantised to it; -inf for the lowest."""
    steps = np.arange(lowest + 1, highest + 1) - zero_point
    midpoints = (steps - 0.5).astype(np.float32)
    # Ties go away from zero: up from +0.5, but not from -0.5.
    bounds = np.where(steps > 0, midpoints, np.nextafter(midpoints, np.float32(np.inf)))
    first = np.array([-np.inf], np.float32)
    return np.concatenate([first, _first_to_reach(bounds, scale)])


def _first_to_reach(quotients: NDArray[np.float32], scale: float) -> NDArray[np.float32]:
    """Return the least floats whose float32 quotient by the scale is at least `quotients`."""
    divisor = np.float32(scale)
    near = (quotients.astype(np.float64) * scale).astype(np.float32)
    for _ in range(4):
        near = np.nextafter(near, np.float32(-np.inf))
    for _ in range(8):
        near = np.where(near / divisor >= quotients, near, np.nextafter(near, np.float32(np.inf)))
    return near


@lowers("DEQUANTIZE", floats=sums(Growth.STEADY))
def lower_dequantize(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Convert quantised integers or float16 to float32.

    Raises:
        Unsupported: inputs other than uint8, int8, int16, int4 and float16, outputs other than
            float32, several scales.
    Source: tflite/kernels/internal/reference/dequantize.h, whose product in doubles has 41 bits and
    is rounded once
    """
    source, result = tensors_of(node, 1)
    if result.dtype != "float32":
        raise Unsupported(f"{source.dtype} to {result.dtype}: only float32 comes out")
    require_same_shape(source, result)
    if source.dtype == "float16":
        return lookup(source, result, _from_fp16, target, read_as="uint16")
    if source.dtype == "int4":
        scale, zero_point = quantized.per_tensor(replace(source, dtype="int8"))
        if scale < np.finfo(np.float32).tiny:
            raise Unsupported(f"int4 with scale {scale}: products may be zero on a device")
        return (Alternative("plain", (_product(source, result, scale, zero_point, target),)),)
    scale, zero_point = quantized.per_tensor(source, quantized.QUANT)

    def table(values: NDArray[np.int64]) -> NDArray[Any]:
        with np.errstate(over="ignore"):
            return (scale * (values - zero_point)).astype(np.float32)

    by_table = lookup(source, result, table, target)
    # A device may flush denormal floats to zero.
    if scale < np.finfo(np.float32).tiny:
        return by_table
    product = _product(source, result, scale, zero_point, target)
    return (Alternative("product", (product,)), *by_table)


def _product(
    source: Tensor, result: Tensor, scale: float, zero_point: int, target: Target
) -> Launch:
    """Return the launch that computes (integers - zero point) * scale."""
    fields: Params = {"input": source, "output": result, "scale": bits(scale), "zero": zero_point}
    kernel, element = "dequantize", source.dtype
    if source.dtype == "int4":
        kernel, element = "dequantize_int4", "int8"
    defines: Defines = {"ELEM": ELEM[element]}
    elements = math.prod(result.shape)
    # CPU compilers vectorise the plain loop.
    lanes = lanes_of(elements, target) if target.group_items > 1 else 0
    if not lanes or source.dtype == "int4":
        return over_elements("dequantize", kernel, elements, target, fields, defines)
    kernel = f"{kernel}_vector"
    return over_vectors("dequantize", kernel, elements, lanes, target, fields, defines)


def _from_fp16(values: NDArray[np.int64]) -> NDArray[Any]:
    return values.astype(np.uint16).view(np.float16).astype(np.float32)


@lowers("CAST", floats=SELECTS)
def lower_cast(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Convert each value to the output's type, like C++'s static_cast.

    In ai-edge-litert floats out of range saturate, and NaN becomes the highest value. In
    tflite-runtime they are undefined in C++: the result is the processor's.

    Raises:
        Unsupported: other types.
    """
    source, result = tensors_of(node, 1)
    if (source.dtype, result.dtype) == ("int4", "float32"):  # TFLite's only cast of int4
        require_same_shape(source, result)
        return (Alternative("plain", (_product(source, result, 1.0, 0, target),)),)
    for tensor in (source, result):
        if tensor.dtype not in _CAST_TYPES:
            raise Unsupported(f"{tensor.dtype}: only {', '.join(_CAST_TYPES)}")
    elements = require_same_shape(source, result)
    elements_of(result)
    if source.dtype == result.dtype:
        return view(source, result)
    for tensor in (source, result):
        if tensor.dtype in _SATURATING and not target.rules.saturating_cast:
            raise Unsupported(f"{tensor.dtype}: this TFLite leaves it to the processor")
    if source.dtype == "float16":
        return lookup(source, result, lambda words: _cast_fp16(words, result), target, "uint16")
    if np.dtype(source.dtype).itemsize < 4:
        return lookup(source, result, lambda values: _cast(values, result.dtype), target)
    params: Params = {"input": source, "output": result}
    if source.dtype == "float32" and result.dtype not in ("bool", "float16"):
        params |= _float_cast_params(result.dtype, target.rules)
    defines: Defines = {"SOURCE": copy_type(source), "RESULT": copy_type(result)}
    for tensor, side in ((source, "SOURCE"), (result, "RESULT")):
        for dtype, name in _KIND.items():
            defines[f"{side}_{name}"] = int(tensor.dtype == dtype)
    launch = over_elements("cast", "cast", elements, target, params, defines)
    return (Alternative("plain", (launch,)),)


def _cast(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Convert without warnings about overflow to fp16 and signalling NaNs."""
    with np.errstate(over="ignore", invalid="ignore"):
        converted: NDArray[Any] = values.astype(dtype)
    return converted


def _cast_fp16(patterns: NDArray[np.int64], result: Tensor) -> NDArray[Any]:
    """Return the conversions of all 65,536 fp16 values; NaN becomes the highest integer."""
    numbers = patterns.astype(np.uint16).view(np.float16)
    if result.dtype in ("float32", "bool"):
        return _cast(numbers, result.dtype)
    values = _cast(numbers, "float64")
    limits = np.iinfo(result.dtype)
    bounded = np.nan_to_num(values, nan=np.inf, posinf=np.inf, neginf=-np.inf)
    inside = np.clip(bounded, -65536.0, 65536.0).astype(np.int64)
    whole: NDArray[Any] = np.clip(inside, limits.min, limits.max)
    whole[bounded == np.inf] = limits.max
    whole[bounded == -np.inf] = limits.min
    return whole


def _float_cast_params(dtype: str, rules: Rules) -> Params:
    """Return the bounds of floats that are truncated, and the results below, above and for NaN.

    Units:
        answers: two words of an int64, the low one first
    """
    limits = np.iinfo(dtype)
    if rules.saturating_cast:
        # Casts truncate, so floats above `limits.min - 1` still become `limits.min`.
        above = 2.0 ** int(limits.max).bit_length()
        below = float(limits.min) - 1 if limits.max < 2**24 or not limits.min else -above
        results = [int(limits.min), int(limits.max), int(limits.max)]
    else:
        wide = 64 if dtype == "int64" else 32
        above, below = 2.0 ** (wide - 1), -(2.0 ** (wide - 1))
        with warnings.catch_warnings(), np.errstate(invalid="ignore"):
            floats = np.array([-1e30, 1e30, np.nan], np.float32)
            results = floats.astype(f"int{wide}").tolist()
    return {
        "above": bits(above),
        "below": bits(below),
        "answers": Constant(24, lambda: np.array(results, np.int64).view(np.int32)),
    }
