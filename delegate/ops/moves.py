# SPDX-License-Identifier: Apache-2.0
"""Ops that copy one box of elements, or only reinterpret the shape.

RESHAPE, EXPAND_DIMS, SQUEEZE; SLICE, STRIDED_SLICE, BROADCAST_TO, FILL, ZEROS_LIKE, REVERSE_V2,
TILE, TRANSPOSE.
"""

from __future__ import annotations

import math

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.float_results import COPIES, SELECTS
from delegate.graph.ir import Node, Tensor
from delegate.graph.shapes import output_shapes
from delegate.graph.shapes.slices import strided_parts
from delegate.launch import Alternative, storage_type
from delegate.ops._checks.node import (
    ANY,
    axis_of,
    elements_of,
    inputs_of,
    integer,
    output_of,
    require_same_scale,
    require_shape,
    require_types,
    scalar_of,
    shape_text,
    tensors_of,
    vector_of,
)
from delegate.ops._launches.broadcast import broadcast
from delegate.ops._launches.copy import Box, Move, by_moves, fill, steps_of, view
from delegate.ops._registry import lowers
from delegate.target import Target


def _reshaped(source: Tensor, result: Tensor) -> tuple[Alternative, ...]:
    """Return a view: the result shares the source's memory.

    Raises:
        Unsupported: the types or sizes differ, a tensor is empty or its type has no fixed size.
    """
    if source.dtype != result.dtype or math.prod(source.shape) != math.prod(result.shape):
        raise Unsupported(
            f"{source.dtype} {shape_text(source)} -> {result.dtype} {shape_text(result)}: "
            "type and size must stay"
        )
    elements_of(result)
    if storage_type(source.dtype).hasobject:
        raise Unsupported(f"{source.dtype}: only types of a fixed size")
    return view(source, result)


