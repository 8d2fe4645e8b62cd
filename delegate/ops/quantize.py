# SPDX-License-Identifier: Apache-2.0
"""QUANTIZE, DEQUANTIZE and CAST: elements to another type, scale or zero point.

Elements of 8 and 16 bits by table, where that is exact by one multiplication; others computed.
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
from delegate.ops._launches.types import ELEM, moved_type
from delegate.ops._numbers import bits, fixed_point
from delegate.ops._registry import lowers
from delegate.target import Rules, Target

# Integers that are not brought to every quantised type in TFLite.
_OUTPUTS = {"int16": ("int8", "int16"), "int32": ("int8", "int16")}
_CAST = (
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
_NEWER = ("uint16", "uint32", "float16")  # only where casts saturate it is known what comes of them


@lowers("QUANTIZE", floats=EXACT)
def lower_quantize(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Bring floats to a scale, or integers to another scale, zero point or type.

    Raises:
        Unsupported: types that TFLite does not bring to each other, several scales.
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
        numbers = _numbers_of_floats(out_scale, out_zero, result.dtype)
        fallback = _computed("quantize_float", source, result, numbers, target)
        return (*_vectors(source, result, numbers, target), *fallback)
    in_scale, in_zero = quantized.per_tensor(source, (*quantized.QUANT, "int32"))
    outputs = _OUTPUTS.get(source.dtype, quantized.QUANT)
    if result.dtype not in outputs:
        raise Unsupported(f"{source.dtype} to {result.dtype}: only to {' and '.join(outputs)}")
    multiplier, shift = quantized.multiplier_of(in_scale / out_scale)
    if source.dtype == "int32":
        numbers = {"input_zero": in_zero, "multiplier": multiplier, "shift": shift}
        numbers |= {"output_zero": out_zero}
        return _computed("quantize_int32", source, result, numbers, target)

    def answers(values: NDArray[np.int64]) -> NDArray[np.int64]:
        scaled = fixed_point.multiply_by_quantized_multiplier(values - in_zero, multiplier, shift)
        return fixed_point.clamped(fixed_point.wrap_int32(scaled + out_zero), result.dtype)

    return lookup(source, result, answers, target)


def _numbers_of_floats(scale: float, zero_point: int, dtype: str) -> Params:
    limits = np.iinfo(dtype)
    # What this machine's conversion makes of the quotients an int32 cannot hold: C does not say,
    # so TFLite's answer is the processor's.
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
    """Return the launch over vectors of floats; none where they fill none.

    Of 16 bits a product with the reciprocal is too far off to tell the answer.
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
    """Return for each output value the least float that gives it; nothing is below the lowest."""
    steps = np.arange(lowest + 1, highest + 1) - zero_point
    halves = (steps - 0.5).astype(np.float32)
    # Ties go away from zero: up from +0.5, but not from -0.5.
    reached = np.where(steps > 0, halves, np.nextafter(halves, np.float32(np.inf)))
    first = np.array([-np.inf], np.float32)
    return np.concatenate([first, _first_to_reach(reached, scale)])


def _first_to_reach(quotients: NDArray[np.float32], scale: float) -> NDArray[np.float32]:
    """Return the least floats that, divided by the scale in float32, are as large."""
    divisor = np.float32(scale)
    near = (quotients.astype(np.float64) * scale).astype(np.float32)
    for _ in range(4):
        near = np.nextafter(near, np.float32(-np.inf))
    for _ in range(8):
        near = np.where(near / divisor >= quotients, near, np.nextafter(near, np.float32(np.inf)))
    return near


