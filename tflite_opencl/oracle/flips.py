# SPDX-License-Identifier: Apache-2.0
"""Error bounds of hybrid LSTMs and RNNs for values that may round either way.

The state is quantised to int8 at each step. If a value is so close to the midpoint of two
integers that equally valid floats round differently, later results differ by a whole quantum. So
the node is computed here in float64, and again for each value that close, rounded the other
way: the difference is the bound. If no value is close to a midpoint, it is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Node, Tensor
from tflite_opencl.oracle.values import Arrays

Doubles = NDArray[np.float64]
# A direction: its inputs as those of a unidirectional node, then the auxiliary input's weights; the
# sign of its steps; the node inputs that it reads.
Part = tuple[list[Tensor | None], int, list[int]]
# Distances of values of at most 1 between two ways to compute a step, and of positions on a
# row's scale, whose factor is rounded.
_VALUE, _PLACE = 5e-7, 3e-5
_NORMALISATION = 1e-8  # TFLite's epsilon of the variance


def off_by_flips(node: Node, sets: Sequence[Arrays]) -> list[list[Doubles]]:
    """Return the error of each output for input sets that one run processes in sequence.

    Source of the arithmetic: tflite/kernels/lstm_eval.cc, internal/kernel_utils.cc
    """
    by_direction = [_off(node, part, sets) for part in _parts(node)]
    if node.options.get("merge_outputs"):
        by_direction = [[np.concatenate(of_set, -1) for of_set in zip(*by_direction, strict=True)]]
    return [[*of_set] for of_set in zip(*by_direction, strict=True)]


def _off(node: Node, part: Part, sets: Sequence[Arrays]) -> list[Doubles]:
    plain = _Run(node, part)
    outputs = plain.outputs(sets)
    found = [np.zeros(each.shape) for each in outputs]
    for place in plain.near:
        others = _Run(node, part, place).outputs(sets)
        for off, one, other in zip(found, outputs, others, strict=True):
            # Twice, because the other of two close values may be in this one's place.
            off += 2 * np.abs(one - other)
    return found


def _parts(node: Node) -> list[Part]:
    """Return a node's directions."""
    of = node.inputs
    if node.op == "BIDIRECTIONAL_SEQUENCE_LSTM":
        both = [*of[:18], *of[35:37]], [of[0], *of[18:35], *of[37:39]]
        is_linked = any(each is not None for each in of[40:])
        read = [0, 1] if is_linked else [0]
        backward = [1] if of[39] is not None and not is_linked else read
        none = [None] * 4
        return [
            ([*both[0], *none, *of[40:44]], 1, read),
            ([*both[1], *none, *of[44:48]], -1, backward),
        ]
    if node.op == "BIDIRECTIONAL_SEQUENCE_RNN":
        return [([*of[:5]], 1, [0]), ([of[0], *of[5:9]], -1, [0])]
    return [([*of], 1, [0])]


class _Run:
    """One direction from its start; the value at `flipped` is rounded the other way."""

    def __init__(self, node: Node, part: Part, flipped: tuple[int, int] | None = None) -> None:
        inputs, self._sign, self._read = part
        self.near: list[tuple[int, int]] = []  # rows, and indices in them
        self._flipped, self._rows = flipped, 0
        self._is_asymmetric = bool(node.options.get("asymmetric_quantize_inputs"))
        self._is_time_major = bool(node.options.get("time_major"))
        made = _RnnCell if "RNN" in node.op else _Lstm
        self._step = made(inputs, node.options, self)

    def outputs(self, sets: Sequence[Arrays]) -> list[Doubles]:
        """Return the output of each input set."""
        read = self._read
        return [self._output([each[at].astype(np.float64) for at in read]) for each in sets]

    def _output(self, values: list[Doubles]) -> Doubles:
        if values[0].ndim == 2:
            return self._step.step(*values)
        axis = 0 if self._is_time_major else 1
        steps = zip(*(np.moveaxis(each, axis, 0)[:: self._sign] for each in values), strict=True)
        return np.stack([self._step.step(*each) for each in steps][:: self._sign], axis)

    def int8(self, floats: Doubles, is_given: bool = False) -> Doubles:
        """Quantise rows to int8 and back; `is_given`: the floats are inputs, not computed."""
        low = np.minimum(floats.min(-1, keepdims=True), 0)
        high = np.maximum(floats.max(-1, keepdims=True), 0)
        scale = (high - low) / 255 if self._is_asymmetric else np.maximum(-low, high) / 127
        scale = np.where(scale > 0, scale, 1)
        places = floats / scale
        whole = np.trunc(places + np.copysign(0.5, places))
        beyond = places - np.trunc(places)
        is_near = np.abs(np.abs(beyond) - 0.5) < _VALUE / scale + _PLACE
        if self._flipped is None and not is_given:
            self.near += [(self._rows, int(at)) for at in np.flatnonzero(is_near)]
        elif self._flipped is not None and self._flipped[0] == self._rows:
            at = np.unravel_index(self._flipped[1], whole.shape)
            whole[at] += np.sign(places[at] - whole[at]) or 1
        self._rows += 1
        return np.asarray(whole * scale)


