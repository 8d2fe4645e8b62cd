# SPDX-License-Identifier: Apache-2.0
"""CUMSUM: running sums along one axis, of int32, int64 and float32."""

from __future__ import annotations

import math

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.node import axis_of, require_shape, scalar_of, tensors_of
from delegate.ops._launches.tiles import HALF_ROUNDS, LEAST_ELEMENTS, by_elements, launch_over
from delegate.ops._registry import lowers
from delegate.target import Target

_ELEM = {"int32": "uint", "int64": "uint2", "float32": "float"}  # unsigned sums wrap


@lowers("CUMSUM")
def lower_cumsum(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Add up the elements before each one, with itself or without, forwards or backwards.

    Floats are added in TFLite's order.

    Raises:
        Unsupported: a computed axis, an axis too long for one work-item.
    Source: tflite/kernels/cumsum.cc, internal/reference/cumsum.h
    """
    source, where, result = tensors_of(node, 2, tuple(_ELEM))
    require_shape(result, source.shape)
    if where.dtype != "int32":
        raise Unsupported(f"{where.dtype} axis: only int32")
    axis = axis_of(scalar_of(where, "axis"), len(source.shape))
    size = source.shape[axis]
    if size > HALF_ROUNDS:
        raise Unsupported(f"an axis of {size} elements: at most {HALF_ROUNDS}")
    lines = math.prod(source.shape) // size  # a work-item has one of them
    launch = launch_over(
        "cumsum",
        "cumsum",
        by_elements(lines, target, max(1, LEAST_ELEMENTS // size), max(1, HALF_ROUNDS // size)),
        {
            "input": source,
            "output": result,
            "size": size,
            "inner": math.prod(source.shape[axis + 1 :]),
            "is_exclusive": int(bool(node.options.get("exclusive", False))),
            "is_reverse": int(bool(node.options.get("reverse", False))),
            "elements": lines,
        },
        {"ELEM": _ELEM[source.dtype], "WORDS": 2 if source.dtype == "int64" else 1},
    )
    return (Alternative("plain", (launch,)),)
