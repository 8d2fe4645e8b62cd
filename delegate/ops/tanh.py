# SPDX-License-Identifier: Apache-2.0
"""TANH: floats, and 8 and 16 bits by table."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks import quantized
from delegate.ops._launches.activation import (
    float_launch,
    one_to_one,
    rounded_floats,
    scaling_of_int16,
)
from delegate.ops._launches.lookup import lookup
from delegate.ops._numbers.c_library import float_function
from delegate.ops._numbers.sigmoid16 import ONE, interpolated, scaled
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("TANH")
def lower_tanh(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Compute the hyperbolic tangent.

    Raises:
        Unsupported: types other than uint8, int8, int16 and float32, another output scale or zero
            point than TFLite's for the type, int16 of an input scale of 16/3 or more.
    Source: tflite/kernels/activations.cc TanhPrepare, reference/integer_ops/tanh.h
    """
    source, result = one_to_one(node, ("float32", *quantized.QUANT))
    if source.dtype == "float32":
        return float_launch("tanh", source, result, target)
    if source.dtype == "int16":
        factors = scaling_of_int16(source, result, most_shift=1)

        def interpolate(values: NDArray[np.int64]) -> NDArray[np.int64]:
            inputs = scaled(values, *factors)
            # tanh(x) = 2 * logistic(2 * x) - 1
            sizes = interpolated(np.abs(inputs), 8) - (ONE << 7)
            rounding = 1 << 7
            signed = np.where(inputs >= 0, sizes + rounding, -sizes + rounding - 1)
            return signed >> 8

        return lookup(source, result, interpolate, target)
    quantized.require_fixed_output(result, 1 / 128, 128 if result.dtype == "uint8" else 0)
    tanh = float_function(target.rules.float_function, "tanhf")
    return lookup(source, result, rounded_floats(source, result, tanh), target)
