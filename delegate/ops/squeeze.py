# SPDX-License-Identifier: Apache-2.0
"""SQUEEZE: the same bytes without dimensions of size 1, so no kernel at all."""

from __future__ import annotations

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.indices import axis_of
from delegate.ops._checks.node import inputs_of, output_of
from delegate.ops._checks.shapes import require_same_bytes, shape_text
from delegate.ops._launches.copy import require_shape, view
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("SQUEEZE")
def lower_squeeze(node: Node, target: Target) -> tuple[Alternative, ...]:
    """View the input's values without the named dimensions, or without all of size 1.

    Raises:
        Unsupported: a named dimension that is not there or not 1.
    Source: tflite/kernels/squeeze.cc
    """
    (source,), _ = inputs_of(node.inputs, 1)
    result = output_of(node.outputs)
    rank = len(source.shape)
    named = node.options.get("squeeze_dims", ())
    if not isinstance(named, (tuple, list)):
        raise Unsupported(f"squeeze_dims is {named!r}: a list is needed")
    axes = {axis_of(axis, rank) for axis in named}
    if any(source.shape[axis] != 1 for axis in axes):
        raise Unsupported(f"dimensions {sorted(axes)} of {shape_text(source)}: not all are 1")
    if not axes:
        axes = {axis for axis in range(rank) if source.shape[axis] == 1}
    require_shape(result, [n for axis, n in enumerate(source.shape) if axis not in axes])
    require_same_bytes(source, result)
    return view(source, result)
