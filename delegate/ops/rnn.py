# SPDX-License-Identifier: Apache-2.0
"""RNN, UNIDIRECTIONAL_SEQUENCE_RNN and BIDIRECTIONAL_SEQUENCE_RNN: a launch per step.

Hybrid ones have a second launch per step, and one that quantises the inputs of all steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.float_results import Growth, roundings
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Defines, Launch, Params
from delegate.ops._checks.activations import activation_of, applied
from delegate.ops._checks.node import elements_of, inputs_of, require_constant, shape_text
from delegate.ops._convolution.hybrid_rounding import depends_on_dot_products
from delegate.ops._launches.tiles import MOST_ROUNDS, by_work, launch_over
from delegate.ops._recurrent.steps import (
    HybridInput,
    StepOutput,
    Steps,
    concatenated,
    constant,
    hybrid_numbers,
    input_of,
    int8_rows,
    is_asymmetric,
    results_of,
    rounding,
    steps_of,
)
from delegate.ops._registry import lowers
from delegate.target import Target


@dataclass(frozen=True, slots=True, eq=False)
class _Rnn:
    """An RNN over the steps of several rows, in one direction."""

    source: Tensor  # (rows, steps, depth), or (steps, rows, depth), or (rows, depth)
    auxiliary: Tensor | None  # a second input of another depth, whose products are added
    weights: Tensor  # (units, depth)
    linked: Tensor | None  # weights of the auxiliary input (units, its depth)
    recurrent: Tensor  # (units, units)
    bias: Tensor  # (units,)
    hidden: Tensor  # (rows, units): the previous step's output
    next_hidden: Tensor
    result: StepOutput
    steps: Steps

    @property
    def depth(self) -> int:
        """Elements of an input row, the auxiliary input included."""
        return self.weights.shape[-1] + (self.linked.shape[-1] if self.linked else 0)

    @property
    def units(self) -> int:
        """Elements of an output row."""
        return self.weights.shape[0]


_FLOATS = roundings(Growth.STEADY, 8)


@lowers("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN", floats=_FLOATS)
def lower_rnn(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Compute an RNN over all steps of a sequence, or the single step of an RNN node.

    Shapes:
        input (rows, steps, depth), steps first if time_major, or (rows, depth), weights (units,
        depth), recurrent weights (units, units), bias (units,), state (rows, units) -> output
        with the last size replaced. A bidirectional node has everything but the input twice, and
        concatenates its outputs if merge_outputs.
    Raises:
        Unsupported: types other than float32, and float32 with int8 weights; an auxiliary input
            that TFLite reads wrongly, non-constant weights, mismatched shapes, long sequences.
    Source: tflite/kernels/basic_rnn.cc, unidirectional_sequence_rnn.cc,
    bidirectional_sequence_rnn.cc, internal/kernel_utils.cc
    """
    launches: list[Launch] = []
    rnns = _parse(node)
    if rnns[0].weights.dtype == "int8" and len(rnns) > 1 and rnns[0].steps.is_time_major:
        # NOTE: TFLite's loop over the steps is nested in another loop over the steps.
        raise Unsupported("time_major: TFLite repeats all steps at each step")
    inputs: dict[Tensor, HybridInput] = {}
    pair = None
    for rnn in rnns:
        if rnn.weights.dtype != rnns[0].weights.dtype:
            raise Unsupported("weights of two types")
        source = rnn.source
        if rnn.weights.dtype == "int8" and source not in inputs:
            inputs[source] = input_of(source, rnn.steps, is_asymmetric(node), target)
            launches += inputs[source].rows.launches
        if rnn.auxiliary is not None:
            if pair is None:
                pair = concatenated(source, rnn.auxiliary, target)
                launches += pair[1]
            source = pair[0]
        launches += _launches(node, replace(rnn, source=source), inputs.get(source), target)
    return (Alternative("plain", tuple(launches)),)


def _parse(node: Node) -> list[_Rnn]:
    is_both = node.op == "BIDIRECTIONAL_SEQUENCE_RNN"
    (source, *rest), optional = inputs_of(node.inputs, 9 if is_both else 5, 3 if is_both else 0)
    auxiliary, *linked = optional or [None, None]
    backward = source
    if any(each is not None for each in linked):
        _check_auxiliary(node, optional, rest[0])
    elif auxiliary is not None:
        # Without weights of its own it is the input of the second direction. NOTE: unless
        # time_major, TFLite reads the first input all the same.
        backward, auxiliary = auxiliary if node.options.get("time_major") else source, None
    steps = steps_of(node, source, is_sequence=node.op != "RNN")
    groups = [rest[at : at + 4] for at in range(0, len(rest), 4)]
    for weights, recurrent, *_ in groups:
        if len(weights.shape) != 2 or recurrent.shape != (weights.shape[0],) * 2:
            shapes = f"{shape_text(weights)}, {shape_text(recurrent)}"
            raise Unsupported(f"weights {shapes}: they do not fit")
    results, states = results_of(node, steps, [group[0].shape[0] for group in groups], len(groups))
    rnns = []
    for tensors, link, next_hidden, result in zip(groups, linked, states, results, strict=True):
        weights, recurrent, bias, hidden = tensors
        constants = weights, link, recurrent, bias
        rnn = _Rnn(source, auxiliary, *constants, hidden, next_hidden, result, steps)
        steps, source = steps.backward(), backward
        _check(rnn)
        rnns.append(rnn)
    return rnns


