# SPDX-License-Identifier: Apache-2.0
"""Ops that move the bytes of one box each, or none: the same bytes under another shape.

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
from delegate.ops._launches.copy import Box, Move, fill, moved, steps_of, view
from delegate.ops._registry import lowers
from delegate.target import Target


def _viewed(source: Tensor, result: Tensor) -> tuple[Alternative, ...]:
    """Return the view of a source whose bytes a result has.

    Raises:
        Unsupported: the types or sizes differ, they are empty or of no fixed size.
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
    """View the input's values under the output's shape.

    Raises:
        Unsupported: the sizes differ, the new shape is computed, or another one than the output's.
    Source: tflite/kernels/reshape.cc
    """
    (source,), (shape,) = inputs_of(node.inputs, 1, 1)
    result = output_of(node.outputs)
    given = node.options.get("new_shape")
    if shape is not None:
        if shape.data is None:
            raise Unsupported("the new shape is computed at run time")
        given = tuple(np.ravel(shape.data).tolist())
    seen = _viewed(source, result)
    (wanted,) = output_shapes(node) or (given,)
    if wanted != result.shape:
        raise Unsupported(f"the new shape is {wanted}, the output's {result.shape}")
    return seen


@lowers("EXPAND_DIMS", floats=COPIES)
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
    return _viewed(source, result)


@lowers("SQUEEZE", floats=COPIES)
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
    axes = axes or {axis for axis in range(rank) if source.shape[axis] == 1}
    require_shape(result, [n for axis, n in enumerate(source.shape) if axis not in axes])
    return _viewed(source, result)


@lowers("SLICE", floats=COPIES)
def lower_slice(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Copy so many elements from a place on, along each dimension; -1 are all that are left.

    Raises:
        Unsupported: a computed place or size, or one outside of the input.
    Source: tflite/kernels/slice.cc
    """
    source, place, amounts, result = tensors_of(node, 3, ANY)
    rank = len(source.shape)
    begin, sizes = vector_of(place, "begin", rank), vector_of(amounts, "sizes", rank)
    rows = [*zip(source.shape, begin, sizes, strict=True)]
    sizes = [whole - first if size == -1 else size for whole, first, size in rows]
    for whole, first, size in zip(source.shape, begin, sizes, strict=True):
        if first < 0 or size < 0 or first + size > whole:
            raise Unsupported(f"{sizes} elements from {begin} on of {shape_text(source)}")
    require_shape(result, sizes)
    steps = steps_of(source.shape)
    start = sum(first * step for first, step in zip(begin, steps, strict=True))
    return moved([Move(source, result, Box(result.shape, steps, steps_of(sizes), start))], target)


@lowers("STRIDED_SLICE", floats=COPIES)
def lower_strided_slice(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Copy what Python's source[begin:end:stride, ...] names, by bit masks as TensorFlow has them.

    Raises:
        Unsupported: computed places, a stride of 0, an axis to drop that is not in the input.
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
    has_more = any(masks.values()) or len(begins) < len(source.shape)
    if is_offset and (has_more or min(strides) < 1):
        raise Unsupported("ends as offsets: only for all dimensions, forwards and without masks")
    require_shape(result, [len(part.taken) for part in parts if not part.is_dropped])
    taken = [part.taken for part in parts if not part.is_new]
    sizes, steps = tuple(map(len, taken)), steps_of(source.shape)
    in_steps = tuple(part.step * step for part, step in zip(taken, steps, strict=True))
    start = sum(part.start * step for part, step in zip(taken, steps, strict=True))
    return moved([Move(source, result, Box(sizes, in_steps, steps_of(sizes), start))], target)


@lowers("BROADCAST_TO", floats=COPIES)
def lower_broadcast_to(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Repeat a tensor along its dimensions of size 1, and along new ones before them.

    Raises:
        Unsupported: a computed shape, or one that the input cannot be broadcast to.
    Source: tflite/kernels/broadcast_to.cc
    """
    source, shape, result = tensors_of(node, 2, ANY)
    require_shape(result, vector_of(shape, "shape"))
    sizes, (in_steps,) = broadcast(result, source)
    return moved([Move(source, result, Box(sizes, in_steps, steps_of(sizes)))], target)


@lowers("FILL", floats=SELECTS)
def lower_fill(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Repeat one value, which may be computed, over a shape, which may not.

    Raises:
        Unsupported: a computed shape, several values.
    Source: tflite/kernels/fill.cc
    """
    shape, value, result = tensors_of(node, 2)
    require_types(value, result)
    require_same_scale(value, result)
    if math.prod(value.shape) != 1:
        raise Unsupported(f"value {shape_text(value)}: one number is needed")
    require_shape(result, vector_of(shape, "shape"))
    box = Box(result.shape, (0,) * len(result.shape), steps_of(result.shape))
    return moved([Move(value, result, box)], target)


@lowers("ZEROS_LIKE", floats=SELECTS)
def lower_zeros_like(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Fill a tensor of the input's shape with zeros.

    Raises:
        Unsupported: other types than TFLite's.
    Source: tflite/kernels/zeros_like.cc
    """
    source, result = tensors_of(node, 1)
    require_types(source, result, ("float32", "int32", "int64"))
    require_shape(result, source.shape)
    elements_of(result)
    return moved([fill(np.zeros((), result.dtype), result, result.shape)], target)


@lowers("REVERSE_V2", floats=COPIES)
def lower_reverse_v2(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Copy a tensor with the order of its elements turned round along each of the axes.

    Raises:
        Unsupported: computed axes, one out of range or there twice.
    Source: tflite/kernels/reverse.cc
    """
    source, where, result = tensors_of(node, 2, ANY)
    require_shape(result, source.shape)
    axes = [axis_of(axis, len(source.shape)) for axis in vector_of(where, "axes")]
    if len({*axes}) != len(axes):
        raise Unsupported(f"axes {axes}: one is there twice")
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
    return moved([Move(source, result, box)], target)


@lowers("TILE", floats=COPIES)
def lower_tile(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Repeat a tensor so many times along each dimension.

    Raises:
        Unsupported: computed numbers of times, or one below 1.
    Source: tflite/kernels/tile.cc
    """
    source, multiples, result = tensors_of(node, 2, ANY)
    times = vector_of(multiples, "multiples", len(source.shape))
    if min(times, default=1) < 1:
        raise Unsupported(f"multiples {times}: at least 1 is needed")
    require_shape(result, [n * size for n, size in zip(times, source.shape, strict=True)])
    rows = zip(times, source.shape, steps_of(source.shape), steps_of(result.shape), strict=True)
    columns = [
        column
        for count, size, inwards, outwards in rows
        for column in ((count, 0, size * outwards), (size, inwards, outwards))
    ]
    box = Box(*(zip(*columns, strict=True) if columns else ((), (), ())))
    return moved([Move(source, result, box)], target)


@lowers("TRANSPOSE", floats=COPIES)
def lower_transpose(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Reorder a tensor's elements so that output axis i is input axis order[i].

    Raises:
        Unsupported: an order that is computed, or does not name each axis once.
    Source: tflite/kernels/transpose.cc
    """
    source, order, result = tensors_of(node, 2, ANY)
    rank = len(source.shape)
    axes = [axis_of(axis, rank) for axis in vector_of(order, "order of axes", rank)]
    if len({*axes}) != rank:
        raise Unsupported(f"order of axes {axes}: one is there twice")
    require_shape(result, [source.shape[axis] for axis in axes])
    steps = steps_of(source.shape)
    box = Box(result.shape, tuple(steps[axis] for axis in axes), steps_of(result.shape))
    return moved([Move(source, result, box)], target)
