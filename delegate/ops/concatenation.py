# SPDX-License-Identifier: Apache-2.0
"""CONCATENATION and PACK: tensors side by side along an axis; where scales differ by tables."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
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
    shape_text,
)
from delegate.ops._launches.copy import layers, moved
from delegate.ops._launches.tiles import over_elements
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("CONCATENATION")
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
    moves, scaled = [], []
    start = 0
    for source in sources:
        require_types(source, result)
        if [*source.shape[:axis], 0, *source.shape[axis + 1 :]] != [
            *shape[:axis], 0, *shape[axis + 1 :]
        ]:  # fmt: skip
            raise Unsupported(f"{shape_text(sources[0])} and {shape_text(source)} on axis {axis}")
        if result.dtype == "int8":
            require_same_scale(source, result)
        if result.dtype == "uint8" and source.quantization != result.quantization:
            scaled.append((source, start))
        else:
            moves.append(layers(source, result, axis, start, source.shape[axis]))
        start += source.shape[axis]
    require_shape(result, (*shape[:axis], start, *shape[axis + 1 :]))
    launches = tuple(_scaled(source, result, axis, place, target) for source, place in scaled)
    if not moves:
        return (Alternative("plain", launches),)
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
        sizes = np.abs(reals.astype(np.float64))
        rounded = np.copysign(np.floor(sizes + 0.5), reals).astype(np.int64)
        return np.asarray(np.clip(rounded + out_zero, 0, 255), np.uint8)

    return Constant(256, pack)


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
        require_types(source, result, ("uint8", "int8", "int16", "int32", "int64", "float32"))
        if source.shape != shape:
            raise Unsupported(f"layers {'x'.join(map(str, shape))} and {shape_text(source)}")
        require_same_scale(source, result)
    require_shape(result, (*shape[:axis], len(sources), *shape[axis:]))
    places = enumerate(sources)
    return moved([layers(source, result, axis, place, 1) for place, source in places], target)
