# SPDX-License-Identifier: Apache-2.0
"""Elementwise functions: computed for floats, lookup tables for 8 and 16 bits.

ELU, GELU, HARD_SWISH, LEAKY_RELU, LOGISTIC, TANH, RELU, RELU6, RELU_N1_TO_1, RELU_0_TO_1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.float_results import SELECTION, SELECTS, FloatResult, Growth, roundings
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import reals_of, steps_of_scale
from delegate.ops._checks.node import elements_of, one_to_one
from delegate.ops._launches.lookup import (
    TableFunction,
    interpolated_floats,
    lookup,
    rounded_floats,
    rounded_sigmoid,
)
from delegate.ops._launches.tiles import LEAST_ELEMENTS, LEAST_FUNCTIONS, over_elements
from delegate.ops._numbers import bits, fixed_point
from delegate.ops._numbers.float_functions import elu, gelu
from delegate.ops._registry import lowers
from delegate.target import Target


def _floats(
    function: str,
    source: Tensor,
    result: Tensor,
    target: Target,
    params: Mapping[str, int] | None = None,
) -> tuple[Alternative, ...]:
    """Return the launch for floats; `function` is its name in activation.cl."""
    elements = elements_of(source)
    fields: Params = {"input": source, "output": result, **(params or {})}
    defines: dict[str, int | str] = {f"IS_{function.upper()}": 1}
    is_long = function in ("elu", "gelu", "gelu_tanh", "logistic", "tanh")
    least = LEAST_FUNCTIONS if is_long else LEAST_ELEMENTS
    launch = over_elements(
        "activation", "activation_float", elements, target, fields, defines, least
    )
    return (Alternative("plain", (launch,)),)


@lowers("ELU", floats=roundings(Growth.STEADY, 4))
def lower_elu(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Compute exp(x) - 1 where x < 0, else x.

    Raises:
        Unsupported: types other than int8 and float32.
    Source: tflite/kernels/activations.cc EluPrepare; elu.h
    """
    source, result = one_to_one(node, ("float32", "int8"))
    if source.dtype == "float32":
        return _floats("elu", source, result, target)
    function = elu(target.rules.float_function)
    return lookup(
        source,
        result,
        rounded_floats(source, result, function, target.rules.saturating_cast),
        target,
    )


