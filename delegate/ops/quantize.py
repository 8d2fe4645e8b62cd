# SPDX-License-Identifier: Apache-2.0
"""QUANTIZE: floats to 8 or 16 bits, and requantisation: by table from 8 and 16 bits, from int32."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.node import inputs_of, output_of
from delegate.ops._checks.shapes import elements_of, shape_text
from delegate.ops._launches.lookup import lookup
from delegate.ops._launches.tiles import by_elements, launch_over
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import fixed_point
from delegate.ops._numbers.float32 import bits
from delegate.ops._registry import lowers
from delegate.target import Target

# Input -> outputs, as TFLite has them.
_FROM_INT32 = ("int8", "int16")
_FROM_INT16 = ("int8", "int16")


@dataclass(frozen=True, slots=True, eq=False)
class FromFloats:
    """A checked quantisation of floats."""

    source: Tensor
    result: Tensor
    scale: float
    zero_point: int


@dataclass(frozen=True, slots=True, eq=False)
class Rescaling:
    """A checked requantisation of integers."""

    source: Tensor
    result: Tensor
    in_zero: int
    out_zero: int
    multiplier: int
    shift: int

    def answers(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what TFLite makes of these values."""
        scaled = fixed_point.multiply_by_quantized_multiplier(
            values - self.in_zero, self.multiplier, self.shift
        )
        sums = fixed_point.wrap_int32(scaled + self.out_zero)
        return fixed_point.clamped(sums, self.result.dtype)


@lowers("QUANTIZE")
def lower_quantize(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Bring floats to a scale, or integers to another scale, zero point or type.

    Raises:
        Unsupported: types that TFLite does not bring to each other, several scales.
    Source: tflite/kernels/quantize.cc, internal/reference/quantize.h AffineQuantize, requantize.h
    """
    return alternatives(decode(node), target)


def decode(node: Node) -> FromFloats | Rescaling:
    """Return what a node brings to a scale, checked.

    Raises:
        Unsupported: see `lower_quantize`.
    """
    (source,), _ = inputs_of(node.inputs, 1)
    result = output_of(node.outputs)
    if source.shape != result.shape:
        raise Unsupported(f"{shape_text(source)} -> {shape_text(result)}: the shape must stay")
    elements_of(source)
    out_scale, out_zero = quantized.per_tensor(result, quantized.QUANT)
    if source.dtype == "float32":
        if not 2.0**-96 < out_scale < 2.0**96:
            raise Unsupported(
                f"scale {out_scale}: only 2^-96 to 2^96, so that its reciprocal is exact"
            )
        return FromFloats(source, result, out_scale, out_zero)
    in_scale, in_zero = quantized.per_tensor(source, (*quantized.QUANT, "int32"))
    outputs = {"int16": _FROM_INT16, "int32": _FROM_INT32}.get(source.dtype, quantized.QUANT)
    if result.dtype not in outputs:
        raise Unsupported(f"{source.dtype} to {result.dtype}: only to {' and '.join(outputs)}")
    multiplier, shift = fixed_point.quantize_multiplier(in_scale / out_scale)
    if shift > 30:
        raise Unsupported(f"a scale ratio of 2^{shift}: more than 2^30")
    return Rescaling(source, result, in_zero, out_zero, multiplier, shift)


def alternatives(case: FromFloats | Rescaling, target: Target) -> tuple[Alternative, ...]:
    """Return the look-ups in a table for integers of 8 and 16 bits, the plain launch for others."""
    if isinstance(case, FromFloats):
        launch = _launch("quantize_float", case, _numbers_of_floats(case), target)
    elif case.source.dtype == "int32":
        numbers: Params = {
            "input_zero": case.in_zero,
            "multiplier": case.multiplier,
            "shift": case.shift,
            "output_zero": case.out_zero,
        }
        launch = _launch("quantize_int32", case, numbers, target)
    else:
        return lookup(case.source, case.result, case.answers, target)
    return (Alternative("plain", (launch,)),)


def _numbers_of_floats(case: FromFloats) -> Params:
    scale, zero_point, result = case.scale, case.zero_point, case.result
    limits = np.iinfo(result.dtype)
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


def _launch(kernel: str, case: FromFloats | Rescaling, numbers: Params, target: Target) -> Launch:
    limits = np.iinfo(case.result.dtype)
    elements = elements_of(case.result)
    tiling = by_elements(elements, target)
    return launch_over(
        "quantize",
        kernel,
        tiling,
        {
            "input": case.source,
            "output": case.result,
            **numbers,
            "output_min": int(limits.min),
            "output_max": int(limits.max),
            "elements": elements,
        },
        {"ELEM": ELEM[case.result.dtype]},
    )


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
