# SPDX-License-Identifier: Apache-2.0
"""QUANTIZE: floats to 8 or 16 bits, and requantisation: by table from 8 and 16 bits, from int32."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Defines, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.node import elements_of, require_same_shape, tensors_of
from delegate.ops._launches.lookup import lookup
from delegate.ops._launches.tiles import over_elements
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import bits, fixed_point
from delegate.ops._registry import lowers
from delegate.target import Target

# Integers that are not brought to every quantised type in TFLite.
_OUTPUTS = {"int16": ("int8", "int16"), "int32": ("int8", "int16")}


@lowers("QUANTIZE")
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
        return _plain("quantize_float", source, result, numbers, target)
    in_scale, in_zero = quantized.per_tensor(source, (*quantized.QUANT, "int32"))
    outputs = _OUTPUTS.get(source.dtype, quantized.QUANT)
    if result.dtype not in outputs:
        raise Unsupported(f"{source.dtype} to {result.dtype}: only to {' and '.join(outputs)}")
    multiplier, shift = quantized.multiplier_of(in_scale / out_scale)
    if source.dtype == "int32":
        numbers = {
            "input_zero": in_zero,
            "multiplier": multiplier,
            "shift": shift,
            "output_zero": out_zero,
        }
        return _plain("quantize_int32", source, result, numbers, target)

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


def _plain(
    kernel: str, source: Tensor, result: Tensor, numbers: Params, target: Target
) -> tuple[Alternative, ...]:
    limits = np.iinfo(result.dtype)
    bounds = {"output_min": int(limits.min), "output_max": int(limits.max)}
    fields: Params = {"input": source, "output": result, **numbers, **bounds}
    defines: Defines = {"ELEM": ELEM[result.dtype]}
    launch = over_elements("quantize", kernel, elements_of(result), target, fields, defines)
    return (Alternative("plain", (launch,)),)


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
