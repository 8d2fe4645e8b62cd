# SPDX-License-Identifier: Apache-2.0
"""LEAKY_RELU: floats, and 8 and 16 bits by table."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks import quantized
from delegate.ops._launches.activation import float_launch, one_to_one
from delegate.ops._launches.lookup import lookup
from delegate.ops._numbers import fixed_point
from delegate.ops._numbers.float32 import bits
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("LEAKY_RELU")
def lower_leaky_relu(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Multiply values below zero by the option alpha.

    Raises:
        Unsupported: types other than uint8, int8, int16 and float32, an alpha that is no finite
            number.
    Source: tflite/kernels/activations.cc LeakyReluPrepare, reference/leaky_relu.h
    """
    source, result = one_to_one(node, ("float32", *quantized.QUANT))
    alpha = node.options.get("alpha", 0.0)
    if not isinstance(alpha, float | int) or not np.isfinite(np.float32(alpha)):
        raise Unsupported(f"alpha is {alpha!r}: a finite number is needed")
    if source.dtype == "float32":
        return float_launch("leaky_relu", source, result, target, {"alpha": bits(alpha)})
    in_scale, in_zero = quantized.per_tensor(source, quantized.QUANT)
    out_scale, out_zero = quantized.per_tensor(result, quantized.QUANT)
    # Products and quotients are floats there.
    ratio = np.float32(in_scale) / np.float32(out_scale)
    leaking = np.float32(in_scale) * np.float32(alpha) / np.float32(out_scale)
    above = fixed_point.quantize_multiplier(float(ratio))
    below = fixed_point.quantize_multiplier(abs(float(leaking)))
    sign = -1 if leaking < 0 else 1
    before, after = (1, sign) if target.rules.leaky_relu_by_size else (sign, 1)
    if max(above[1], below[1]) > 30:
        raise Unsupported(f"a scale ratio of 2^{max(above[1], below[1])}: more than 2^30")

    def answers(values: NDArray[np.int64]) -> NDArray[np.int64]:
        inputs = values - in_zero
        scaled = np.where(
            inputs >= 0,
            fixed_point.multiply_by_quantized_multiplier(inputs, *above),
            after
            * fixed_point.multiply_by_quantized_multiplier(inputs, before * below[0], below[1]),
        )
        sums = fixed_point.wrap_int32(scaled + out_zero)
        return fixed_point.clamped(sums, result.dtype)

    return lookup(source, result, answers, target)
