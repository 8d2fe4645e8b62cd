# SPDX-License-Identifier: Apache-2.0
"""ONE_HOT: a new axis that is on where an index says so, off elsewhere."""

from __future__ import annotations

import math

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative, Defines, Params
from delegate.ops._checks.node import (
    axis_of,
    elements_of,
    integer,
    require_shape,
    require_types,
    scalar_of,
    shape_text,
    tensors_of,
)
from delegate.ops._launches.tiles import over_elements
from delegate.ops._launches.types import moved_type
from delegate.ops._registry import lowers
from delegate.target import Target

_TYPES = ("uint8", "int8", "int32", "int64", "float32", "bool")


@lowers("ONE_HOT")
def lower_one_hot(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Put the value `on` at each index along a new axis; one out of range is off everywhere.

    Shapes:
        indices (d0, d1, ...), depth, on, off -> output with `depth` before dimension `axis`
    Raises:
        Unsupported: a computed depth, values of several elements.
    Source: tflite/kernels/one_hot.cc
    """
    indices, depth_of, on, off, result = tensors_of(node, 4)
    if indices.dtype not in ("int32", "int64"):
        raise Unsupported(f"{indices.dtype} indices: only int32 and int64")
    for value in (on, off):
        require_types(value, result, _TYPES)
        if math.prod(value.shape) != 1:
            raise Unsupported(f"value {shape_text(value)}: one number is needed")
    if depth_of.dtype != "int32":
        raise Unsupported(f"{depth_of.dtype} depth: only int32")
    depth = scalar_of(depth_of, "depth")
    axis = axis_of(integer(node.options, "axis", -1), len(indices.shape) + 1)
    require_shape(result, (*indices.shape[:axis], depth, *indices.shape[axis:]))
    elements_of(indices)
    params: Params = {
        "indices": indices,
        "on": on,
        "off": off,
        "output": result,
        "depth": depth,
        "inner": math.prod(indices.shape[axis:]),  # elements between neighbours along the axis
    }
    defines: Defines = {"ELEM": moved_type(result), "WORDS": 2 if indices.dtype == "int64" else 1}
    elements = math.prod(result.shape)
    launch = over_elements("one_hot", "one_hot", elements, target, params, defines)
    return (Alternative("plain", (launch,)),)
