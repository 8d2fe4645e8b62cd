# SPDX-License-Identifier: Apache-2.0
"""CUMSUM: running sums along one axis, of int32, int64 and float32."""

from __future__ import annotations

import math
from dataclasses import dataclass

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative
from delegate.ops._checks.indices import axis_of, scalar_of
from delegate.ops._checks.node import inputs_of, output_of
from delegate.ops._launches.copy import require_shape, require_types
from delegate.ops._launches.tiles import HALF_ROUNDS, LEAST_ELEMENTS, by_elements, launch_over
from delegate.ops._registry import lowers
from delegate.target import Target

_ELEM = {"int32": "uint", "int64": "uint2", "float32": "float"}  # unsigned sums wrap


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Checked running sums along one axis."""

    source: Tensor
    result: Tensor
    size: int  # of the axis
    inner: int  # elements between neighbours along the axis
    is_exclusive: bool  # an element is no part of its own sum
    is_reverse: bool


@lowers("CUMSUM")
def lower_cumsum(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Add up the elements before each one, with itself or without, forwards or backwards.

    Floats are added in TFLite's order.

    Raises:
        Unsupported: a computed axis, an axis too long for one work-item.
    Source: tflite/kernels/cumsum.cc, internal/reference/cumsum.h
    """
    return alternatives(decode(node), target)


def decode(node: Node) -> Sums:
    """Return what a node adds up, checked.

    Raises:
        Unsupported: see `lower_cumsum`.
    """
    (source, where), _ = inputs_of(node.inputs, 2)
    result = output_of(node.outputs)
    require_types(source, result, tuple(_ELEM))
    require_shape(result, source.shape)
    if where.dtype != "int32":
        raise Unsupported(f"{where.dtype} axis: only int32")
    axis = axis_of(scalar_of(where, "axis"), len(source.shape))
    size = source.shape[axis]
    if size > HALF_ROUNDS:
        raise Unsupported(f"an axis of {size} elements: at most {HALF_ROUNDS}")
    return Sums(
        source,
        result,
        size,
        inner=math.prod(source.shape[axis + 1 :]),
        is_exclusive=bool(node.options.get("exclusive", False)),
        is_reverse=bool(node.options.get("reverse", False)),
    )


def alternatives(sums: Sums, target: Target) -> tuple[Alternative, ...]:
    """Return the plain launch, of one line along the axis a work-item."""
    size = sums.size
    lines = math.prod(sums.source.shape) // size
    least, most = max(1, LEAST_ELEMENTS // size), max(1, HALF_ROUNDS // size)
    tiling = by_elements(lines, target, least, most)
    launch = launch_over(
        "cumsum",
        "cumsum",
        tiling,
        {
            "input": sums.source,
            "output": sums.result,
            "size": size,
            "inner": sums.inner,
            "is_exclusive": int(sums.is_exclusive),
            "is_reverse": int(sums.is_reverse),
            "elements": lines,
        },
        {"ELEM": _ELEM[sums.source.dtype], "WORDS": 2 if sums.source.dtype == "int64" else 1},
    )
    return (Alternative("plain", (launch,)),)
