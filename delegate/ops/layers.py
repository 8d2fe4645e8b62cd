# SPDX-License-Identifier: Apache-2.0
"""CONCATENATION, PACK, SPLIT, SPLIT_V and UNPACK: copies, or lookup tables where scales differ.

Also channel_shuffle, by passes/fuse_shuffle.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.float_results import COPIES, EXACT
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import require_no_activation
from delegate.ops._checks.node import (
    axis_of,
    inputs_of,
    integer,
    output_of,
    require_same_scale,
    require_shape,
    require_types,
    scalar_of,
    shape_text,
    vector_of,
)
from delegate.ops._launches.copy import Move, by_moves, insertion, slice_of
from delegate.ops._launches.lookup import round_away
from delegate.ops._launches.tiles import LEAST_BYTES, by_share, lanes_of, launch_over, over_elements
from delegate.ops._numbers import ceil_div
from delegate.ops._registry import lowers
from delegate.target import Target

_COPIED_TYPES = ("uint8", "int8", "int16", "int32", "int64", "float32")
_UNPACK_TYPES = ("uint8", "int8", "int16", "int32", "float16", "float32", "bool")


@lowers("CONCATENATION", floats=COPIES)
def lower_concatenation(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Concatenate tensors whose other dimensions are equal.

    Shapes:
        inputs (..., n_i, ...) -> output (..., sum of n_i, ...)
    Raises:
        Unsupported: other dimensions that differ, int8 inputs whose scales differ, an activation.
    Source: tflite/kernels/concatenation.cc, internal/reference/concatenation.h
    """
    sources, _ = inputs_of(node.inputs, max(1, len(node.inputs)))
    result = output_of(node.outputs)
    require_no_activation(node)
    shape = sources[0].shape
    axis = axis_of(integer(node.options, "axis", 0), len(shape))
    if len(result.shape) != len(shape):
        shapes = f"{shape_text(sources[0])} in, {shape_text(result)} out"
        raise Unsupported(f"{shapes}: their ranks must be equal")
    moves, launches = [], []
    start = 0
    for source in sources:
        require_types(source, result)
        others = (*source.shape[:axis], *source.shape[axis + 1 :])
        if len(source.shape) != len(shape) or others != (*shape[:axis], *shape[axis + 1 :]):
            shapes = f"{shape_text(sources[0])} and {shape_text(source)}"
            raise Unsupported(f"{shapes}: they may differ on axis {axis} alone")
        if result.dtype == "int8":
            require_same_scale(source, result)
        if result.dtype == "uint8" and source.quantization != result.quantization:
            launches.append(_requantised(source, result, axis, start, target))
        else:
            moves.append(insertion(source, result, axis, start, source.shape[axis]))
        start += source.shape[axis]
    require_shape(result, (*shape[:axis], start, *shape[axis + 1 :]))
    if not moves:
        return (Alternative("plain", tuple(launches)),)
    copies = by_moves(moves, target)
    if not launches:
        return copies
    return tuple(Alternative(each.name, (*each.launches, *launches)) for each in copies)


def _requantised(source: Tensor, result: Tensor, axis: int, start: int, target: Target) -> Launch:
    """Return the launch that requantises one input into the output, from index `start` on."""
    inner = math.prod(source.shape[axis + 1 :])
    return over_elements(
        "concatenation",
        "concatenation_quant8",
        math.prod(source.shape),
        target,
        {
            "input": source,
            "output": result,
            "table": _table(source, result),
            "row": source.shape[axis] * inner,
            "output_row": result.shape[axis] * inner,
            "start": start * inner,
        },
    )


def _table(source: Tensor, result: Tensor) -> Constant:
    """Return the table of 256 values: TFLite's float32 operations in order, ties away from zero.

    Source: reference/concatenation.h ConcatenationWithScaling
    """
    in_scale, in_zero = quantized.per_tensor(source)
    out_scale, out_zero = quantized.per_tensor(result)
    with np.errstate(over="ignore"):
        scale = np.float32(in_scale) * (np.float32(1) / np.float32(out_scale))
        bias = np.float32(-in_zero) * scale
        reals = np.arange(256, dtype=np.float32) * scale + bias
    if not np.abs(reals).max() < 2**30:
        raise Unsupported(f"a scale ratio of {scale:g}: beyond 32 bits")

    def pack() -> NDArray[np.uint8]:
        rounded = round_away(reals).astype(np.int64)
        return np.asarray(np.clip(rounded + out_zero, 0, 255), np.uint8)

    return Constant(256, pack)


@lowers("PACK", floats=COPIES)
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
        raise Unsupported(
            f"{node.options['values_count']} layers, {len(sources)} inputs: they must be equal"
        )
    for source in sources:
        require_types(source, result, _COPIED_TYPES)
        if source.shape != shape:
            shapes = f"{shape_text(sources[0])} and {shape_text(source)}"
            raise Unsupported(f"layers {shapes}: they must be equal")
        require_same_scale(source, result)
    require_shape(result, (*shape[:axis], len(sources), *shape[axis:]))
    indexed = enumerate(sources)
    return by_moves(
        [insertion(source, result, axis, index, 1) for index, source in indexed], target
    )


