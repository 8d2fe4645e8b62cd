# SPDX-License-Identifier: Apache-2.0
"""CONCATENATION: tensors side by side along an axis; uint8 ones of other scales by tables."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import require_no_activation
from delegate.ops._checks.indices import axis_of
from delegate.ops._checks.node import inputs_of, integer, output_of
from delegate.ops._checks.shapes import shape_text
from delegate.ops._launches.copy import (
    Move,
    moved,
    require_same_scale,
    require_shape,
    require_types,
)
from delegate.ops._launches.parts import whole
from delegate.ops._launches.tiles import by_elements, launch_over
from delegate.ops._registry import lowers
from delegate.target import Target


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """An input of another scale than the output's."""

    source: Tensor
    table: Constant  # the output of each value
    start: int  # its place along the axis


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """A checked concatenation."""

    result: Tensor
    axis: int
    moves: tuple[Move, ...]  # of the inputs that have the output's scale
    scaled: tuple[Scaled, ...]  # the other inputs


@lowers("CONCATENATION")
def lower_concatenation(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Join tensors whose other dimensions are equal.

    Shapes:
        inputs (..., n_i, ...) -> output (..., sum of n_i, ...)
    Raises:
        Unsupported: other dimensions that differ, int8 inputs of other scales, an activation.
    Source: tflite/kernels/concatenation.cc, internal/reference/concatenation.h
    """
    return alternatives(decode(node), target)


def decode(node: Node) -> Join:
    """Return where a node's inputs go, checked.

    Raises:
        Unsupported: see `lower_concatenation`.
    """
    sources, _ = inputs_of(node.inputs, max(1, len(node.inputs)))
    result = output_of(node.outputs)
    require_no_activation(node)
    shape = sources[0].shape
    axis = axis_of(integer(node.options, "axis", 0), len(shape))
    moves, scaled = [], []
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
            scaled.append((source, start))
        else:
            moves.append(whole(source, result, axis, start))
        start += source.shape[axis]
    require_shape(result, (*shape[:axis], start, *shape[axis + 1 :]))
    tables = tuple(Scaled(source, _table(source, result), place) for source, place in scaled)
    return Join(result, axis, tuple(moves), tables)


def alternatives(join: Join, target: Target) -> tuple[Alternative, ...]:
    """Return the ways to move what only moves, each with the launches of the other inputs."""
    launches = tuple(_launch(join, each, target) for each in join.scaled)
    if not join.moves:
        return (Alternative("plain", launches),)
    moves = moved(join.moves, target)
    if not launches:
        return moves
    return tuple(Alternative(each.name, (*each.launches, *launches)) for each in moves)


def _launch(join: Join, scaled: Scaled, target: Target) -> Launch:
    source, axis = scaled.source, join.axis
    inner = math.prod(source.shape[axis + 1 :])
    elements = math.prod(source.shape)
    tiling = by_elements(elements, target)
    return launch_over(
        "concatenation",
        "concatenation_quant8",
        tiling,
        {
            "input": source,
            "output": join.result,
            "table": scaled.table,
            "row": source.shape[axis] * inner,
            "output_row": join.result.shape[axis] * inner,
            "start": scaled.start * inner,
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
