# SPDX-License-Identifier: Apache-2.0
"""GATHER_ND: slices named by their first coordinates, which stay inside; only bytes move."""

from __future__ import annotations

import math

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.node import inputs_of, output_of
from delegate.ops._checks.shapes import shape_text
from delegate.ops._launches.copy import require_shape, require_types
from delegate.ops._launches.picks import LookUp, picked, require_index
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("GATHER_ND")
def lower_gather_nd(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Take one slice for each row of coordinates.

    Shapes:
        input (n0, n1, ..., inner...), indices (k..., coordinates) -> output (k..., inner...)
    Raises:
        Unsupported: a coordinate that is or may be out of range: TFLite fails on it at run time.
    Source: tflite/kernels/gather_nd.cc, internal/reference/reference_ops.h GatherNd
    """
    (source, positions), _ = inputs_of(node.inputs, 2)
    result = output_of(node.outputs)
    require_types(source, result)
    require_index(positions)
    count = positions.shape[-1] if positions.shape else 0
    if not 1 <= count <= len(source.shape):
        raise Unsupported(f"{count} coordinates of {shape_text(source)}")
    places, inner = positions.shape[:-1], source.shape[count:]
    require_shape(result, (*places, *inner))
    look_up = LookUp(source.shape[:count], math.prod(inner), math.prod(places))
    return picked(source, result, positions, look_up, target)
