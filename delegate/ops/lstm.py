# SPDX-License-Identifier: Apache-2.0
"""UNIDIRECTIONAL_SEQUENCE_LSTM and LSTM: a launch a step, or two where outputs are projected.

All steps are launches of one program: what a step gives stays in the output, where the next finds
it, and the cell is written in place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch, Params, temporary
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import activation_of
from delegate.ops._checks.lstm import Lstm, decoded, require_types, stacked
from delegate.ops._checks.node import require_constant
from delegate.ops._launches.tiles import MOST_ROUNDS, by_work, launch_over
from delegate.ops._numbers import bits
from delegate.ops._numbers.fixed_point import wrap_int32
from delegate.ops._numbers.int16_functions import logistic_table, tanh_table
from delegate.ops._registry import lowers
from delegate.target import Target

_MOST_STEPS = 1000  # launches of a program
_TABLE_BYTES = 2 << 16
# Without a function TFLite leaves what a cell shows as it was.
_CLAMPS = {"RELU": (0.0, math.inf), "RELU6": (0.0, 6.0)}


@dataclass(frozen=True, slots=True, eq=False)
class _Arithmetic:
    """What differs by the tensors' types."""

    family: str
    step: Params  # fields of the kernel of a step
    projection: Params  # fields of the kernel that projects
    between: str  # the type of what is projected
    is_tanh: bool = True


