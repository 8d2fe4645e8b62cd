# SPDX-License-Identifier: Apache-2.0
"""ADD and SUB of two tensors of any type: expressions of binary.cl."""

from __future__ import annotations

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import activation_of, bounds_of
from delegate.ops._launches.binary import (
    EVERY,
    NUMBERS,
    Expression,
    Operands,
    operands_of,
    rescaling,
)
from delegate.ops._numbers import fixed_point


def sum_expression(node: Node, sign: int) -> Expression:
    """Return the expression of an ADD, or of a SUB where `sign` is -1.

    Raises:
        Unsupported: other types, shapes that cannot be broadcast, an output scale too small.
    Source: tflite/kernels/add.cc, sub.cc: PrepareGeneralQuantized, and for int16 whose scales are
    powers of two a sum of shifted inputs, unless the node asks for the general one
    """
    operands = operands_of(node, EVERY)
    bounds = bounds_of(operands.result, activation_of(node))
    if operands.left.dtype in NUMBERS:
        return Expression(operands, "ADD", {**bounds, "right_sign": sign})
    if operands.left.dtype == "int16" and node.options.get("pot_scale_int16", True):
        shifts = _pot_shifts(operands)
        if shifts is not None:
            return Expression(operands, "ADD_SHIFTED", {**bounds, **shifts, "right_sign": sign})
    return Expression(operands, "ADD", {**bounds, **_sum_params(operands, sign)})


def _sum_params(operands: Operands, sign: int) -> dict[str, int]:
    (left_scale, left_zero), (right_scale, right_zero), (scale, zero) = (
        quantized.per_tensor(tensor, quantized.QUANT)
        for tensor in (operands.left, operands.right, operands.result)
    )
    lift = 15 if operands.left.dtype == "int16" else 20
    twice_widest = 2 * max(left_scale, right_scale)
    left = fixed_point.quantize_multiplier(left_scale / twice_widest)
    right = fixed_point.quantize_multiplier(right_scale / twice_widest)
    multiplier, shift = fixed_point.quantize_multiplier(twice_widest / ((1 << lift) * scale))
    if shift > 0:
        raise Unsupported(f"output scale {scale}: too small beside {twice_widest / 2}")
    return {
        **rescaling("left", *left, left_zero, 1 << lift),
        **rescaling("right", *right, right_zero, sign * (1 << lift)),
        "output_multiplier": multiplier,
        "output_shift": shift,
        "output_zero": zero,
    }


def _pot_shifts(operands: Operands) -> dict[str, int] | None:
    """Return the right shifts of the inputs; None where a scale is no power of two."""
    logs = []
    for tensor in (operands.left, operands.right, operands.result):
        scale, _ = quantized.per_tensor(tensor, ("int16",))
        exact = np.log2(np.float32(scale), dtype=np.float32)
        whole = round(float(exact))
        if not abs(float(exact) - whole) < 1e-3:
            return None
        logs.append(whole)
    left, right = logs[2] - logs[0], logs[2] - logs[1]
    if min(left, right) < 0 or (left and right):
        raise Unsupported(f"int16 shifts by {left} and {right}: one must be 0, none to the left")
    if max(left, right) > 31:
        raise Unsupported(f"int16 shifts by {left} and {right}: more than 31")
    if not operands.left.shape == operands.right.shape:
        raise Unsupported("int16 of scales that are powers of two: only equal shapes")
    return {"left_shift": left, "right_shift": right}
