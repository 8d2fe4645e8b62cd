# SPDX-License-Identifier: Apache-2.0
"""Tensors side by side along an axis, and parts of one: where scales differ by tables, else moved.

CONCATENATION, PACK, SPLIT, SPLIT_V, UNPACK; and channel_shuffle, by passes/fuse_shuffle.py.
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
from delegate.ops._launches.copy import Move, layers, moved, part
from delegate.ops._launches.lookup import round_away
from delegate.ops._launches.tiles import LEAST_BYTES, by_share, lanes_of, launch_over, over_elements
from delegate.ops._numbers import ceil_div
from delegate.ops._registry import lowers
from delegate.target import Target

_MOVED = ("uint8", "int8", "int16", "int32", "int64", "float32")
_UNPACKED = ("uint8", "int8", "int16", "int32", "float16", "float32", "bool")


@lowers("CONCATENATION", floats=COPIES)
def lower_concatenation(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Join tensors whose other dimensions are equal.

    Shapes:
        inputs (..., n_i, ...) -> output (..., sum of n_i, ...)
    Raises:
        Unsupported: other dimensions that differ, int8 inputs of other scales, an activation.
    Source: tflite/kernels/concatenation.cc, internal/reference/concatenation.h
    """
    sources, _ = inputs_of(node.inputs, max(1, len(node.inputs)))
    result = output_of(node.outputs)
    require_no_activation(node)
    shape = sources[0].shape
    axis = axis_of(integer(node.options, "axis", 0), len(shape))
    if len(result.shape) != len(shape):
        raise Unsupported(f"{shape_text(sources[0])} in, {shape_text(result)} out")
    moves, launches = [], []
    start = 0
    for source in sources:
        require_types(source, result)
        others = (*source.shape[:axis], *source.shape[axis + 1 :])
        if len(source.shape) != len(shape) or others != (*shape[:axis], *shape[axis + 1 :]):
            raise Unsupported(f"{shape_text(sources[0])} and {shape_text(source)} on axis {axis}")
        if result.dtype == "int8":
            require_same_scale(source, result)
        if result.dtype == "uint8" and source.quantization != result.quantization:
            launches.append(_scaled(source, result, axis, start, target))
        else:
            moves.append(layers(source, result, axis, start, source.shape[axis]))
        start += source.shape[axis]
    require_shape(result, (*shape[:axis], start, *shape[axis + 1 :]))
    if not moves:
        return (Alternative("plain", tuple(launches)),)
    ways = moved(moves, target)
    if not launches:
        return ways
    return tuple(Alternative(each.name, (*each.launches, *launches)) for each in ways)


def _scaled(source: Tensor, result: Tensor, axis: int, start: int, target: Target) -> Launch:
    """Return the launch of an input of another scale than the output's, from layer `start` on."""
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
    """Return the 256 answers: float32 operations in TFLite's order, rounded half away from 0.

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
        raise Unsupported(f"{node.options['values_count']} layers, {len(sources)} inputs")
    for source in sources:
        require_types(source, result, _MOVED)
        if source.shape != shape:
            raise Unsupported(f"layers {shape_text(sources[0])} and {shape_text(source)}")
        require_same_scale(source, result)
    require_shape(result, (*shape[:axis], len(sources), *shape[axis:]))
    places = enumerate(sources)
    return moved([layers(source, result, axis, place, 1) for place, source in places], target)


@lowers("SPLIT", floats=COPIES)
def lower_split(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Cut a tensor into as many parts as there are outputs.

    Shapes:
        axis, input (..., n, ...) -> outputs (..., n / outputs, ...)
    Raises:
        Unsupported: a computed axis, no output, a size that their number does not divide.
    Source: tflite/kernels/split.cc
    """
    (where, source), _ = inputs_of(node.inputs, 2)
    axis = axis_of(scalar_of(where, "axis"), len(source.shape))
    count = len(node.outputs)
    if not count:
        raise Unsupported("0 outputs: at least 1 is expected")
    if node.options.get("num_splits", count) != count:
        raise Unsupported(f"{node.options['num_splits']} parts, {count} outputs: not equal")
    size, rest = divmod(source.shape[axis], count)
    if rest:
        raise Unsupported(f"{source.shape[axis]} elements in {count} parts: they are not equal")
    return moved(_parts(source, node.outputs, axis, [size] * count), target)


@lowers("SPLIT_V", floats=COPIES)
def lower_split_v(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Cut a tensor into parts of these sizes, one of which may be -1: what is left.

    Raises:
        Unsupported: computed sizes or axis, sizes that do not add up, empty parts.
    Source: tflite/kernels/split_v.cc
    """
    (source, amounts, where), _ = inputs_of(node.inputs, 3)
    axis = axis_of(scalar_of(where, "axis"), len(source.shape))
    sizes = vector_of(amounts, "sizes", len(node.outputs))
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = source.shape[axis] - sum(sizes) - 1
    if sum(sizes) != source.shape[axis] or min(sizes, default=0) < 0:
        raise Unsupported(f"parts of {sizes} elements: {source.shape[axis]} are there")
    return moved(_parts(source, node.outputs, axis, sizes), target)


def _parts(
    source: Tensor, results: Sequence[Tensor], axis: int, sizes: Sequence[int]
) -> list[Move]:
    moves = []
    start = 0
    for size, result in zip(sizes, results, strict=True):
        require_types(source, result, _MOVED)
        require_shape(result, (*source.shape[:axis], size, *source.shape[axis + 1 :]))
        moves.append(part(source, result, axis, start, size))
        start += size
    return moves


@lowers("UNPACK", floats=COPIES)
def lower_unpack(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Take a tensor apart along one axis, which the outputs no longer have.

    Raises:
        Unsupported: an axis out of range, another number of outputs than layers.
    Source: tflite/kernels/unpack.cc
    """
    (source,), _ = inputs_of(node.inputs, 1)
    axis = axis_of(integer(node.options, "axis", 0), len(source.shape))
    count = len(node.outputs)
    if count != source.shape[axis] or node.options.get("num", count) != count:
        raise Unsupported(f"{source.shape[axis]} layers, {count} outputs: not equal")
    for result in node.outputs:
        require_types(source, result, _UNPACKED)
        require_same_scale(source, result)
        require_shape(result, (*source.shape[:axis], *source.shape[axis + 1 :]))
    places = enumerate(node.outputs)
    return moved([part(source, result, axis, place, 1) for place, result in places], target)


@lowers("channel_shuffle", floats=EXACT)
def lower_channel_shuffle(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Take a channel of the left tensor, then one of the right, and so on; cut that in equal parts.

    Shapes:
        left, right (..., c) -> one output (..., 2 c), or two of (..., c)
    Raises:
        Unsupported: other types than those of 8 bits, scales that differ, parts of an odd number of
            channels or of fewer than a vector has.
    """
    (left, right), _ = inputs_of(node.inputs, 2)
    outputs, channels = node.outputs, left.shape[-1]
    half, rest = divmod(channels, len(outputs))
    if rest:
        raise Unsupported(f"{channels} channels: {len(outputs)} outputs do not divide them")
    require_shape(right, left.shape)
    for result in outputs:
        for source in (left, right):
            require_types(source, result, ("uint8", "int8"))
            require_same_scale(source, result)
        require_shape(result, (*left.shape[:-1], 2 * half))
    lanes = lanes_of(half, target) or 4
    if lanes > half:
        raise Unsupported(f"{half} channels: fewer than a vector has")
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