@lowers("DEQUANTIZE", floats=sums(Growth.STEADY))
def lower_dequantize(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Turn quantised integers or float16 into float32.

    Raises:
        Unsupported: types other than uint8, int8, int16, int4 and float16, an output other than
            float32, several scales.
    Source: tflite/kernels/internal/reference/dequantize.h, whose product in doubles has 41 bits
    and is rounded once
    """
    source, result = tensors_of(node, 1)
    if result.dtype != "float32":
        raise Unsupported(f"{source.dtype} to {result.dtype}: only float32 comes out")
    require_same_shape(source, result)
    if source.dtype == "float16":
        return lookup(source, result, _halves, target, read_as="uint16")
    if source.dtype == "int4":
        scale, zero_point = quantized.per_tensor(replace(source, dtype="int8"))
        if scale < np.finfo(np.float32).tiny:
            raise Unsupported(f"int4 with scale {scale}: products may be zero on a device")
        return (Alternative("plain", (_product(source, result, scale, zero_point, target),)),)
    scale, zero_point = quantized.per_tensor(source, quantized.QUANT)

    def answers(values: NDArray[np.int64]) -> NDArray[Any]:
        with np.errstate(over="ignore"):
            return (scale * (values - zero_point)).astype(np.float32)

    by_table = lookup(source, result, answers, target)
    # A device may take floats below the least normal one for zeros.
    if scale < np.finfo(np.float32).tiny:
        return by_table
    product = _product(source, result, scale, zero_point, target)
    return (Alternative("product", (product,)), *by_table)


def _product(
    source: Tensor, result: Tensor, scale: float, zero_point: int, target: Target
) -> Launch:
    """Return the launch that multiplies integers, less their zero point, by a scale."""
    fields: Params = {"input": source, "output": result, "scale": bits(scale), "zero": zero_point}
    kernel, of_bytes = "dequantize", source.dtype
    if source.dtype == "int4":
        kernel, of_bytes = "dequantize_int4", "int8"
    defines: Defines = {"ELEM": ELEM[of_bytes]}
    elements = math.prod(result.shape)
    # On CPUs compilers make vectors of a plain loop.
    lanes = lanes_of(elements, target) if target.group_items > 1 else 0
    if not lanes or source.dtype == "int4":
        return over_elements("dequantize", kernel, elements, target, fields, defines)
    kernel = f"{kernel}_vector"
    return over_vectors("dequantize", kernel, elements, lanes, target, fields, defines)


def _halves(values: NDArray[np.int64]) -> NDArray[Any]:
    return values.astype(np.uint16).view(np.float16).astype(np.float32)


@lowers("CAST", floats=SELECTS)
def lower_cast(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Convert each value to the output's type, as C's static_cast does.

    Floats that the output cannot hold become its nearest value, and NaN its greatest, in
    ai-edge-litert; tflite-runtime leaves them to C, so to the processor.

    Raises:
        Unsupported: other types.
    Source: tflite/kernels/cast.cc
    """
    source, result = tensors_of(node, 1)
    if (source.dtype, result.dtype) == ("int4", "float32"):  # of int4 TFLite has this one alone
        require_same_shape(source, result)
        return (Alternative("plain", (_product(source, result, 1.0, 0, target),)),)
    for tensor in (source, result):
        if tensor.dtype not in _CAST:
            raise Unsupported(f"{tensor.dtype}: only {', '.join(_CAST)}")
    elements = require_same_shape(source, result)
    elements_of(result)
    if source.dtype == result.dtype:
        return view(source, result)
    for tensor in (source, result):
        if tensor.dtype in _NEWER and not target.rules.saturating_cast:
            raise Unsupported(f"{tensor.dtype}: this TFLite leaves it to the processor")
    if source.dtype == "float16":
        return lookup(source, result, lambda words: _of_halves(words, result), target, "uint16")
    if np.dtype(source.dtype).itemsize < 4:
        return lookup(source, result, lambda values: _to(values, result.dtype), target)
    params: Params = {"input": source, "output": result}
    if source.dtype == "float32" and result.dtype not in ("bool", "float16"):
        params |= _answers_to_floats(result.dtype, target.rules)
    defines: Defines = {"SOURCE": moved_type(source), "RESULT": moved_type(result)}
    for tensor, side in ((source, "SOURCE"), (result, "RESULT")):
        for dtype, name in _KIND.items():
            defines[f"{side}_{name}"] = int(tensor.dtype == dtype)
    launch = over_elements("cast", "cast", elements, target, params, defines)
    return (Alternative("plain", (launch,)),)


def _to(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Convert, also what is beyond a half, and NaN that is a signal."""
    with np.errstate(over="ignore", invalid="ignore"):
        found: NDArray[Any] = values.astype(dtype)
    return found


def _of_halves(words: NDArray[np.int64], result: Tensor) -> NDArray[Any]:
    """Return what all 65,536 halves become: an integer's nearest value, of NaN its greatest."""
    halves = words.astype(np.uint16).view(np.float16)
    if result.dtype in ("float32", "bool"):
        return _to(halves, result.dtype)
    values = _to(halves, "float64")
    limits = np.iinfo(result.dtype)
    bounded = np.nan_to_num(values, nan=np.inf, posinf=np.inf, neginf=-np.inf)
    inside = np.clip(bounded, -65536.0, 65536.0).astype(np.int64)
    whole: NDArray[Any] = np.clip(inside, limits.min, limits.max)
    whole[bounded == np.inf] = limits.max
    whole[bounded == -np.inf] = limits.min
    return whole


def _answers_to_floats(dtype: str, rules: Rules) -> Params:
    """Return between which floats the digits decide, and the answers beyond them and of NaN.

    Units:
        answers: two words of an int64, the low one first
    """
    limits = np.iinfo(dtype)
    if rules.saturating_cast:
        # The answer is truncated: the least value is that of floats down to one below it.
        above = 2.0 ** int(limits.max).bit_length()
        below = float(limits.min) - 1 if limits.max < 2**24 or not limits.min else -above
        answers = [int(limits.min), int(limits.max), int(limits.max)]
    else:
        wide = 64 if dtype == "int64" else 32
        above, below = 2.0 ** (wide - 1), -(2.0 ** (wide - 1))
        with warnings.catch_warnings(), np.errstate(invalid="ignore"):
            floats = np.array([-1e30, 1e30, np.nan], np.float32)
            answers = floats.astype(f"int{wide}").tolist()
    return {
        "above": bits(above),
        "below": bits(below),
        "answers": Constant(24, lambda: np.array(answers, np.int64).view(np.int32)),
    }
