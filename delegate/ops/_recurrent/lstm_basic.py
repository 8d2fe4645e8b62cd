# SPDX-License-Identifier: Apache-2.0
"""The basic kernel of LSTM: one step with five inputs, which also outputs its gate sums."""

from __future__ import annotations

import math

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Defines, Launch, Params
from delegate.ops._checks.node import inputs_of, require_constant, require_floats, shape_text
from delegate.ops._launches.copy import Move, by_copies, insertion
from delegate.ops._launches.tiles import MOST_ROUNDS
from delegate.ops._numbers import bits
from delegate.ops._recurrent.lstm_launches import cells_of_step, launch_of_step
from delegate.ops._recurrent.steps import constant
from delegate.target import Target

_GATES = 4  # input, cell, forget and output


def basic(node: Node, target: Target) -> tuple[Launch, ...]:
    """Return the launches of a basic LSTM step.

    Shapes:
        input (rows, depth), previous output (rows, cells), weights (4 cells, depth + cells) of
        both, bias (4 cells,), cell (rows, cells)
        -> output, next cell, concatenated inputs, gate sums, next hidden state and next cell
    Raises:
        Unsupported: types other than float32, non-constant weights, mismatched shapes.
    Source: tflite/kernels/lstm.cc basic::Eval, internal/optimized/optimized_ops.h LstmCell
    """
    (source, hidden, weights, bias, cell), _ = inputs_of(node.inputs, 5)
    if source.dtype == "uint8":
        # NOTE: ties of the second rounding go up in ai-edge-litert on x86 with 256-bit vectors of
        # integers, and away from zero in tflite-runtime.
        raise Unsupported("the basic kernel of uint8: TFLite's rounding depends on the CPU")
    if len(node.outputs) != 6:
        raise Unsupported("states must be inputs and outputs")
    result, state, joined, sums, next_hidden, next_cell = node.outputs
    depth, cells = _check(node, [source, hidden, weights, bias, cell])
    both_weights = require_constant(weights, "weights")
    sizes: Params = {"own_depth": depth, "depth": depth, "cells": cells, "width": cells}
    no_peepholes = constant(np.zeros(_GATES * cells, np.float32))
    fields: Params = {
        **{"input": source, "input_at": 0, "input_row": depth},
        **{"hidden": hidden, "hidden_at": 0, "hidden_row": cells},
        **{"cell": cell, "output": sums, **sizes},
        "weights": constant(np.ascontiguousarray(both_weights[:, :depth])),
        "recurrent": constant(np.ascontiguousarray(both_weights[:, depth:])),
        "biases": constant(require_constant(bias, "biases")),
        "peepholes": no_peepholes,
    }
    cell_fields: Params = {
        **{"sums": sums, "cell": cell, "cell_output": state, **sizes},
        **{"output": result, "output_at": 0, "output_row": cells},
        **{"hidden_output": next_hidden, "peepholes": no_peepholes, "cell_clip": bits(math.inf)},
        **{"output_min": 0, "output_max": 0},
    }
    items = source.shape[0] * cells
    defines: Defines = {"GATES": _GATES, "IS_BASIC": 1}
    cell_defines: Defines = {**defines, "IS_PROJECTED": 0, "IS_TANH": 1}
    beside = [
        insertion(source, joined, 1, 0, depth),
        insertion(hidden, joined, 1, depth, cells),
    ]
    return (
        *_copies(beside, target),
        launch_of_step("lstm_sums_float", _GATES * items, depth + cells, fields, target, defines),
        cells_of_step(source.shape[0], cell_fields, target, cell_defines),
        *_copies([insertion(state, next_cell, 1, 0, cells)], target),
    )


def _copies(moves: list[Move], target: Target) -> tuple[Launch, ...]:
    return by_copies(moves, target)[0].launches


def _check(node: Node, inputs: list[Tensor]) -> tuple[int, int]:
    """Check types and shapes, and return the input depth and the number of cells."""
    require_floats(*inputs, *node.outputs)
    shapes = [tensor.shape for tensor in inputs]
    if len(shapes[0]) != 2 or len(shapes[1]) != 2 or 0 in (*shapes[0], *shapes[1]):
        raise Unsupported(f"inputs {shape_text(inputs[0])}, {shape_text(inputs[1])}: rank 2")
    (rows, depth), cells = shapes[0], shapes[1][1]
    state = rows, cells
    expected = [state, (_GATES * cells, depth + cells), (_GATES * cells,), state]
    results = [
        state,
        state,
        (rows, depth + cells),
        (rows, _GATES * cells),
        state,
        state,
    ]
    for tensor, shape in zip((*inputs[1:], *node.outputs), (*expected, *results), strict=True):
        if tensor.shape != shape:
            raise Unsupported(f"a tensor {shape_text(tensor)}: the others give {shape}")
    if depth + cells > MOST_ROUNDS:
        raise Unsupported(f"{depth + cells} products a cell: more than {MOST_ROUNDS}")
    return depth, cells
