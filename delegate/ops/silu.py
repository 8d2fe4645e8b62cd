# SPDX-License-Identifier: Apache-2.0
"""silu, by passes/fuse_silu.py: a LOGISTIC and the MUL after it, as one lookup table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.float_results import EXACT
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import activation_of, bounds_of
from delegate.ops._checks.node import one_to_one
from delegate.ops._launches.binary import operands_of, product_params
from delegate.ops._launches.lookup import lookup, rounded_sigmoid
from delegate.ops._numbers import fixed_point
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("silu", floats=EXACT)
def lower_silu(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Multiply each 8-bit value by its LOGISTIC, which is rounded first.

    Raises:
        Unsupported: a node that LOGISTIC or MUL would refuse.
    Source: tflite/kernels/activations.cc, internal/reference/mul.h
    """
    source, result = one_to_one(node, quantized.QUANT8)
    if len(node.intermediates) != 1 or node.intermediates[0] is None:
        raise Unsupported("no intermediate tensor: its scale is needed")
    sigmoid = node.intermediates[0]
    product = operands_of(replace(node, op="MUL", inputs=(source, sigmoid)), quantized.QUANT8)
    bounds = bounds_of(result, activation_of(node))
    numbers = product_params(product)
    sigmoid_of = rounded_sigmoid(source, product.right, False, target)

    def table(values: NDArray[np.int64]) -> NDArray[np.int64]:
        sigmoids = sigmoid_of(values).astype(np.int64) - numbers["right_zero"]
        products = (values - numbers["left_zero"]) * sigmoids
        scaling = numbers["output_multiplier"], numbers["output_shift"]
        scaled = fixed_point.multiply_by_quantized_multiplier(products, *scaling)
        sums = scaled + numbers["output_zero"]
        return np.clip(sums, bounds["output_min"], bounds["output_max"])

    return lookup(source, result, table, target)
