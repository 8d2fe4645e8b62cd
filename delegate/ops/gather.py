# SPDX-License-Identifier: Apache-2.0
"""GATHER: layers along one axis, picked by indices that stay inside; only bytes move."""

from __future__ import annotations

import math

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.indices import axis_of
from delegate.ops._checks.node import inputs_of, integer, output_of
from delegate.ops._checks.shapes import shape_text
from delegate.ops._launches.copy import require_shape, require_types
from delegate.ops._launches.picks import LookUp, picked, require_index
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("GATHER")
def lower_gather(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Take layers along `axis`, by indices of their own for each of the first `batch_dims` ones.

    Shapes:
        input (batch..., outer..., n, inner...), indices (batch..., k...)
        -> output (batch..., outer..., k..., inner...)
    Raises:
        Unsupported: an index that is or may be out of range: TFLite fails on it at run time.
    Source: tflite/kernels/gather.cc, internal/reference/gather.h
    """
    (source, positions), _ = inputs_of(node.inputs, 2)
    result = output_of(node.outputs)
    require_types(source, result)
    require_index(positions)
    places = positions.shape
    axis = axis_of(integer(node.options, "axis", 0), len(source.shape))
    batch = integer(node.options, "batch_dims", 0)
    batch += len(places) if batch < 0 else 0
    if not 0 <= batch <= min(axis, len(places)):
        raise Unsupported(f"batch_dims {batch}: beyond axis {axis} or {len(places)} dimensions")
    if places[:batch] != source.shape[:batch]:
        raise Unsupported(f"batches {shape_text(source)} and {shape_text(positions)}: they differ")
    before, after = source.shape[:axis], source.shape[axis + 1 :]
    require_shape(result, (*before, *places[batch:], *after))
    look_up = LookUp((source.shape[axis],), math.prod(after), math.prod(places[batch:]))
    return picked(source, result, positions, look_up, target)
