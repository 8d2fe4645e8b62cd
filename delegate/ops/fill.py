# SPDX-License-Identifier: Apache-2.0
"""FILL: one value everywhere; only bytes move."""

from __future__ import annotations

import math

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.indices import vector_of
from delegate.ops._checks.node import inputs_of, output_of
from delegate.ops._checks.shapes import shape_text
from delegate.ops._launches.copy import (
    Box,
    Move,
    moved,
    require_same_scale,
    require_shape,
    require_types,
    steps_of,
)
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("FILL")
def lower_fill(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Repeat one value, which may be computed, over a shape, which may not.

    Raises:
        Unsupported: a computed shape, several values.
    Source: tflite/kernels/fill.cc
    """
    (shape, value), _ = inputs_of(node.inputs, 2)
    result = output_of(node.outputs)
    require_types(value, result)
    require_same_scale(value, result)
    if math.prod(value.shape) != 1:
        raise Unsupported(f"value {shape_text(value)}: one number is needed")
    require_shape(result, vector_of(shape, "shape"))
    nowhere = (0,) * len(result.shape)
    box = Box(result.shape, nowhere, steps_of(result.shape))
    return moved([Move(value, result, box)], target)
