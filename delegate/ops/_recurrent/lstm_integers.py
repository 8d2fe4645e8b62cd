# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of int8 LSTMs with int16 cells: scales as multipliers, functions as tables."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Constant, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import activation_of
from delegate.ops._checks.node import require_constant
from delegate.ops._numbers.fixed_point import wrap_int32
from delegate.ops._numbers.int16_functions import logistic_table, tanh_table
from delegate.ops._recurrent.lstm_launches import Arithmetic
from delegate.ops._recurrent.lstm_records import Lstm, clip_of, require_types, stacked
from delegate.ops._recurrent.steps import constant, only_scale
from delegate.target import Target

_TABLE_BYTES = 2 << 16


def integer_arithmetic(node: Node, lstm: Lstm, target: Target) -> Arithmetic:
    """Return the fields for int8 with int16 cells.

    Raises:
        Unsupported: other types, invalid scales.

    Source: tflite/kernels/unidirectional_sequence_lstm.cc PopulateQuantizedLstmParams8x8_16,
    lstm_eval.cc. Scale ratios are float32.
    """
    activations = (lstm.hidden, lstm.next_hidden, lstm.result.tensor)
    int8s = (*lstm.weights, *lstm.recurrent, lstm.projection, *activations)
    int16s = (*lstm.peepholes, *lstm.norms, lstm.cell, lstm.next_cell)
    int32s = (*lstm.biases, lstm.projection_bias)
    require_types(lstm, [(int8s, "int8"), (int16s, "int16"), (int32s, "int32")])
    if len(node.intermediates) != 5 or node.intermediates[4] is None:
        raise Unsupported(f"{len(node.intermediates)} intermediate tensors: 5 are needed")
    if activation_of(node) != "TANH":
        raise Unsupported(f"fused activation {activation_of(node)}: only TANH")
    scale, zero = quantized.per_tensor(node.intermediates[4], ("int8",))
    cell_scale = quantized.per_tensor(lstm.cell, ("int16",))[0]
    power = math.frexp(cell_scale)[1] - 1
    if math.ldexp(1.0, power) != cell_scale or not -15 <= power <= -9:
        raise Unsupported(f"cells of scale {cell_scale}: no power of two from 2^-15 to 2^-9")
    cell_clip = _steps(clip_of(node, "cell_clip"), cell_scale, "int16")
    multiplier, shift = _multiplier(2.0**-15 / scale * 2.0**-15)
    sign = 1 if lstm.projection is None else -1
    sums: Params = {
        "weights": constant(stacked(lstm.weights, "weights")),
        "recurrent": constant(stacked(lstm.recurrent, "recurrent weights")),
        "numbers": constant(_numbers(lstm, power, _gate_scales(node, lstm))),
    }
    cells: Params = {
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
    if lstm.norms:
        cells |= {"numbers": sums["numbers"], "norms": constant(_norms(lstm))}
    projection = _projection(node, lstm, scale, zero)
    return Arithmetic("quant8", sums, cells, projection, wraps=target.rules.norm_products_wrap)


def _gate_scales(node: Node, lstm: Lstm) -> list[float]:
    """Return the scales of gate sums, which the file defines if they are normalised."""
    if not lstm.norms:
        return [2.0**-12] * len(lstm.weights)
    scales = []
    for tensor in node.intermediates[:4]:
        if tensor is None:
            raise Unsupported("a gate without an intermediate tensor: its scale is needed")
        scales.append(quantized.per_tensor(tensor, ("int16",))[0])
    return scales[-len(lstm.weights) :]


def _norms(lstm: Lstm) -> NDArray[np.int32]:
    """Return the field `norms`: (gates, cells, 5)."""
    norms = np.zeros((len(lstm.norms), lstm.cells, 5), np.int64)
    for row, tensor, bias in zip(norms, lstm.norms, lstm.biases, strict=True):
        scale = only_scale(tensor)
        row[:, 0] = require_constant(tensor, "coefficients of normalisation")
        row[:, 1] = require_constant(bias, "biases")
        multiplier, shift = quantized.multiplier_of(scale, most=16)
        row[:, 2:] = multiplier, shift + 12, max(1, int(np.float32(10_000) * np.float32(scale)))
    return wrap_int32(norms)


def _numbers(lstm: Lstm, cell_power: int, scales: list[float]) -> NDArray[np.int32]:
    """Return the field `numbers`: (gates, cells, 9); `scales`: of the gate sums."""
    in_scale, in_zero = quantized.per_tensor(lstm.source, ("int8",))
    out_scale, out_zero = quantized.per_tensor(lstm.hidden, ("int8",))
    numbers = np.zeros((len(lstm.weights), lstm.cells, 9), np.int64)
    for gate, (weights, recurrent, bias) in enumerate(
        zip(lstm.weights, lstm.recurrent, lstm.biases, strict=True)
    ):
        row = numbers[gate]
        weight_sums = require_constant(weights, "weights").sum(1, dtype=np.int64)
        # Normalised sums add their bias later.
        row[:, 0] = (0 if lstm.norms else require_constant(bias, "biases")) - in_zero * weight_sums
        row[:, 1:3] = _multiplier(_quotient(only_scale(weights), in_scale, scales[gate]))
        weight_sums = require_constant(recurrent, "recurrent weights").sum(1, dtype=np.int64)
        row[:, 3] = -out_zero * weight_sums
        row[:, 4:6] = _multiplier(_quotient(only_scale(recurrent), out_scale, scales[gate]))
        peephole = lstm.peepholes[gate]
        if peephole is not None:
            row[:, 6] = require_constant(peephole, "peephole weights")
            row[:, 7:9] = _multiplier(2.0**cell_power * only_scale(peephole) / scales[gate])
    return wrap_int32(numbers)


def _projection(node: Node, lstm: Lstm, scale: float, zero: int) -> Params:
    if lstm.projection is None:
        return {}
    weights = require_constant(lstm.projection, "weights")
    out_scale, out_zero = quantized.per_tensor(lstm.hidden, ("int8",))
    bias = zero * weights.sum(1, dtype=np.int64)
    if lstm.projection_bias is not None:
        bias += require_constant(lstm.projection_bias, "the bias")
    multiplier, shift = _multiplier(_quotient(only_scale(lstm.projection), scale, out_scale))
    clip = _steps(clip_of(node, "proj_clip"), out_scale, "int8")
    return {
        "weights": constant(weights),
        "bias": constant(wrap_int32(bias)),
        "output_multiplier": multiplier,
        "output_shift": shift,
        "output_zero": out_zero,
        "output_min": -clip if clip else -128,
        "output_max": clip or 127,
    }


def _quotient(a: float, b: float, divisor: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(a) * np.float32(b) / np.float32(divisor))


def _multiplier(real: float) -> tuple[int, int]:
    with np.errstate(over="ignore"):
        return quantized.multiplier_of(float(np.float32(real)))


def _steps(clip: float, scale: float, dtype: str) -> int:
    """Return a clipping bound in steps of the scale, saturated as in TFLite; 0: none."""
    with np.errstate(over="ignore"):
        steps = float(np.float32(clip) / np.float32(scale))
    return int(min(steps, np.iinfo(dtype).max))
