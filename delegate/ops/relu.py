# SPDX-License-Identifier: Apache-2.0
"""RELU, RELU6, RELU_N1_TO_1, RELU_0_TO_1: floats between bounds, 8 and 16 bits by table."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import reals_of, steps_of_scale
from delegate.ops._launches.activation import float_launch, one_to_one
from delegate.ops._launches.lookup import lookup
from delegate.ops._numbers import fixed_point
from delegate.ops._numbers.float32 import bits
from delegate.ops._registry import lowers
from delegate.target import Target

_WITH_INT16 = ("RELU", "RELU6")


@lowers("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1")
def lower_relu(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Keep each value between two bounds, and bring it to the output's scale.

    Raises:
        Unsupported: types other than uint8, int8, float32 and, for RELU and RELU6, int16.
    Source: tflite/kernels/activations.cc ReluPrepare, QuantizedReluX; reference_ops.h ReluX
    """
    more = ("int16",) if node.op in _WITH_INT16 else ()
    source, result = one_to_one(node, ("float32", *quantized.QUANT8, *more))
    low, high = reals_of(node.op)
    if source.dtype == "float32":
        params = {
            "lowest": bits(-math.inf if low is None else low),
            "highest": bits(math.inf if high is None else high),
        }
        return float_launch("relu", source, result, target, params)
    in_scale, in_zero = quantized.per_tensor(source, quantized.QUANT)
    out_scale, out_zero = quantized.per_tensor(result, quantized.QUANT)
    multiplier, shift = fixed_point.quantize_multiplier(
        float(np.float32(in_scale) / np.float32(out_scale))
    )
    if shift > 30:
        raise Unsupported(f"a scale ratio of 2^{shift}: more than 2^30")
    limits = np.iinfo(result.dtype)
    lowest, highest = int(limits.min), int(limits.max)
    if low is not None:
        lowest = max(lowest, out_zero + steps_of_scale(low, out_scale, "bound"))
    if high is not None:
        highest = min(highest, out_zero + steps_of_scale(high, out_scale, "bound"))

    def answers(values: NDArray[np.int64]) -> NDArray[np.int64]:
        scaled = fixed_point.multiply_by_quantized_multiplier(values - in_zero, multiplier, shift)
        sums = fixed_point.wrap_int32(scaled + out_zero)
        return np.minimum(np.maximum(sums, lowest), highest).astype(np.int64)

    return lookup(source, result, answers, target)
