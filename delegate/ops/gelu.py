# SPDX-License-Identifier: Apache-2.0
"""GELU, exact and by tanh: floats, and 8 and 16 bits by table."""

from __future__ import annotations

import math

import numpy as np

from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._launches.activation import (
    Floats,
    float_launch,
    interpolated_floats,
    one_to_one,
    rounded_floats,
)
from delegate.ops._launches.lookup import lookup
from delegate.ops._numbers.c_library import float_function
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("GELU")
def lower_gelu(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Multiply each value by the normal distribution's share below it.

    Raises:
        Unsupported: types other than uint8, int8, int16 and float32.
    Source: tflite/kernels/gelu.cc, internal/reference/gelu.h
    """
    source, result = one_to_one(node, ("float32", "uint8", "int8", "int16"))
    is_approximate = bool(node.options.get("approximate", False))
    if source.dtype == "float32":
        function = "gelu_tanh" if is_approximate else "gelu"
        return float_launch(function, source, result, target)
    tanh = float_function(target.rules.float_function, "tanhf")
    erfc = float_function(target.rules.float_function, "erfcf")
    half, one = np.float32(0.5), np.float32(1)

    def gelu(values: Floats) -> Floats:
        if is_approximate:
            # M_2_SQRTPI * M_SQRT1_2
            factor = np.float32(math.sqrt(2 / math.pi))
            cubic = values + np.float32(0.044715) * values * values * values
            shares = one + tanh(factor * cubic)
        else:
            shares = erfc(values * np.float32(-math.sqrt(0.5)))
        answers: Floats = half * values * shares
        return answers

    of = interpolated_floats if source.dtype == "int16" else rounded_floats
    return lookup(source, result, of(source, result, gelu), target)
