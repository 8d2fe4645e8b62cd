# SPDX-License-Identifier: Apache-2.0
"""RELU, RELU6, RELU_N1_TO_1, RELU_0_TO_1: floats between bounds, 8 and 16 bits by table."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative
from delegate.ops._checks import quantized
from delegate.ops._launches.activation import float_launch, one_to_one
from delegate.ops._launches.floats import bits
from delegate.ops._launches.lookup import lookup
from delegate.ops._numbers import fixed_point, fixed_point_arrays
from delegate.ops._registry import lowers
from delegate.target import Target

_BOUNDS = {
    "RELU": (0.0, math.inf),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU_0_TO_1": (0.0, 1.0),
}
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
    low, high = _BOUNDS[node.op]
    if source.dtype == "float32":
        params = {"lowest": bits(low), "highest": bits(high)}
        return float_launch("relu", source, result, target, params)
    in_scale, in_zero = quantized.per_tensor(source, quantized.QUANT)
    out_scale, out_zero = quantized.per_tensor(result, quantized.QUANT)
    multiplier, shift = fixed_point.quantize_multiplier(
        float(np.float32(in_scale) / np.float32(out_scale))
    )
    if shift > 30:
        raise Unsupported(f"a scale ratio of 2^{shift}: more than 2^30")
    limits = np.iinfo(result.dtype)
    lowest = max(int(limits.min), out_zero + _steps(low, result))
    highest = int(limits.max)
    if math.isfinite(high):
        highest = min(highest, out_zero + _steps(high, result))

    def answers(values: NDArray[np.int64]) -> NDArray[np.int64]:
        scaled = fixed_point_arrays.rescale(values - in_zero, multiplier, shift)
        sums = fixed_point.wrap_int32(scaled + out_zero)
        return np.minimum(np.maximum(sums, lowest), highest).astype(np.int64)

    return lookup(source, result, answers, target)


def _steps(bound: float, result: Tensor) -> int:
    scale, _ = quantized.per_tensor(result, quantized.QUANT)
    with np.errstate(over="ignore"):
        steps = float(np.float32(bound) / np.float32(scale))
    if not abs(steps) < 2**30:
        raise Unsupported(f"bound {bound} at scale {scale}: beyond 32 bits")
    return int(math.copysign(math.floor(abs(steps) + 0.5), steps))