@lowers("RESHAPE", floats=COPIES)
def lower_reshape(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Reinterpret the input with the output's shape.

    Raises:
        Unsupported: the sizes differ, the new shape is not constant, or differs from the output's.
    Source: tflite/kernels/reshape.cc
    """
    (source,), (shape,) = inputs_of(node.inputs, 1, 1)
    result = output_of(node.outputs)
    requested = node.options.get("new_shape")
    if shape is not None:
        if shape.data is None:
            raise Unsupported("the new shape is computed at run time")
        requested = tuple(np.ravel(shape.data).tolist())
    alternatives = _reshaped(source, result)
    (expected,) = output_shapes(node) or (requested,)
    if expected != result.shape:
        raise Unsupported(f"the new shape is {expected}, the output's {result.shape}")
    return alternatives


@lowers("EXPAND_DIMS", floats=COPIES)
def lower_expand_dims(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Insert a dimension of size 1 before dimension `axis`.

    Raises:
        Unsupported: an axis that is not constant or out of range.
    Source: tflite/kernels/expand_dims.cc
    """
    source, axis_tensor, result = tensors_of(node, 2)
    axis = axis_of(scalar_of(axis_tensor, "axis"), len(source.shape) + 1)
    require_shape(result, (*source.shape[:axis], 1, *source.shape[axis:]))
    require_same_scale(source, result)
    return _reshaped(source, result)


@lowers("SQUEEZE", floats=COPIES)
def lower_squeeze(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Remove the given dimensions, or all of size 1.

    Raises:
        Unsupported: a given dimension that does not exist or is not 1.
    Source: tflite/kernels/squeeze.cc
    """
    source, result = tensors_of(node, 1)
    rank = len(source.shape)
    squeezed = node.options.get("squeeze_dims", ())
    if not isinstance(squeezed, (tuple, list)):
        raise Unsupported(f"squeeze_dims is {squeezed!r}: a list is needed")
    axes = {axis_of(axis, rank) for axis in squeezed}
    if any(source.shape[axis] != 1 for axis in axes):
        raise Unsupported(f"dimensions {sorted(axes)} of {shape_text(source)}: not all are 1")
    axes = axes or {axis for axis in range(rank) if source.shape[axis] == 1}
    require_shape(result, [n for axis, n in enumerate(source.shape) if axis not in axes])
    return _reshaped(source, result)


@lowers("SLICE", floats=COPIES)
def lower_slice(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Copy `size` elements from `begin` on, along each dimension; -1 means all remaining ones.

    Raises:
        Unsupported: a begin or size that is not constant, or reaches beyond the input.
    Source: tflite/kernels/slice.cc
    """
    source, begins, counts, result = tensors_of(node, 3, ANY)
    rank = len(source.shape)
    begin, sizes = vector_of(begins, "begin", rank), vector_of(counts, "sizes", rank)
    rows = [*zip(source.shape, begin, sizes, strict=True)]
    sizes = [whole - first if size == -1 else size for whole, first, size in rows]
    for whole, first, size in zip(source.shape, begin, sizes, strict=True):
        if first < 0 or size < 0 or first + size > whole:
            raise Unsupported(
                f"{sizes} elements from {begin} on of {shape_text(source)}: outside of it"
            )
    require_shape(result, sizes)
    steps = steps_of(source.shape)
    start = sum(first * step for first, step in zip(begin, steps, strict=True))
    return by_moves(
        [Move(source, result, Box(result.shape, steps, steps_of(sizes), start))], target
    )


@lowers("STRIDED_SLICE", floats=COPIES)
def lower_strided_slice(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Copy Python's source[begin:end:stride, ...], with TensorFlow's bit masks.

    Raises:
        Unsupported: non-constant bounds, a stride of 0, an axis to drop that the input lacks.
    Source: tflite/kernels/strided_slice.cc, internal/strided_slice_logic.h
    """
    source, first, last, by, result = tensors_of(node, 4, ANY)
    begins = vector_of(first, "begin")
    ends, strides = vector_of(last, "end", len(begins)), vector_of(by, "strides", len(begins))
    names = [f"{name}_mask" for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")]
    masks = {name: integer(node.options, name, 0) for name in names}
    is_offset = bool(node.options.get("offset"))
    try:
        parts = strided_parts(source.shape, begins, ends, strides, masks, is_offset)
    except ValueError as error:
        raise Unsupported(str(error)) from None
    # TFLite crashes on some of these.
    is_partial = any(masks.values()) or len(begins) < len(source.shape)
    if is_offset and (is_partial or min(strides) < 1):
        raise Unsupported("ends as offsets: only for all dimensions, forwards and without masks")
    require_shape(result, [len(part.taken) for part in parts if not part.is_dropped])
    ranges = [part.taken for part in parts if not part.is_new]
    sizes, steps = tuple(map(len, ranges)), steps_of(source.shape)
    in_steps = tuple(part.step * step for part, step in zip(ranges, steps, strict=True))
    start = sum(part.start * step for part, step in zip(ranges, steps, strict=True))
    return by_moves([Move(source, result, Box(sizes, in_steps, steps_of(sizes), start))], target)


@lowers("BROADCAST_TO", floats=COPIES)
def lower_broadcast_to(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Repeat a tensor along its dimensions of size 1, and along new ones before them.

    Raises:
        Unsupported: a shape that is not constant, or that the input cannot be broadcast to.
    Source: tflite/kernels/broadcast_to.cc
    """
    source, shape, result = tensors_of(node, 2, ANY)
    require_shape(result, vector_of(shape, "shape"))
    sizes, (in_steps,) = broadcast(result, source)
    return by_moves([Move(source, result, Box(sizes, in_steps, steps_of(sizes)))], target)


@lowers("FILL", floats=SELECTS)
def lower_fill(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Fill a constant shape with one value, which need not be constant.

    Raises:
        Unsupported: a non-constant shape, several values.
    Source: tflite/kernels/fill.cc
    """
    shape, value, result = tensors_of(node, 2)
    require_types(value, result)
    require_same_scale(value, result)
    if math.prod(value.shape) != 1:
        raise Unsupported(f"value {shape_text(value)}: one number is needed")
    require_shape(result, vector_of(shape, "shape"))
    box = Box(result.shape, (0,) * len(result.shape), steps_of(result.shape))
    return by_moves([Move(value, result, box)], target)


@lowers("ZEROS_LIKE", floats=SELECTS)
def lower_zeros_like(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Fill a tensor of the input's shape with zeros.

    Raises:
        Unsupported: a type that TFLite does not support.
    Source: tflite/kernels/zeros_like.cc
    """
    source, result = tensors_of(node, 1)
    require_types(source, result, ("float32", "int32", "int64"))
    require_shape(result, source.shape)
    elements_of(result)
    return by_moves([fill(np.zeros((), result.dtype), result, result.shape)], target)


@lowers("REVERSE_V2", floats=COPIES)
def lower_reverse_v2(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Reverse a tensor along the given axes.

    Raises:
        Unsupported: axes that are not constant, out of range or repeated.
    Source: tflite/kernels/reverse.cc
    """
    source, axes_tensor, result = tensors_of(node, 2, ANY)
    require_shape(result, source.shape)
    axes = [axis_of(axis, len(source.shape)) for axis in vector_of(axes_tensor, "axes")]
    if len({*axes}) != len(axes):
        raise Unsupported(f"axes {axes}: one is repeated")
    if target.rules.reverses_first_axis:
        del axes[1:]
    elif axes and max(axes) - min(axes) >= len(axes):
        raise Unsupported(f"axes {axes}: TFLite fails on some that are not neighbours")
    steps = [*steps_of(source.shape)]
    start = 0
    for axis in axes:
        start += (source.shape[axis] - 1) * steps[axis]
        steps[axis] = -steps[axis]
    box = Box(source.shape, tuple(steps), steps_of(result.shape), start)
    return by_moves([Move(source, result, box)], target)


@lowers("TILE", floats=COPIES)
def lower_tile(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Repeat a tensor `multiples` times along each dimension.

    Raises:
        Unsupported: multiples that are not constant, or below 1.
    Source: tflite/kernels/tile.cc
    """
    source, multiples, result = tensors_of(node, 2, ANY)
    counts = vector_of(multiples, "multiples", len(source.shape))
    if min(counts, default=1) < 1:
        raise Unsupported(f"multiples {counts}: at least 1 is needed")
    require_shape(result, [n * size for n, size in zip(counts, source.shape, strict=True)])
    rows = zip(counts, source.shape, steps_of(source.shape), steps_of(result.shape), strict=True)
    columns = [
        column
        for count, size, inwards, outwards in rows
        for column in ((count, 0, size * outwards), (size, inwards, outwards))
    ]
    box = Box(*(zip(*columns, strict=True) if columns else ((), (), ())))
    return by_moves([Move(source, result, box)], target)


@lowers("TRANSPOSE", floats=COPIES)
def lower_transpose(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Permute the axes: output axis i is input axis order[i].

    Raises:
        Unsupported: an order that is not constant or no permutation.
    Source: tflite/kernels/transpose.cc
    """
    source, order, result = tensors_of(node, 2, ANY)
    rank = len(source.shape)
    axes = [axis_of(axis, rank) for axis in vector_of(order, "order of axes", rank)]
    if len({*axes}) != rank:
        raise Unsupported(f"order of axes {axes}: one is repeated")
    require_shape(result, [source.shape[axis] for axis in axes])
    steps = steps_of(source.shape)
    box = Box(result.shape, tuple(steps[axis] for axis in axes), steps_of(result.shape))
    return by_moves([Move(source, result, box)], target)
