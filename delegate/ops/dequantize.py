# SPDX-License-Identifier: Apache-2.0
"""DEQUANTIZE to float32: one multiplication, or a table; float16 by table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative
from delegate.ops._checks import quantized
from delegate.ops._checks.node import inputs_of, output_of
from delegate.ops._checks.shapes import elements_of, shape_text
from delegate.ops._launches.lookup import lookup
from delegate.ops._launches.tiles import by_elements, launch_over
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers.float32 import bits
from delegate.ops._registry import lowers
from delegate.target import Target


@dataclass(frozen=True, slots=True, eq=False)
class Dequantization:
    """A checked conversion to float32."""

    source: Tensor
    result: Tensor
    quantization: tuple[float, int] | None  # scale and zero point of integers; None of float16


@lowers("DEQUANTIZE")
def lower_dequantize(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Turn quantised integers or float16 into float32.

    Raises:
        Unsupported: types other than uint8, int8, int16 and float16, an output other than float32,
            several scales.
    Source: tflite/kernels/internal/reference/dequantize.h, whose product in doubles has 41 bits
    and is rounded once
    """
    return alternatives(decode(node), target)


def decode(node: Node) -> Dequantization:
    """Return what a node turns into floats, checked.

    Raises:
        Unsupported: see `lower_dequantize`.
    """
    (source,), _ = inputs_of(node.inputs, 1)
    result = output_of(node.outputs)
    if result.dtype != "float32":
        raise Unsupported(f"{source.dtype} to {result.dtype}: only float32 comes out")
    if source.shape != result.shape:
        raise Unsupported(f"{shape_text(source)} -> {shape_text(result)}: the shape must stay")
    elements_of(source)
    if source.dtype == "float16":
        return Dequantization(source, result, None)
    return Dequantization(source, result, quantized.per_tensor(source, quantized.QUANT))


def alternatives(case: Dequantization, target: Target) -> tuple[Alternative, ...]:
    """Return the product of the scale where it is exact, and the look-ups in a table."""
    source, result = case.source, case.result
    if case.quantization is None:
        return lookup(source, result, _halves, target, read_as="uint16")
    scale, zero_point = case.quantization
    elements = elements_of(source)

    def answers(values: NDArray[np.int64]) -> NDArray[Any]:
        with np.errstate(over="ignore"):
            return (scale * (values - zero_point)).astype(np.float32)

    tiling = by_elements(elements, target)
    product = launch_over(
        "dequantize",
        "dequantize",
        tiling,
        {
            "input": source,
            "output": result,
            "scale": bits(scale),
            "zero": zero_point,
            "elements": elements,
        },
        {"ELEM": ELEM[source.dtype]},
    )
    by_table = lookup(source, result, answers, target)
    # A device may take floats below the least normal one for zeros.
    if scale < np.finfo(np.float32).tiny:
        return by_table
    return (Alternative("product", (product,)), *by_table)


def _halves(values: NDArray[np.int64]) -> NDArray[Any]:
    return values.astype(np.uint16).view(np.float16).astype(np.float32)
