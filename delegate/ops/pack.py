# SPDX-License-Identifier: Apache-2.0
"""PACK: equal tensors as the layers of one with one more axis; only bytes move."""

from __future__ import annotations

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.indices import axis_of
from delegate.ops._checks.node import inputs_of, integer, output_of
from delegate.ops._checks.shapes import shape_text
from delegate.ops._launches.copy import moved, require_same_scale, require_shape, require_types
from delegate.ops._launches.parts import layer
from delegate.ops._registry import lowers
from delegate.target import Target

TYPES = ("uint8", "int8", "int16", "int32", "int64", "float32")


@lowers("PACK")
def lower_pack(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Stack tensors of one shape along a new axis.

    Raises:
        Unsupported: shapes, scales or zero points that differ.
    Source: tflite/kernels/pack.cc
    """
    sources, _ = inputs_of(node.inputs, max(1, len(node.inputs)))
    result = output_of(node.outputs)
    shape = sources[0].shape
    axis = axis_of(integer(node.options, "axis", 0), len(shape) + 1)
    if node.options.get("values_count", len(sources)) != len(sources):
        raise Unsupported(f"{node.options['values_count']} layers, {len(sources)} inputs")
    for source in sources:
        require_types(source, result, TYPES)
        if source.shape != shape:
            raise Unsupported(f"layers {'x'.join(map(str, shape))} and {shape_text(source)}")
        require_same_scale(source, result)
    require_shape(result, (*shape[:axis], len(sources), *shape[axis:]))
    return moved([layer(s, result, axis, place) for place, s in enumerate(sources)], target)