def _real(tensor: Tensor | None) -> Doubles:
    """Return a constant's values; 0 if it is omitted."""
    if tensor is None or tensor.data is None:
        return np.zeros(1)
    values = tensor.data.astype(np.float64)
    return values * tensor.quantization.scale[0] if tensor.quantization else values


def _zeros(tensor: Tensor | None) -> Doubles:
    assert tensor is not None
    return np.zeros(tensor.shape)


class _Lstm:
    def __init__(self, inputs: list[Tensor | None], options: Mapping[str, Any], run: _Run) -> None:
        of = [*inputs, *[None] * (28 - len(inputs))]
        self._run = run
        self._first = 0 if of[1] is not None else 1
        self._weights, self._recurrent, self._biases, self._norms, self._linked = (
            [_real(each) for each in of[at : at + 4]] for at in (1, 5, 12, 20, 24)
        )
        self._peepholes = [_real(each) for each in (of[9], of[10], None, of[11])]
        self._is_normalised, self._is_projected = of[21] is not None, of[16] is not None
        self._projection, self._projection_bias = _real(of[16]), _real(of[17])
        self._clips = [options[name] or np.inf for name in ("cell_clip", "proj_clip")]
        self._is_tanh = options["fused_activation_function"] == "TANH"
        self._hidden, self._cell = _zeros(of[18]), _zeros(of[19])

    def _function(self, values: Doubles) -> Doubles:
        return np.asarray(np.tanh(values) if self._is_tanh else np.maximum(values, 0))

    def _gate(self, gate: int, rows: Sequence[Doubles], hidden: Doubles) -> Doubles:
        sums = hidden @ self._recurrent[gate].T
        for source, weights in zip(rows, (self._weights, self._linked), strict=False):
            sums = sums + source @ weights[gate].T
        sums = sums + self._peepholes[gate] * self._cell
        if self._is_normalised:
            deviation = np.sqrt(sums.var(-1, keepdims=True) + _NORMALISATION)
            sums = (sums - sums.mean(-1, keepdims=True)) / deviation * self._norms[gate]
        return np.asarray(sums + self._biases[gate])

    def step(self, *sources: Doubles) -> Doubles:
        """Return the output of one step for these rows."""
        rows = [self._run.int8(each, is_given=True) for each in sources]
        hidden = self._run.int8(self._hidden)
        gates = [self._gate(at, rows, hidden) for at in range(self._first, 3)]
        forget, fresh = (_logistic(each) for each in (gates[-2], gates[0]))
        fresh = fresh if len(gates) == 3 else 1 - forget
        now = forget * self._cell + fresh * self._function(gates[-1])
        self._cell = np.clip(now, -self._clips[0], self._clips[0])
        self._hidden = _logistic(self._gate(3, rows, hidden)) * self._function(self._cell)
        if self._is_projected:
            made = self._run.int8(self._hidden) @ self._projection.T + self._projection_bias
            self._hidden = np.clip(made, -self._clips[1], self._clips[1])
        return self._hidden


def _logistic(values: Doubles) -> Doubles:
    return np.asarray(1 / (1 + np.exp(-values)))


class _RnnCell:
    def __init__(self, inputs: list[Tensor | None], _: Mapping[str, Any], run: _Run) -> None:
        self._run = run
        self._weights, self._recurrent, self._bias = map(_real, inputs[1:4])
        self._hidden = _zeros(inputs[4])

    def step(self, source: Doubles) -> Doubles:
        """Return the output of one step for these rows, with TANH."""
        rows, hidden = self._run.int8(source, is_given=True), self._run.int8(self._hidden)
        self._hidden = np.tanh(rows @ self._weights.T + hidden @ self._recurrent.T + self._bias)
        return self._hidden
