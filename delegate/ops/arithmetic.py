# SPDX-License-Identifier: Apache-2.0
"""MUL, DIV, MAXIMUM, MINIMUM, SQUARED_DIFFERENCE, FLOOR_DIV, FLOOR_MOD, POW, ATAN2, STABLEHLO_*.

Also BITWISE_XOR and RIGHT_SHIFT.

TFLite fails at run time on an integer division by 0, and on a float one in FLOOR_DIV. So does the
delegate.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.float_results import EXACT, SELECTS, STEPS, Growth, roundings, sums
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Requirement
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import activation_of, bounds_of
from delegate.ops._checks.node import require_constant, require_same_shape, shape_text
from delegate.ops._launches.binary import (
    EVERY,
    NUMBERS,
    Operands,
    binary,
    operands_of,
    product_params,
    rescaling,
    scaling_of,
)
from delegate.ops._numbers import bits, fixed_point
from delegate.ops._registry import lowers
from delegate.target import Target

_MOST_SHIFT = 15  # log2 of a quotient's scale: TFLite's 64-bit shifts hold these


@lowers("MUL", floats=sums(Growth.PRODUCT))
def lower_mul(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Multiply two tensors.

    Raises:
        Unsupported: other types, shapes that cannot be broadcast, a scale ratio above 2^30.
    Source: tflite/kernels/mul.cc, internal/reference/mul.h
    """
    operands = operands_of(node, (*EVERY, "int64"))
    params = bounds_of(operands.result, activation_of(node))
    if operands.left.dtype in quantized.QUANT:
        params |= product_params(operands)
    return binary(operands, "MULTIPLY", params, target)


