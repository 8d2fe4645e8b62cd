# SPDX-License-Identifier: Apache-2.0
"""EXPAND_DIMS: the same bytes with one more dimension of size 1, so no kernel at all."""

from __future__ import annotations

from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.indices import axis_of, scalar_of
from delegate.ops._checks.node import inputs_of, output_of
from delegate.ops._checks.shapes import require_same_bytes
from delegate.ops._launches.copy import require_same_scale, require_shape, view
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("EXPAND_DIMS")
def lower_expand_dims(node: Node, target: Target) -> tuple[Alternative, ...]:
    """View the input's values under a shape with a 1 before dimension `axis`.

    Raises:
        Unsupported: a computed axis, or one out of range.
    Source: tflite/kernels/expand_dims.cc
    """
    (source, where), _ = inputs_of(node.inputs, 2)
    result = output_of(node.outputs)
    axis = axis_of(scalar_of(where, "axis"), len(source.shape) + 1)
    require_shape(result, (*source.shape[:axis], 1, *source.shape[axis:]))
    require_same_scale(source, result)
    require_same_bytes(source, result)
    return view(source, result)
