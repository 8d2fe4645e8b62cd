# SPDX-License-Identifier: Apache-2.0
"""DEQUANTIZE to float32: one multiplication, or a table; float16 by table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative, Defines, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.node import require_same_shape, tensors_of
from delegate.ops._launches.lookup import lookup
from delegate.ops._launches.tiles import over_elements
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import bits
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("DEQUANTIZE")
def lower_dequantize(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Turn quantised integers or float16 into float32.

    Raises:
        Unsupported: types other than uint8, int8, int16 and float16, an output other than float32,
            several scales.
    Source: tflite/kernels/internal/reference/dequantize.h, whose product in doubles has 41 bits
    and is rounded once
    """
    source, result = tensors_of(node, 1)
    if result.dtype != "float32":
        raise Unsupported(f"{source.dtype} to {result.dtype}: only float32 comes out")
    elements = require_same_shape(source, result)
    if source.dtype == "float16":
        return lookup(source, result, _halves, target, read_as="uint16")
    scale, zero_point = quantized.per_tensor(source, quantized.QUANT)

    def answers(values: NDArray[np.int64]) -> NDArray[Any]:
        with np.errstate(over="ignore"):
            return (scale * (values - zero_point)).astype(np.float32)

    by_table = lookup(source, result, answers, target)
    # A device may take floats below the least normal one for zeros.
    if scale < np.finfo(np.float32).tiny:
        return by_table
    fields: Params = {"input": source, "output": result, "scale": bits(scale), "zero": zero_point}
    defines: Defines = {"ELEM": ELEM[source.dtype]}
    product = over_elements("dequantize", "dequantize", elements, target, fields, defines)
    return (Alternative("product", (product,)), *by_table)


def _halves(values: NDArray[np.int64]) -> NDArray[Any]:
    return values.astype(np.uint16).view(np.float16).astype(np.float32)
