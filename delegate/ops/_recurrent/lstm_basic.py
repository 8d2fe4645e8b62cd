# SPDX-License-Identifier: Apache-2.0
"""The basic kernel of LSTM: one step of five inputs, which shows its sums of gates, too."""

from __future__ import annotations

import math

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Defines, Launch, Params
from delegate.ops._checks.node import inputs_of, require_constant, require_floats, shape_text
from delegate.ops._launches.copy import Move, copied, layers
from delegate.ops._launches.tiles import MOST_ROUNDS
from delegate.ops._numbers import bits
from delegate.ops._recurrent.lstm_launches import cells_of_step, launch_of_step
from delegate.ops._recurrent.steps import constant
from delegate.target import Target

_GATES = 4  # input, cell, forget and output


def basic(node: Node, target: Target) -> tuple[Launch, ...]:
    """Return the launches of a basic kernel's step.

    Shapes:
        input (rows, depth), the output before (rows, cells), weights (4 cells, depth + cells) of
        both, side by side, bias (4 cells,), cell (rows, cells) -> what the last two become, the
        input beside the output before, and the sums of gates
    Raises:
        Unsupported: other types than float32, computed weights, shapes that do not fit.
    Source: tflite/kernels/lstm.cc basic::Eval, internal/optimized/optimized_ops.h LstmCell
    """
    (source, hidden, weights, bias, cell), _ = inputs_of(node.inputs, 5)
    if source.dtype == "uint8":
        # NOTE: ties of the second rounding go up in ai-edge-litert on x86 with 256-bit vectors of
        # integers, and away from zero in tflite-runtime.
        raise Unsupported(
            "the basic kernel of uint8: TFLite rounds its sums as the CPU's code does"
        )
    if len(node.outputs) != 6:
        raise Unsupported("variable tensors and what they become are needed")
    result, state, joined, sums, next_hidden, next_cell = node.outputs
    depth, cells = _require(node, [source, hidden, weights, bias, cell])
    both = require_constant(weights, "weights")
    sizes: Params = {"depth": depth, "cells": cells, "width": cells}
    none = constant(np.zeros(_GATES * cells, np.float32))
    fields: Params = {
        **{"input": source, "input_at": 0, "input_row": depth},
        **{"hidden": hidden, "hidden_at": 0, "hidden_row": cells},
        **{"cell": cell, "output": sums, **sizes},
        "weights": constant(np.ascontiguousarray(both[:, :depth])),
        "recurrent": constant(np.ascontiguousarray(both[:, depth:])),
        "biases": constant(require_constant(bias, "biases")),
        "peepholes": none,
    }
    of_cells: Params = {
        **{"sums": sums, "cell": cell, "cell_output": state, **sizes},
        **{"output": result, "output_at": 0, "output_row": cells},
        **{"hidden_output": next_hidden, "peepholes": none, "cell_clip": bits(math.inf)},
        **{"output_min": 0, "output_max": 0},
    }
    items = source.shape[0] * cells
    defines: Defines = {"GATES": _GATES, "IS_BASIC": 1}
    whole: Defines = {**defines, "IS_PROJECTED": 0, "IS_TANH": 1}
    beside = [layers(source, joined, 1, 0, depth), layers(hidden, joined, 1, depth, cells)]
    return (
        *_copies(beside, target),
        launch_of_step(
            "lstm_sums_float", _GATES * items, depth + cells, fields, target, {"GATES": _GATES}
        ),
        cells_of_step(source.shape[0], of_cells, target, whole),
        *_copies([layers(state, next_cell, 1, 0, cells)], target),
    )


def _copies(moves: list[Move], target: Target) -> tuple[Launch, ...]:
    return copied(moves, target)[0].launches


def _require(node: Node, inputs: list[Tensor]) -> tuple[int, int]:
    """Check types and shapes, and return how many elements an input has, and how many cells."""
    require_floats(*inputs, *node.outputs)
    shapes = [tensor.shape for tensor in inputs]
    if len(shapes[0]) != 2 or len(shapes[1]) != 2 or 0 in (*shapes[0], *shapes[1]):
        raise Unsupported(f"inputs {shape_text(inputs[0])}, {shape_text(inputs[1])}: rank 2")
    (rows, depth), cells = shapes[0], shapes[1][1]
    before = rows, cells
    wanted = [before, (_GATES * cells, depth + cells), (_GATES * cells,), before]
    given = [before, before, (rows, depth + cells), (rows, _GATES * cells), before, before]
    for tensor, shape in zip((*inputs[1:], *node.outputs), (*wanted, *given), strict=True):
        if tensor.shape != shape:
            raise Unsupported(f"a tensor {shape_text(tensor)}: the others give {shape}")
    if depth + cells > MOST_ROUNDS:
        raise Unsupported(f"{depth + cells} products a cell: more than {MOST_ROUNDS}")
    return depth, cells