@lowers("SPLIT", floats=COPIES)
def lower_split(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Split a tensor into equal parts, one per output.

    Shapes:
        axis, input (..., n, ...) -> outputs (..., n / outputs, ...)
    Raises:
        Unsupported: a non-constant axis, no output, a size that is no multiple of their number.
    Source: tflite/kernels/split.cc
    """
    (axis_tensor, source), _ = inputs_of(node.inputs, 2)
    axis = axis_of(scalar_of(axis_tensor, "axis"), len(source.shape))
    count = len(node.outputs)
    if not count:
        raise Unsupported("0 outputs: at least 1 is expected")
    if node.options.get("num_splits", count) != count:
        raise Unsupported(
            f"{node.options['num_splits']} parts, {count} outputs: they must be equal"
        )
    size, remainder = divmod(source.shape[axis], count)
    if remainder:
        raise Unsupported(f"{source.shape[axis]} elements in {count} parts: they must be equal")
    return by_moves(_parts(source, node.outputs, axis, [size] * count), target)


@lowers("SPLIT_V", floats=COPIES)
def lower_split_v(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Split a tensor into parts of given sizes, one of which may be -1: the remainder.

    Raises:
        Unsupported: non-constant sizes or axis, sizes that do not add up, empty parts.
    Source: tflite/kernels/split_v.cc
    """
    (source, size_tensor, axis_tensor), _ = inputs_of(node.inputs, 3)
    axis = axis_of(scalar_of(axis_tensor, "axis"), len(source.shape))
    sizes = vector_of(size_tensor, "sizes", len(node.outputs))
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = source.shape[axis] - sum(sizes) - 1
    if sum(sizes) != source.shape[axis] or min(sizes, default=0) < 0:
        raise Unsupported(f"parts of {sizes} elements: they must add up to {source.shape[axis]}")
    return by_moves(_parts(source, node.outputs, axis, sizes), target)


def _parts(
    source: Tensor, results: Sequence[Tensor], axis: int, sizes: Sequence[int]
) -> list[Move]:
    moves = []
    start = 0
    for size, result in zip(sizes, results, strict=True):
        require_types(source, result, _COPIED_TYPES)
        require_shape(result, (*source.shape[:axis], size, *source.shape[axis + 1 :]))
        moves.append(slice_of(source, result, axis, start, size))
        start += size
    return moves


@lowers("UNPACK", floats=COPIES)
def lower_unpack(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Split a tensor along one axis, which the outputs do not have.

    Raises:
        Unsupported: an axis out of range, a size other than the number of outputs.
    Source: tflite/kernels/unpack.cc
    """
    (source,), _ = inputs_of(node.inputs, 1)
    axis = axis_of(integer(node.options, "axis", 0), len(source.shape))
    count = len(node.outputs)
    if count != source.shape[axis] or node.options.get("num", count) != count:
        raise Unsupported(f"{source.shape[axis]} layers, {count} outputs: they must be equal")
    for result in node.outputs:
        require_types(source, result, _UNPACK_TYPES)
        require_same_scale(source, result)
        require_shape(result, (*source.shape[:axis], *source.shape[axis + 1 :]))
    indexed = enumerate(node.outputs)
    return by_moves([slice_of(source, result, axis, index, 1) for index, result in indexed], target)


@lowers("channel_shuffle", floats=EXACT)
def lower_channel_shuffle(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Interleave the channels of two tensors, then split the result into equal parts.

    Shapes:
        left, right (..., c) -> one output (..., 2 c), or two of (..., c)
    Raises:
        Unsupported: types other than 8 bits, scales that differ, parts with an odd number of
            channels or with fewer than a vector.
    """
    (left, right), _ = inputs_of(node.inputs, 2)
    outputs, channels = node.outputs, left.shape[-1]
    half, remainder = divmod(channels, len(outputs))
    if remainder:
        raise Unsupported(f"{channels} channels: {len(outputs)} outputs do not divide them")
    require_shape(right, left.shape)
    for result in outputs:
        for source in (left, right):
            require_types(source, result, ("uint8", "int8"))
            require_same_scale(source, result)
        require_shape(result, (*left.shape[:-1], 2 * half))
    lanes = lanes_of(half, target) or 4
    if lanes > half:
        raise Unsupported(f"{half} channels: fewer than a vector's")
    rows = math.prod(left.shape[:-1])
    launch = launch_over(
        "channel_shuffle",
        "channel_shuffle",
        by_share(rows, target, least=ceil_div(LEAST_BYTES, channels)),
        {
            "left": left,
            "right": right,
            "output": outputs[0],
            "last_output": outputs[-1],
            "rows": rows,
            "pitch": channels,
            "part": half,
            "parts": len(outputs),
        },
        {"LANES": lanes},
    )
    return (Alternative(f"vector {lanes}", (launch,)),)
