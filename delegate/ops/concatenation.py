# SPDX-License-Identifier: Apache-2.0
"""CONCATENATION: tensors side by side along an axis; uint8 ones of other scales by tables."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch
from delegate.ops._checks import quantized
from delegate.ops._checks.indices import axis_of
from delegate.ops._checks.node import inputs_of, integer, output_of
from delegate.ops._checks.shapes import shape_text
from delegate.ops._launches.copy import moved, require_same_scale, require_shape, require_types
from delegate.ops._launches.parts import whole
from delegate.ops._launches.tiles import by_elements, launch_over
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
    activation = node.options.get("fused_activation_function", "NONE")
    if activation != "NONE":
        raise Unsupported(f"fused activation {activation}: only NONE")
    shape = sources[0].shape
    axis = axis_of(integer(node.options, "axis", 0), len(shape))
    moves, tables = [], []
    start = 0
    if len(result.shape) != len(shape):
        raise Unsupported(f"{shape_text(sources[0])} in, {shape_text(result)} out")
    for source in sources:
        require_types(source, result)
        if [*source.shape[:axis], 0, *source.shape[axis + 1 :]] != [
            *shape[:axis], 0, *shape[axis + 1 :]
        ]:  # fmt: skip
            raise Unsupported(f"{shape_text(sources[0])} and {shape_text(source)} on axis {axis}")
        if result.dtype == "int8":
            require_same_scale(source, result)
        if result.dtype == "uint8" and source.quantization != result.quantization:
            tables.append((source, start))
        else:
            moves.append(whole(source, result, axis, start))
        start += source.shape[axis]
    require_shape(result, (*shape[:axis], start, *shape[axis + 1 :]))
    scaled = tuple(_launch(source, result, axis, place, target) for source, place in tables)
    if not moves:
        return (Alternative("plain", scaled),)
    alternatives = moved(moves, target)
    if not scaled:
        return alternatives
    return tuple(Alternative(each.name, (*each.launches, *scaled)) for each in alternatives)


def _launch(source: Tensor, result: Tensor, axis: int, start: int, target: Target) -> Launch:
    inner = math.prod(source.shape[axis + 1 :])
    elements = math.prod(source.shape)
    tiling = by_elements(elements, target)
    return launch_over(
        "concatenation",
        "concatenation_quant8",
        tiling,
        {
            "input": source,
            "output": result,
            "table": _table(source, result),
            "row": source.shape[axis] * inner,
            "output_row": result.shape[axis] * inner,
            "start": start * inner,
            "elements": elements,
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
