# SPDX-License-Identifier: Apache-2.0
"""RESHAPE, EXPAND_DIMS, SQUEEZE: the same bytes under another shape, so no kernel at all."""

from __future__ import annotations

import math

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, size_bytes
from delegate.ops._checks.node import (
    axis_of,
    inputs_of,
    output_of,
    require_same_scale,
    require_shape,
    scalar_of,
    shape_text,
    tensors_of,
)
from delegate.ops._launches.copy import view
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("RESHAPE")
def lower_reshape(node: Node, target: Target) -> tuple[Alternative, ...]:
    """View the input's values under the output's shape.

    Raises:
        Unsupported: the sizes differ, the new shape is computed, or another one than the output's.
    Source: tflite/kernels/reshape.cc
    """
    (source,), (shape,) = inputs_of(node.inputs, 1, 1)
    result = output_of(node.outputs)
    if shape is not None and shape.data is None:
        raise Unsupported("the new shape is computed at run time")
    require_same_bytes(source, result)
    wanted = _wanted(shape, node.options.get("new_shape"))
    rest = math.prod(size for size in wanted if size != -1)
    if wanted.count(-1) == 1 and rest > 0:
        wanted = tuple(math.prod(source.shape) // rest if n == -1 else n for n in wanted)
    if wanted != result.shape:
        raise Unsupported(f"the new shape is {wanted}, the output's {result.shape}")
    return view(source, result)


def _wanted(shape: Tensor | None, option: object) -> tuple[int, ...]:
    # As TFLite: an input that is no vector of int32 does not count.
    if shape is not None and shape.dtype == "int32" and len(shape.shape) == 1:
        return tuple(np.asarray(shape.data).tolist())
    if not isinstance(option, (tuple, list)):
        raise Unsupported("no new shape: neither an input nor an option has it")
    wanted = tuple(option)
    return () if wanted == (0,) else wanted  # how old converters write a scalar


def require_same_bytes(source: Tensor, result: Tensor) -> None:
    """Check that a result can be a view of its source.

    Raises:
        Unsupported: the types or sizes differ, they are empty or of no fixed size.
    """
    try:
        same = source.dtype == result.dtype and size_bytes(source) == size_bytes(result)
    except TypeError:
        raise Unsupported(f"{source.dtype}: only types of a fixed size") from None
    if not same or np.dtype(source.dtype).hasobject:
        raise Unsupported(
            f"{source.dtype} {shape_text(source)} -> {result.dtype} {shape_text(result)}: "
            "type and size must stay"
        )
    if 0 in result.shape:
        raise Unsupported(f"shape {shape_text(result)}: it is empty")


@lowers("EXPAND_DIMS")
def lower_expand_dims(node: Node, target: Target) -> tuple[Alternative, ...]:
    """View the input's values under a shape with a 1 before dimension `axis`.

    Raises:
        Unsupported: a computed axis, or one out of range.
    Source: tflite/kernels/expand_dims.cc
    """
    source, where, result = tensors_of(node, 2)
    axis = axis_of(scalar_of(where, "axis"), len(source.shape) + 1)
    require_shape(result, (*source.shape[:axis], 1, *source.shape[axis:]))
    require_same_scale(source, result)
    require_same_bytes(source, result)
    return view(source, result)


@lowers("SQUEEZE")
def lower_squeeze(node: Node, target: Target) -> tuple[Alternative, ...]:
    """View the input's values without the named dimensions, or without all of size 1.

    Raises:
        Unsupported: a named dimension that is not there or not 1.
    Source: tflite/kernels/squeeze.cc
    """
    source, result = tensors_of(node, 1)
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
