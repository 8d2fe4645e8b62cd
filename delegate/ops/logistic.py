# SPDX-License-Identifier: Apache-2.0
"""LOGISTIC: floats, and 8 and 16 bits by table."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks import quantized
from delegate.ops._launches.activation import (
    Floats,
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


@lowers("LOGISTIC")
def lower_logistic(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Compute 1 / (1 + exp(-x)).

    Raises:
        Unsupported: types other than uint8, int8, int16 and float32, another output scale or zero
            point than TFLite's for the type, int16 of an input scale of 16/3 or more.
    Source: tflite/kernels/activations.cc SigmoidPrepare, reference/logistic.h,
    reference/integer_ops/logistic.h
    """
    source, result = one_to_one(node, ("float32", *quantized.QUANT))
    if source.dtype == "float32":
        return float_launch("logistic", source, result, target)
    if source.dtype == "int16":
        factors = scaling_of_int16(source, result, most_shift=0)

        def interpolate(values: NDArray[np.int64]) -> NDArray[np.int64]:
            inputs = scaled(values, *factors)
            sizes = interpolated(np.abs(inputs), 9)
            # In 10 bits more than the output has, which round.
            signed = np.where(inputs >= 0, sizes + (1 << 9), (ONE << 9) - sizes + (1 << 9) - 1)
            return signed >> 10

        return lookup(source, result, interpolate, target)
    quantized.require_fixed_output(result, 1 / 256, int(np.iinfo(result.dtype).min))
    exp = float_function(target.rules.float_function, "expf")

    def logistic(values: Floats) -> Floats:
        with np.errstate(over="ignore"):
            shares: Floats = np.float32(1) / (np.float32(1) + exp(-values))
        return shares

    return lookup(source, result, rounded_floats(source, result, logistic), target)
