# SPDX-License-Identifier: Apache-2.0
"""Conversions between float32 and fp16 tensors of a partition: see delegate/plan/fp16/fp16.py."""

from __future__ import annotations

from delegate.errors import Unsupported
from delegate.graph.float_results import EXACT
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.node import require_same_shape, tensors_of
from delegate.ops._launches.tiles import over_elements
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("to_halves", "to_floats", floats=EXACT)
def lower_fp16_conversion(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Convert float32 to fp16, rounded to nearest, or fp16 to float32, which is exact.

    Raises:
        Unsupported: any other pair of types.
    """
    source, result = tensors_of(node, 1)
    is_narrowing = node.op == "to_halves"
    types = ("float32", "float16") if is_narrowing else ("float16", "float32")
    if (source.dtype, result.dtype) != types:
        raise Unsupported(f"{source.dtype} to {result.dtype}: only {types[0]} to {types[1]}")
    elements = require_same_shape(source, result)
    launch = over_elements(
        "halves",
        "halves_float",
        elements,
        target,
        {"input": source, "output": result},
        {"HALVES": 1, "IS_ROUNDED": int(is_narrowing)},
    )
    return (Alternative("plain", (launch,)),)
