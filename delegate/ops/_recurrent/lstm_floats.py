# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of float LSTMs, with float32 weights, or hybrid with int8 weights."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Params
from delegate.ops._checks.activations import activation_of
from delegate.ops._checks.node import require_constant
from delegate.ops._numbers import bits
from delegate.ops._recurrent.lstm_launches import Arithmetic
from delegate.ops._recurrent.lstm_records import Lstm, clip_of, require_types, stacked
from delegate.ops._recurrent.steps import constant, hybrid_numbers, is_asymmetric, only_scale
from delegate.target import Target

# TFLite does not support NONE: the cell's output is then left unchanged.
_CLAMPS = {"RELU": (0.0, math.inf), "RELU6": (0.0, 6.0)}


def float_arithmetic(node: Node, lstm: Lstm, target: Target) -> Arithmetic:
    """Return the fields for float32, with float32 or int8 weights.

    Raises:
        Unsupported: other types, an unknown activation, weights that the calling TFLite multiplies
            wrongly.
    Source: tflite/kernels/lstm_eval.cc EvalFloat, EvalHybrid
    """
    is_hybrid = lstm.weights[0].dtype == "int8"
    vectors = (*lstm.biases, *lstm.norms, lstm.projection_bias)
    activations = (
        lstm.source,
        lstm.auxiliary,
        lstm.hidden,
        lstm.next_hidden,
        lstm.cell,
        lstm.next_cell,
        lstm.result.tensor,
    )
    linked = lstm.auxiliary_weights
    matrices = (*lstm.weights, *linked, *lstm.recurrent, *lstm.peepholes, lstm.projection)
    kind = "int8" if is_hybrid else "float32"
    require_types(lstm, [((*vectors, *activations), "float32"), (matrices, kind)])
    activation = activation_of(node)
    if activation != "TANH" and activation not in _CLAMPS:
        raise Unsupported(f"fused activation {activation}: only TANH, {', '.join(_CLAMPS)}")
    low, high = _CLAMPS.get(str(activation), (0.0, 0.0))
    biases = stacked(lstm.biases, "biases")
    weights = [stacked(each, "weights") for each in (lstm.weights, linked) if each]
    sums: Params = {
        "weights": constant(weights[0] if is_hybrid else np.concatenate(weights, -1)),
        "recurrent": constant(stacked(lstm.recurrent, "recurrent weights")),
        "biases": constant(np.zeros_like(biases) if lstm.norms else biases),
        "peepholes": constant(_peepholes(lstm)),
        **({} if is_hybrid else {"own_depth": lstm.depth}),
    }
    cells: Params = {
        "peepholes": sums["peepholes"],
        "cell_clip": bits(clip_of(node, "cell_clip") or math.inf),
        "output_min": bits(low),
        "output_max": bits(high),
    }
    if lstm.norms:
        cells["coefficients"] = constant(stacked(lstm.norms, "coefficients of normalisation"))
        cells["norm_biases"] = constant(biases)
    asymmetric = is_asymmetric(node)
    projection = _projection(node, lstm)
    if is_hybrid:
        sums["numbers"] = constant(_numbers(lstm, asymmetric, target))
        if linked:
            sums["auxiliary_weights"] = constant(weights[1])
            sums["auxiliary_depth"] = linked[0].shape[-1]
        if lstm.projection is not None:
            projection_numbers = hybrid_numbers(lstm.projection, asymmetric, target)
            projection["numbers"] = constant(projection_numbers)
    family = "hybrid" if is_hybrid else "float"
    return Arithmetic(family, sums, cells, projection, activation == "TANH", asymmetric)


def _numbers(lstm: Lstm, asymmetric: bool, target: Target) -> NDArray[np.int32]:
    """Return the field `numbers`: (gates, cells, 4), or 6 with an auxiliary input."""
    matrices = lstm.weights, lstm.recurrent, lstm.auxiliary_weights
    numbers = [
        np.stack([hybrid_numbers(each, asymmetric, target) for each in tensors])
        for tensors in matrices
        if tensors
    ]
    return np.concatenate(numbers, axis=-1)


def _peepholes(lstm: Lstm) -> NDArray[np.float32]:
    """Return the field `peepholes`: (gates, cells), zeros where a gate has none."""
    peepholes = np.zeros((len(lstm.biases), lstm.cells), np.float32)
    for gate, peephole in enumerate(lstm.peepholes):
        if peephole is not None:
            peepholes[gate] = _floats(peephole)
    return peepholes


def _floats(peephole: Tensor) -> NDArray[np.float32]:
    """Return peephole weights, dequantised if they are int8."""
    values = require_constant(peephole, "peephole weights")
    if peephole.dtype == "float32":
        return np.asarray(values)
    return np.asarray(values.astype(np.float32) * np.float32(only_scale(peephole)))


def _projection(node: Node, lstm: Lstm) -> Params:
    clip = clip_of(node, "proj_clip") or math.inf
    if lstm.projection is None:
        return {}
    bias = np.zeros(lstm.width, np.float32)
    if lstm.projection_bias is not None:
        bias = np.asarray(require_constant(lstm.projection_bias, "the bias"))
    return {
        "weights": constant(require_constant(lstm.projection, "weights")),
        "bias": constant(bias),
        "output_min": bits(-clip),
        "output_max": bits(clip),
    }
