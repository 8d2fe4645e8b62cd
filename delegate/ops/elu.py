# SPDX-License-Identifier: Apache-2.0
"""ELU: floats, and int8 by table."""

from __future__ import annotations

import numpy as np

from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._launches.activation import Floats, float_launch, one_to_one, rounded_floats
from delegate.ops._launches.lookup import lookup
from delegate.ops._numbers.c_library import float_function
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("ELU")
def lower_elu(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Replace values below zero by exp(x) - 1.

    Raises:
        Unsupported: types other than int8 and float32.
    Source: tflite/kernels/activations.cc EluPrepare; elu.h
    """
    source, result = one_to_one(node, ("float32", "int8"))
    if source.dtype == "float32":
        return float_launch("elu", source, result, target)
    expm1 = float_function(target.rules.float_function, "expm1f")

    def elu(values: Floats) -> Floats:
        return np.where(values < 0, expm1(values), values)

    return lookup(source, result, rounded_floats(source, result, elu), target)