@lowers("UNIDIRECTIONAL_SEQUENCE_LSTM", "LSTM")
def lower_lstm(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Compute an LSTM over all steps of a sequence, or over the one step of an LSTM node.

    Shapes:
        input (rows, steps, depth), steps first if time_major, or (rows, depth) -> output with the
        last size replaced; the state's tensors are (rows, width) and (rows, cells)
    Raises:
        Unsupported: other types than int8 with int16 cells and float32, layer normalisation, the
            basic kernel, computed weights, shapes that do not fit, long sequences.
    Source: tflite/kernels/lstm.cc, unidirectional_sequence_lstm.cc, lstm_eval.cc
    """
    if node.options.get("kernel_type", "FULL") != "FULL":
        raise Unsupported("the basic kernel is not implemented")
    lstm = decoded(node)
    if lstm.steps > _MOST_STEPS:
        raise Unsupported(f"{lstm.steps} steps: more than {_MOST_STEPS}")
    most = max(4 * (lstm.depth + lstm.width), lstm.cells)
    if most > MOST_ROUNDS:
        raise Unsupported(f"{most} products a cell: more than {MOST_ROUNDS}")
    kind = lstm.source.dtype, lstm.weights[0].dtype
    if kind == ("int8", "int8"):
        own = _of_integers(node, lstm)
    elif kind == ("float32", "float32"):
        own = _of_floats(node, lstm)
    else:
        raise Unsupported(f"{kind[0]} with {kind[1]} weights: float32, or int8 with int16 cells")
    return (Alternative("plain", tuple(_launches(lstm, own, target))),)


def _launches(lstm: Lstm, own: _Arithmetic, target: Target) -> Iterator[Launch]:
    """Yield the launches of all steps."""
    items, width = lstm.rows * lstm.cells, lstm.rows * lstm.width
    between = temporary("before the projection", (lstm.rows, lstm.cells), own.between)
    (in_step, in_row), (step, row) = lstm.stride(lstm.depth), lstm.stride(lstm.width)
    defines: dict[str, int | str] = {
        "GATES": len(lstm.weights),
        "IS_PROJECTED": int(lstm.projection is not None),
        "IS_TANH": int(own.is_tanh),
    }
    sizes: Params = {"depth": lstm.depth, "cells": lstm.cells, "width": lstm.width}
    cost = len(lstm.weights) * (lstm.depth + lstm.width)
    tiling = by_work(items, cost, target, max(1, MOST_ROUNDS // (2 * cost)))
    of_projection = by_work(width, lstm.cells, target, max(1, MOST_ROUNDS // (2 * lstm.cells)))
    for at in range(lstm.steps):
        before: Params = {
            "input": lstm.source,
            "input_at": at * in_step,
            "input_row": in_row,
            "hidden": lstm.result if at else lstm.hidden,
            "hidden_at": (at - 1) * step if at else 0,
            "hidden_row": row if at else lstm.width,
            "cell": lstm.next_cell if at else lstm.cell,
            "cell_output": lstm.next_cell,
        }
        after: Params = {
            "output": lstm.result,
            "output_at": at * step,
            "output_row": row,
            "hidden_output": lstm.next_hidden,
        }
        if lstm.projection is None:
            fields = before | after | sizes | own.step | {"items": items}
            yield launch_over("lstm", f"lstm_{own.family}", tiling, fields, defines)
            continue
        inner: Params = {"output": between, "output_at": 0, "output_row": lstm.cells}
        fields = before | inner | sizes | own.step | {"items": items}
        yield launch_over("lstm", f"lstm_{own.family}", tiling, fields, defines)
        fields = {"input": between} | after | sizes | own.projection | {"items": width}
        yield launch_over("lstm", f"lstm_projection_{own.family}", of_projection, fields)


def _constant(array: NDArray[np.generic]) -> Constant:
    return Constant(array.nbytes, lambda: array)


def _clip(node: Node, name: str) -> float:
    """Return a bound of absolute values; 0: none."""
    value = node.options.get(name, 0.0)
    if not isinstance(value, float | int) or not 0 <= value < math.inf:
        raise Unsupported(f"{name} {value!r}: no number from 0 on")
    return float(value)


def _of_floats(node: Node, lstm: Lstm) -> _Arithmetic:
    constants = (*lstm.weights, *lstm.recurrent, *lstm.biases, *lstm.peepholes)
    ends = (lstm.hidden, lstm.next_hidden, lstm.cell, lstm.next_cell, lstm.result)
    every = (*constants, *ends, lstm.projection, lstm.projection_bias)
    require_types(lstm, [(every, "float32")])
    activation = activation_of(node)
    if activation != "TANH" and activation not in _CLAMPS:
        raise Unsupported(f"fused activation {activation}: only TANH, {', '.join(_CLAMPS)}")
    low, high = _CLAMPS.get(str(activation), (0.0, 0.0))
    numbers = np.zeros((len(lstm.biases), lstm.cells, 2), np.float32)
    numbers[..., 0] = stacked(lstm.biases, "biases")
    for gate, peephole in enumerate(lstm.peepholes):
        if peephole is not None:
            numbers[gate, :, 1] = require_constant(peephole, "peephole weights")
    step: Params = {
        "weights": _constant(stacked(lstm.weights, "weights")),
        "recurrent": _constant(stacked(lstm.recurrent, "recurrent weights")),
        "numbers": _constant(numbers),
        "cell_clip": bits(_clip(node, "cell_clip") or math.inf),
        "output_min": bits(low),
        "output_max": bits(high),
    }
    projection: Params = {}
    clip = _clip(node, "proj_clip") or math.inf
    if lstm.projection is not None:
        bias = np.zeros(lstm.width, np.float32)
        if lstm.projection_bias is not None:
            bias = np.asarray(require_constant(lstm.projection_bias, "the bias"))
        projection = {
            "weights": _constant(require_constant(lstm.projection, "weights")),
            "bias": _constant(bias),
            "output_min": bits(-clip),
            "output_max": bits(clip),
        }
    return _Arithmetic("float", step, projection, "float32", activation == "TANH")


def _of_integers(node: Node, lstm: Lstm) -> _Arithmetic:
    """Return the fields of int8 with int16 cells.

    Source: tflite/kernels/unidirectional_sequence_lstm.cc PopulateQuantizedLstmParams8x8_16,
    lstm_eval.cc. Scales' quotients are floats, and most sums' scale is 2^-12.
    """
    ends = (lstm.hidden, lstm.next_hidden, lstm.result)
    bytes_ = (*lstm.weights, *lstm.recurrent, lstm.projection, *ends)
    words = (*lstm.peepholes, lstm.cell, lstm.next_cell)
    longs = (*lstm.biases, lstm.projection_bias)
    require_types(lstm, [(bytes_, "int8"), (words, "int16"), (longs, "int32")])
    if len(node.intermediates) != 5 or node.intermediates[4] is None:
        raise Unsupported(f"{len(node.intermediates)} intermediate tensors: 5 are needed")
    if activation_of(node) != "TANH":
        raise Unsupported(f"fused activation {activation_of(node)}: only TANH")
    scale, zero = quantized.per_tensor(node.intermediates[4], ("int8",))
    cell_scale = quantized.per_tensor(lstm.cell, ("int16",))[0]
    power = math.frexp(cell_scale)[1] - 1
    if math.ldexp(1.0, power) != cell_scale or not -15 <= power <= -9:
        raise Unsupported(f"cells of scale {cell_scale}: no power of two from 2^-15 to 2^-9")
    cell_clip = _steps(_clip(node, "cell_clip"), cell_scale, "int16")
    multiplier, shift = _multiplier(2.0**-15 / scale * 2.0**-15)
    sign = 1 if lstm.projection is None else -1
    step: Params = {
        "weights": _constant(stacked(lstm.weights, "weights")),
        "recurrent": _constant(stacked(lstm.recurrent, "recurrent weights")),
        "numbers": _constant(_numbers(lstm, power)),
        "logistic": Constant(_TABLE_BYTES, logistic_table),
        "tanh": Constant(_TABLE_BYTES, lambda: tanh_table(3)),
        "cell_tanh": Constant(_TABLE_BYTES, lambda: tanh_table(15 + power)),
        "update_shift": 30 + power,
        "cell_min": -cell_clip if cell_clip else -(2**15),
        "cell_max": cell_clip or 2**15 - 1,
        "hidden_multiplier": multiplier,
        "hidden_shift": shift,
        "hidden_zero": sign * zero,
    }
    return _Arithmetic("quant8", step, _projection(node, lstm, scale, zero), "int8")


def _numbers(lstm: Lstm, cell_power: int) -> NDArray[np.int32]:
    """Return what kernels call `numbers`: (gates, cells, 9)."""
    in_scale, in_zero = quantized.per_tensor(lstm.source, ("int8",))
    out_scale, out_zero = quantized.per_tensor(lstm.hidden, ("int8",))
    numbers = np.zeros((len(lstm.weights), lstm.cells, 9), np.int64)
    for gate, (weights, recurrent, bias) in enumerate(
        zip(lstm.weights, lstm.recurrent, lstm.biases, strict=True)
    ):
        own = numbers[gate]
        values = require_constant(weights, "weights").sum(1, dtype=np.int64)
        own[:, 0] = require_constant(bias, "biases") - in_zero * values
        own[:, 1:3] = _multiplier(_quotient(_scale(weights), in_scale))
        values = require_constant(recurrent, "recurrent weights").sum(1, dtype=np.int64)
        own[:, 3] = -out_zero * values
        own[:, 4:6] = _multiplier(_quotient(_scale(recurrent), out_scale))
        peephole = lstm.peepholes[gate]
        if peephole is not None:
            own[:, 6] = require_constant(peephole, "peephole weights")
            own[:, 7:9] = _multiplier(2.0**cell_power * _scale(peephole) * 2.0**12)
    return wrap_int32(numbers)


def _projection(node: Node, lstm: Lstm, scale: float, zero: int) -> Params:
    if lstm.projection is None:
        return {}
    weights = require_constant(lstm.projection, "weights")
    out_scale, out_zero = quantized.per_tensor(lstm.hidden, ("int8",))
    bias = zero * weights.sum(1, dtype=np.int64)
    if lstm.projection_bias is not None:
        bias += require_constant(lstm.projection_bias, "the bias")
    multiplier, shift = _multiplier(_quotient(_scale(lstm.projection), scale, out_scale))
    clip = _steps(_clip(node, "proj_clip"), out_scale, "int8")
    return {
        "weights": _constant(weights),
        "bias": _constant(wrap_int32(bias)),
        "output_multiplier": multiplier,
        "output_shift": shift,
        "output_zero": out_zero,
        "output_min": -clip if clip else -128,
        "output_max": clip or 127,
    }


def _quotient(a: float, b: float, divisor: float = 2.0**-12) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(a) * np.float32(b) / np.float32(divisor))


def _multiplier(real: float) -> tuple[int, int]:
    with np.errstate(over="ignore"):
        return quantized.multiplier_of(float(np.float32(real)))


def _steps(clip: float, scale: float, dtype: str) -> int:
    """Return a clip in steps of a scale, truncated to the type as TFLite does; 0: none."""
    with np.errstate(over="ignore"):
        steps = float(np.float32(clip) / np.float32(scale))
    return int(min(steps, np.iinfo(dtype).max))


def _scale(tensor: Tensor) -> float:
    """Return the scale of constants that have one, and no zero point."""
    scale, zero = quantized.per_tensor(tensor, quantized.QUANT)
    if zero:
        raise Unsupported(f"weights with zero point {zero}: it must be 0")
    return scale