@lowers("MAXIMUM", "MINIMUM", floats=SELECTS)
def lower_extreme(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Return the elementwise maximum or minimum of the stored values; scales are ignored.

    Source: tflite/kernels/maximum_minimum.cc
    """
    return binary(operands_of(node, (*EVERY, "int64")), node.op, {}, target)


@lowers("SQUARED_DIFFERENCE", floats=roundings(Growth.SQUARE, 2))
def lower_squared_difference(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Return the squared difference of two tensors.

    Raises:
        Unsupported: other types, shapes that cannot be broadcast, a scale ratio above 2^30.
    Source: tflite/kernels/squared_difference.cc
    """
    operands = operands_of(node, ("int8", *NUMBERS))
    params = {} if operands.left.dtype in NUMBERS else _squared_params(operands)
    return binary(operands, "SQUARED_DIFFERENCE", params, target)


def _squared_params(operands: Operands) -> dict[str, int]:
    (left_scale, left_zero), (right_scale, right_zero), (scale, zero) = operands.quantization()
    lift = 7
    twice_widest = 2 * max(left_scale, right_scale)
    left = fixed_point.quantize_multiplier(left_scale / twice_widest)
    right = fixed_point.quantize_multiplier(right_scale / twice_widest)
    ratio = twice_widest * twice_widest / ((1 << 2 * lift) * scale)
    multiplier, shift = fixed_point.quantize_multiplier(ratio)
    if shift > 30:
        raise Unsupported(f"a scale ratio of {ratio:g}: more than 2^30")
    return {
        **rescaling("left", *left, left_zero, 1 << lift),
        **rescaling("right", *right, right_zero, 1 << lift),
        "output_multiplier": multiplier,
        "output_shift": shift,
        "output_zero": zero,
        **bounds_of(operands.result, "NONE"),
    }


@lowers("DIV", floats=roundings(Growth.QUOTIENT, 1))
def lower_div(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Divide the left tensor by the right one.

    Raises:
        Unsupported: quantised types that fail in this TFLite, a scale ratio beyond 2^15; a constant
            divisor that is 0, or -1 for integers, unless the type is float32.
    Source: tflite/kernels/div.cc, internal/reference/div.h
    """
    operands = operands_of(node, EVERY)
    params = bounds_of(operands.result, activation_of(node))
    requirements: tuple[Requirement, ...] = ()
    if operands.left.dtype in quantized.QUANT:
        if operands.left.dtype != "uint8" and not target.rules.newer_types:
            raise Unsupported(f"{operands.left.dtype}: DIV fails in this TFLite")
        params |= _quotient_params(operands)
        zero = params["right_zero"]
        requirements = _require_divisor(operands.right, zero, rule="which stands for 0")
    elif operands.left.dtype == "int32":
        requirements = _require_divisor(operands.right, 0, -1)
    return _with_requirements(requirements, binary(operands, "DIVIDE", params, target))


def _quotient_params(operands: Operands) -> dict[str, int]:
    (left_scale, left_zero), (right_scale, right_zero), (scale, zero) = operands.quantization()
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        # In float32, as TFLite's scales are.
        ratio = float(np.float32(left_scale) / (np.float32(right_scale) * np.float32(scale)))
    if not 2.0**-_MOST_SHIFT < ratio < 2.0**_MOST_SHIFT:
        raise Unsupported(f"a scale ratio of {ratio:g}: not within 2^-15 and 2^15")
    return scaling_of((left_zero, right_zero, zero), *fixed_point.quantize_multiplier(ratio))


@lowers("FLOOR_DIV", floats=STEPS)
def lower_floor_div(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Divide the left tensor by the right one, rounding down; integers ignore scales.

    Raises:
        Unsupported: other types, a constant divisor that is 0; for int8 and int16 also -1 or
            a non-constant divisor.
    Source: tflite/kernels/floor_div.cc
    """
    operands = operands_of(node, ("int8", "int16", *NUMBERS))
    if operands.left.dtype in quantized.QUANT:  # the lowest value divided by -1 is undefined in C
        require_constant(operands.right, "the divisors")
        _require_divisor(operands.right, -1)
    requirements = _require_divisor(operands.right, 0)
    return _with_requirements(requirements, binary(operands, "FLOOR_DIVIDE", {}, target))


@lowers("FLOOR_MOD", floats=roundings(Growth.STEADY, 1, is_steep=True))
def lower_floor_mod(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Return the remainder of a division that rounds down; scales are ignored.

    Raises:
        Unsupported: other types, a constant divisor that is 0, or -1 for int32 and int64.
    Source: tflite/kernels/floor_mod.cc
    """
    operands = operands_of(node, ("int8", "int16", "int32", "int64"))
    rejected = (0, -1) if operands.left.dtype in ("int32", "int64") else (0,)
    requirements = _require_divisor(operands.right, *rejected)
    return _with_requirements(requirements, binary(operands, "FLOOR_MODULO", {}, target))


def _require_divisor(
    tensor: Tensor, zero: int, *rejected: int, rule: str = "TFLite cannot divide by 0"
) -> tuple[Requirement, ...]:
    """Return the requirement that non-constant divisors are not `zero`, on which TFLite fails.

    `rejected`: more values that constants must not have: the lowest integer divided by -1 kills
    TFLite's process. Non-constant divisors are not checked for them; there the result wraps around.

    Raises:
        Unsupported: a constant contains such a divisor.
    """
    if tensor.data is None:
        return (Requirement(tensor, "a divisor", rule, excluded=zero),)
    for value in (zero, *rejected):
        if np.any(np.equal(tensor.data, value)):
            raise Unsupported(f"a divisor is {value}" + (f", {rule}" if value == zero else ""))
    return ()


def _with_requirements(
    requirements: tuple[Requirement, ...], alternatives: tuple[Alternative, ...]
) -> tuple[Alternative, ...]:
    return tuple(replace(each, requirements=requirements) for each in alternatives)


@lowers("POW", floats=roundings(Growth.UNBOUNDED, 32, is_steep=True))
def lower_pow(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Raise the left tensor to the power of the right one.

    Integers wrap around if one exponent is broadcast to all elements. Otherwise TFLite computes
    powers in doubles, whose conversion back to int32 depends on the processor.

    Raises:
        Unsupported: other types; int32 without a single constant exponent of 0 or more.
    Source: tflite/kernels/pow.cc, optimized_ops.h BroadcastPow4D
    """
    operands = operands_of(node, NUMBERS)
    if operands.left.dtype == "int32":
        exponents = require_constant(operands.right, "the exponents")
        if exponents.size > 1 or operands.left.shape == operands.right.shape:
            raise Unsupported("int32: only one exponent, which is broadcast")
        if np.any(np.less(exponents, 0)):
            raise Unsupported(f"an exponent is {exponents.item()}: 0 or more is needed")
    return binary(operands, "POWER", {}, target)


@lowers("ATAN2", floats=roundings(Growth.STEADY, 8, limit=math.pi, is_steep=True))
def lower_atan2(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Return the angle in radians of the point with y on the left and x on the right.

    Raises:
        Unsupported: types other than float32; shapes that differ: TFLite then reads out of bounds.
    Source: tflite/kernels/atan2.cc
    """
    operands = operands_of(node, ("float32",))
    if operands.left.shape != operands.right.shape:
        shapes = f"{shape_text(operands.left)} and {shape_text(operands.right)}"
        raise Unsupported(f"shapes {shapes}: where they differ TFLite reads past the end")
    return binary(operands, "ANGLE", {}, target)


@lowers("STABLEHLO_ADD", floats=sums(Growth.ADDITION))
@lowers("STABLEHLO_MULTIPLY", floats=sums(Growth.PRODUCT))
@lowers("STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM", floats=SELECTS)
def lower_stablehlo(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Combine two tensors of equal shapes; scales are ignored, and there is no activation.

    Raises:
        Unsupported: other types, among them sums and products of 8 and 16 bits; shapes that
            differ.
    Source: tflite/kernels/stablehlo_elementwise.cc
    """
    op = node.op.removeprefix("STABLEHLO_")
    is_extreme = op in ("MAXIMUM", "MINIMUM")
    operands = operands_of(node, (*EVERY, "int64") if is_extreme else (*NUMBERS, "int64"))
    require_same_shape(operands.left, operands.right)
    if is_extreme:  # of a NaN and a number it returns the left operand, MAXIMUM the right one
        return binary(Operands(operands.right, operands.left, operands.result), op, {}, target)
    params = bounds_of(operands.result, "NONE")
    if operands.result.dtype == "float32":  # infinities stay; ADD and MUL clamp them
        params = {"output_min": bits(-math.inf), "output_max": bits(math.inf)}
    return binary(operands, op, params | ({"right_sign": 1} if op == "ADD" else {}), target)


@lowers("STABLEHLO_AND", floats=EXACT)
def lower_stablehlo_and(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Return the bitwise AND of two tensors of equal shapes.

    Raises:
        Unsupported: other types; shapes that differ.
    Source: tflite/kernels/stablehlo_and.cc
    """
    operands = operands_of(node, ("bool", "int8", "int16", "int32", "int64"))
    require_same_shape(operands.left, operands.right)
    return binary(operands, "AND", {}, target)


@lowers("STABLEHLO_SHIFT_LEFT", floats=EXACT)
def lower_stablehlo_shift_left(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Shift bits to the left, discarding overflow.

    Raises:
        Unsupported: other types; shapes that differ; shifts that are not constant, or not
            within 0 to 31, where TFLite's shift is undefined in C.
    Source: tflite/kernels/stablehlo_shift_left.cc
    """
    operands = operands_of(node, ("int8", "int16", "int32"))
    require_same_shape(operands.left, operands.right)
    shifts = np.asarray(require_constant(operands.right, "the shifts"))
    for shift in (int(shifts.min()), int(shifts.max())):
        if not 0 <= shift <= 31:
            raise Unsupported(f"a shift by {shift}: only 0 to 31")
    return binary(operands, "SHIFT_LEFT", {}, target)


@lowers("BITWISE_XOR", floats=EXACT)
def lower_bitwise_xor(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Return the bitwise XOR of two tensors.

    Raises:
        Unsupported: other types; shapes that cannot be broadcast.
    Source: tflite/kernels/bitwise_xor.cc
    """
    return binary(operands_of(node, ("uint8", "int8", "int16", "int32")), "XOR", {}, target)


@lowers("RIGHT_SHIFT", floats=EXACT)
def lower_right_shift(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Shift bits to the right by the right tensor's values, clamped from 0 to the width less 1.

    Raises:
        Unsupported: other types; shapes that cannot be broadcast.
    Source: tflite/kernels/right_shift.cc
    """
    operands = operands_of(node, ("uint8", "int8", "int16", "int32"))
    most = 8 * np.dtype(operands.left.dtype).itemsize - 1
    return binary(operands, "SHIFT_RIGHT", {"most_shift": most}, target)