@lowers("GELU", floats=roundings(Growth.STEADY, 8))
def lower_gelu(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Compute x times the normal distribution function of x, exactly or approximated by tanh.

    Raises:
        Unsupported: types other than uint8, int8, int16 and float32.
    Source: tflite/kernels/gelu.cc, internal/reference/gelu.h
    """
    source, result = one_to_one(node, ("float32", "uint8", "int8", "int16"))
    is_approximate = bool(node.options.get("approximate", False))
    if source.dtype == "float32":
        function = "gelu_tanh" if is_approximate else "gelu"
        return _floats(function, source, result, target)
    of_floats = gelu(is_approximate, target.rules.float_function)
    if source.dtype == "int16":
        return lookup(source, result, interpolated_floats(source, result, of_floats), target)
    results = rounded_floats(source, result, of_floats, target.rules.saturating_cast)
    return lookup(source, result, results, target)


@lowers("LEAKY_RELU", floats=roundings(Growth.STEADY, 1))
def lower_leaky_relu(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Multiply negative values by the option alpha.

    Raises:
        Unsupported: types other than uint8, int8, int16 and float32, an alpha that is not finite.
    Source: tflite/kernels/activations.cc LeakyReluPrepare, reference/leaky_relu.h
    """
    source, result = one_to_one(node, ("float32", *quantized.QUANT))
    alpha = node.options.get("alpha", 0.0)
    if not isinstance(alpha, float | int) or not np.isfinite(np.float32(alpha)):
        raise Unsupported(f"alpha is {alpha!r}: a finite number is needed")
    if source.dtype == "float32":
        return _floats("leaky_relu", source, result, target, {"alpha": bits(alpha)})
    in_scale, in_zero = quantized.per_tensor(source, quantized.QUANT)
    out_scale, out_zero = quantized.per_tensor(result, quantized.QUANT)
    # TFLite computes products and quotients in float32.
    ratio = np.float32(in_scale) / np.float32(out_scale)
    negative_ratio = np.float32(in_scale) * np.float32(alpha) / np.float32(out_scale)
    positive = quantized.multiplier_of(float(ratio))
    negative = quantized.multiplier_of(abs(float(negative_ratio)))
    sign = -1 if negative_ratio < 0 else 1
    inner_sign, outer_sign = (1, sign) if target.rules.leaky_relu_by_size else (sign, 1)

    def table(values: NDArray[np.int64]) -> NDArray[np.int64]:
        inputs = values - in_zero
        scaled = np.where(
            inputs >= 0,
            fixed_point.multiply_by_quantized_multiplier(inputs, *positive),
            outer_sign
            * fixed_point.multiply_by_quantized_multiplier(
                inputs, inner_sign * negative[0], negative[1]
            ),
        )
        return fixed_point.clamped(fixed_point.wrap_int32(scaled + out_zero), result.dtype)

    return lookup(source, result, table, target)


@lowers("LOGISTIC", "TANH", floats=roundings(Growth.STEADY, 8, limit=1.0))
def lower_sigmoid(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Compute 1 / (1 + exp(-x)), or the hyperbolic tangent.

    Raises:
        Unsupported: types other than uint8, int8, int16 and float32, an output scale or zero point
            other than the one TFLite requires, int16 with an input scale of 16/3 or more.
    Source: tflite/kernels/activations.cc SigmoidPrepare, TanhPrepare, reference/logistic.h,
    reference/integer_ops/logistic.h, tanh.h
    """
    source, result = one_to_one(node, ("float32", *quantized.QUANT))
    is_tanh = node.op == "TANH"
    if source.dtype == "float32":
        return _floats(node.op.lower(), source, result, target)
    if source.dtype == "int16":
        return lookup(source, result, _sigmoid_of_int16(source, result, is_tanh), target)
    return lookup(source, result, rounded_sigmoid(source, result, is_tanh, target), target)


def _sigmoid_of_int16(source: Tensor, result: Tensor, is_tanh: bool) -> TableFunction:
    """Return the interpolated table for int16.

    Raises:
        Unsupported: an output scale other than 2^-15; an input scale of 16/3 or more, whose
            products overflow int32, or below 3.8e-14, whose multiplier is 0: TFLite's shift is then
            undefined in C.
    """
    quantized.require_fixed_output(result, 2.0**-15, 0)
    in_scale, _ = quantized.per_tensor(source, quantized.QUANT)
    scaling = fixed_point.sigmoid_scaling(in_scale, most_shift=int(is_tanh))
    if scaling[0] >= 1 << 16:
        raise Unsupported(f"input scale {in_scale:g}: TFLite's products exceed int32 from 16/3 on")
    if scaling[0] == 0:  # TFLite takes it for a power of two, and shifts it out of an int32
        raise Unsupported(f"input scale {in_scale:g}: TFLite's shift exceeds 31 bits below 3.8e-14")

    def table(values: NDArray[np.int64]) -> NDArray[np.int64]:
        inputs = fixed_point.sigmoid_scaled(values, *scaling)
        if is_tanh:  # 2 * logistic(2 * x) - 1
            centred = fixed_point.interpolated_sigmoid(np.abs(inputs), 8) - (fixed_point.ONE << 7)
            return np.where(inputs >= 0, centred + (1 << 7), -centred + (1 << 7) - 1) >> 8
        positive = fixed_point.interpolated_sigmoid(np.abs(inputs), 9)
        # With 10 bits more than the output, rounded off below.
        negative = (fixed_point.ONE << 9) - positive
        return np.where(inputs >= 0, positive + (1 << 9), negative + (1 << 9) - 1) >> 10

    return table


@lowers("RELU", floats=SELECTS)
@lowers("RELU6", floats=FloatResult(SELECTION, Growth.STEADY, limit=6.0))
@lowers("RELU_N1_TO_1", "RELU_0_TO_1", floats=roundings(Growth.STEADY, limit=1.0))
def lower_relu(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Clamp each value to the op's bounds, rescaled to the output's scale.

    Raises:
        Unsupported: types other than uint8, int8, float32 and, for RELU and RELU6, int16.
    Source: tflite/kernels/activations.cc ReluPrepare, QuantizedReluX; reference_ops.h ReluX
    """
    wide_types = ("int16",) if node.op in ("RELU", "RELU6") else ()
    source, result = one_to_one(node, ("float32", *quantized.QUANT8, *wide_types))
    low, high = reals_of(node.op)
    if source.dtype == "float32":
        params = {
            "lowest": bits(-math.inf if low is None else low),
            "highest": bits(math.inf if high is None else high),
        }
        return _floats("relu", source, result, target, params)
    in_scale, in_zero = quantized.per_tensor(source, quantized.QUANT)
    out_scale, out_zero = quantized.per_tensor(result, quantized.QUANT)
    scaling = quantized.multiplier_of(float(np.float32(in_scale) / np.float32(out_scale)))
    limits = np.iinfo(result.dtype)
    lowest, highest = int(limits.min), int(limits.max)
    if low is not None:
        lowest = max(lowest, out_zero + steps_of_scale(low, out_scale, "bound"))
    if high is not None:
        highest = min(highest, out_zero + steps_of_scale(high, out_scale, "bound"))

    def table(values: NDArray[np.int64]) -> NDArray[np.int64]:
        scaled = fixed_point.multiply_by_quantized_multiplier(values - in_zero, *scaling)
        sums = fixed_point.wrap_int32(scaled + out_zero)
        return np.minimum(np.maximum(sums, lowest), highest).astype(np.int64)

    return lookup(source, result, table, target)


@lowers("HARD_SWISH", floats=roundings(Growth.STEADY, 4))
def lower_hard_swish(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Compute x * min(max(x + 3, 0), 6) / 6.

    Raises:
        Unsupported: types other than uint8, int8 and float32, an output scale too small for the
            input's.
    Source: tflite/kernels/activations.cc HardSwishPrepare, reference/hard_swish.h
    """
    source, result = one_to_one(node, ("float32", *quantized.QUANT8))
    if source.dtype == "float32":
        return _floats("hard_swish", source, result, target)
    in_scale, in_zero = quantized.per_tensor(source)
    out_scale, out_zero = quantized.per_tensor(result)
    with np.errstate(over="ignore", under="ignore"):
        hires = np.float32(1 / 128) * np.float32(in_scale)
        out_real = float(hires / np.float32(out_scale))
        ramp_real = float(hires / np.float32(3 / 32768))
    out_multiplier, out_shift = fixed_point.quantize_multiplier(out_real)
    ramp_multiplier, ramp_shift = fixed_point.quantize_multiplier(ramp_real)
    if out_shift > 0:
        raise Unsupported(f"output scale {out_scale}: below 1/128 of the input's, {in_scale}")
    if ramp_shift > 30:
        raise Unsupported(f"input scale {in_scale}: too large")

    def table(values: fixed_point.Integers) -> fixed_point.Integers:
        lifted = (values - in_zero) << 7
        unshifted = _high_mul16(lifted, _to_16_bits(out_multiplier))
        ramp = lifted
        if ramp_shift > 0:
            ramp = _shift_left(ramp, ramp_shift - 1)
        ramp = _high_mul16(ramp, _to_16_bits(ramp_multiplier))
        if ramp_shift > 0:
            ramp = _shift_left(ramp, 1)
        if ramp_shift < 0:
            ramp = _divide_by_pot16(ramp, -ramp_shift)
        gate = (ramp + (1 << 15)) >> 1  # from 0 to 1, with 15 fractional bits
        product = gate * unshifted
        # Truncated toward zero, which cancels the bias of the previous roundings.
        whole = np.sign(product) * (np.abs(product) >> 15)
        return fixed_point.clamped(_divide_by_pot16(whole, -out_shift) + out_zero, result.dtype)

    return lookup(source, result, table, target)


def _to_16_bits(multiplier: int) -> int:
    """Source: tflite/kernels/internal/common.h DownScaleInt32ToInt16Multiplier"""
    return min((multiplier + (1 << 15)) >> 16, (1 << 15) - 1)


def _high_mul16(values: fixed_point.Integers, multiplier: int) -> fixed_point.Integers:
    return fixed_point.rounding_doubling_high_mul(values, multiplier, bits=16)


def _shift_left(values: fixed_point.Integers, amount: int) -> fixed_point.Integers:
    shifted: fixed_point.Integers = np.clip(values << amount, -(1 << 15), (1 << 15) - 1)
    return shifted


def _divide_by_pot16(values: fixed_point.Integers, exponent: int) -> fixed_point.Integers:
    """Return values / 2**exponent; the mask wraps as an int16 beyond 15 bits, as in TFLite."""
    mask = int(np.int64(((1 << exponent) - 1) & 0xFFFF).astype(np.int16))
    threshold = (mask >> 1) + (values < 0)
    rounded: fixed_point.Integers = (values >> exponent) + ((values & mask) > threshold)
    return rounded