def _check_auxiliary(node: Node, optional: Sequence[Tensor | None], weights: Tensor) -> None:
    if None in optional:
        raise Unsupported("an auxiliary input and weights of both directions need each other")
    if weights.dtype == "int8" or node.options.get("time_major"):
        # NOTE: TFLite uses wrong scales for int8 weights, and wrong rows if time_major.
        raise Unsupported(
            "weights of an auxiliary input: TFLite is wrong where steps come first or they are int8"
        )


def _check(rnn: _Rnn) -> None:
    kind = rnn.weights.dtype
    floats = (rnn.source, rnn.bias, rnn.hidden, rnn.next_hidden, rnn.result.tensor)
    types = {each.dtype for each in floats}
    if types != {"float32"} or kind not in ("float32", "int8") or kind != rnn.recurrent.dtype:
        raise Unsupported(f"{rnn.source.dtype} with {kind} weights: float32 with float32 or int8")
    state = rnn.steps.rows, rnn.units
    if (rnn.bias.shape, rnn.hidden.shape, rnn.next_hidden.shape) != (state[1:], state, state):
        shapes = ", ".join(map(shape_text, (rnn.bias, rnn.hidden)))
        raise Unsupported(f"a bias and a state {shapes}: the others give {state}")
    if rnn.auxiliary is not None and rnn.linked is not None:
        aux, weights = rnn.auxiliary, rnn.linked
        expected = rnn.source.shape[:-1], (rnn.units, *aux.shape[-1:]), {"float32"}
        if (aux.shape[:-1], weights.shape, {aux.dtype, weights.dtype}) != expected:
            shapes = ", ".join(map(shape_text, (rnn.auxiliary, rnn.linked)))
            raise Unsupported(f"an auxiliary input and its weights {shapes}: they do not fit")
    input_shape = (*rnn.result.tensor.shape[:-1], rnn.weights.shape[-1])
    if rnn.source.shape != input_shape or min(rnn.depth, rnn.units) < 1:
        shapes = f"input {shape_text(rnn.source)}, weights {shape_text(rnn.weights)}"
        raise Unsupported(f"{shapes}: they do not fit")
    for tensor in (rnn.source, rnn.weights, rnn.result.tensor):
        elements_of(tensor)
    if rnn.depth + rnn.units > MOST_ROUNDS:
        raise Unsupported(f"{rnn.depth + rnn.units} products a unit: more than {MOST_ROUNDS}")


def _launches(
    node: Node, rnn: _Rnn, source: HybridInput | None, target: Target
) -> Iterator[Launch]:
    """Yield the launches of all steps; `source`: the quantised input of a hybrid node."""
    activation = activation_of(node)
    clamp, defines = applied("NONE" if activation == "TANH" else activation)
    defines = {**defines, "IS_TANH": int(activation == "TANH")}
    constants = [
        require_constant(each, "weights") for each in (rnn.weights, rnn.linked) if each is not None
    ]
    fields: Params = {
        "weights": constant(np.concatenate(constants, -1)),
        "recurrent": constant(require_constant(rnn.recurrent, "weights")),
        "bias": constant(require_constant(rnn.bias, "the bias")),
        "own_depth": rnn.weights.shape[-1],
        "depth": rnn.depth,
        "width": rnn.units,
        **clamp,
    }
    if source is None:
        yield from _float_steps(rnn, fields, target, defines)
        return
    asymmetric = is_asymmetric(node)
    matrices = rnn.weights, rnn.recurrent
    # Unless time_major, TFLite processes the rows one by one.
    rows = rnn.steps.rows if rnn.steps.is_time_major else 1
    for each in matrices:
        is_arm = target.rules.processor == "aarch64"
        if is_arm and depends_on_dot_products(rows, *each.shape[::-1]):
            raise Unsupported(f"hybrid: how sums of {rows} rows are rounded is the processor's")
    numbers = [hybrid_numbers(each, asymmetric, target) for each in matrices]
    fields["numbers"] = constant(np.concatenate(numbers, axis=-1))
    hidden = rnn.hidden
    for at in rnn.steps.order:
        hidden_rows = int8_rows(hidden, rnn.steps.rows, rnn.units, asymmetric, target)
        yield from hidden_rows.launches
        step = source.at(at, hidden_rows) | rnn.result.at(at, rnn.steps)
        yield _step(rnn, "rnn_hybrid", step | fields, target, {**defines, **rounding(target)})
        hidden = rnn.next_hidden


def _float_steps(rnn: _Rnn, fields: Params, target: Target, defines: Defines) -> Iterator[Launch]:
    in_step, in_row = rnn.steps.stride(rnn.depth)
    hidden: Params = {"hidden": rnn.hidden, "hidden_at": 0, "hidden_row": rnn.units}
    for at in rnn.steps.order:
        step: Params = {"input": rnn.source, "input_at": at * in_step, "input_row": in_row}
        step |= hidden | rnn.result.at(at, rnn.steps)
        yield _step(rnn, "rnn_float", step | fields, target, defines)
        hidden = rnn.result.hidden(at, rnn.steps)


def _step(rnn: _Rnn, kernel: str, fields: Params, target: Target, defines: Defines) -> Launch:
    items, work = rnn.steps.rows * rnn.units, rnn.depth + rnn.units
    tiling = by_work(items, work, target, max(1, MOST_ROUNDS // (2 * work)))
    fields = fields | {"hidden_output": rnn.next_hidden, "items": items}
    return launch_over("rnn", kernel, tiling, fields, defines)
