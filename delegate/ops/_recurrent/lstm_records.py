# SPDX-License-Identifier: Apache-2.0
"""Checked records of LSTM nodes: the gates' weights, the sizes, and the state.

A node has the state twice: as inputs, before the run, and as outputs, after it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.ops._checks.node import (
    elements_of,
    inputs_of,
    require_constant,
    shape_text,
)
from delegate.ops._recurrent.steps import StepOutput, Steps, results_of, steps_of

# Input indices of the first gate; the gates are input, forget, cell and output.
_WEIGHTS, _RECURRENT, _BIASES, _NORMS = 1, 5, 12, 20
_PEEPHOLES = (9, 10, None, 11)
_PROJECTION, _PROJECTION_BIAS, _HIDDEN, _CELL = 16, 17, 18, 19
_INPUTS = 24
# Bidirectional nodes: inputs of the second direction follow the first's, then the states, then an
# auxiliary input and its weights.
_STATES, _AUXILIARY, _INPUTS_OF_BOTH = 35, 39, 48


@dataclass(frozen=True, slots=True, eq=False)
class Lstm:
    """An LSTM over the steps of several rows.

    Tuples have an item for each of the four gates, or three if input and forget gates are coupled.
    """

    source: Tensor  # (rows, steps, depth), or (steps, rows, depth), or (rows, depth)
    auxiliary: Tensor | None  # a second input, of another depth
    result: StepOutput  # like the source, with `width` instead of depth
    hidden: Tensor  # (rows, width): the previous step's output
    cell: Tensor  # (rows, cells)
    next_hidden: Tensor
    next_cell: Tensor
    weights: tuple[Tensor, ...]  # (cells, depth)
    auxiliary_weights: tuple[Tensor, ...]  # (cells, depth of the auxiliary input)
    recurrent: tuple[Tensor, ...]  # (cells, width)
    peepholes: tuple[Tensor | None, ...]  # (cells,)
    biases: tuple[Tensor, ...]  # (cells,)
    projection: Tensor | None  # (width, cells); None: width == cells
    projection_bias: Tensor | None  # (width,)
    norms: tuple[Tensor, ...]  # (cells,), layer normalisation coefficients; empty: none
    steps: Steps
    depth: int
    cells: int
    width: int

    @property
    def rows(self) -> int:
        """Independent rows."""
        return self.steps.rows


def parse_lstm(node: Node) -> list[Lstm]:
    """Return a record for each direction of a node.

    Raises:
        Unsupported: no state, mismatched shapes.
    Source: tflite/kernels/lstm.cc, unidirectional_sequence_lstm.cc CheckInputTensorDimensions,
    bidirectional_sequence_lstm.cc
    """
    is_both = node.op == "BIDIRECTIONAL_SEQUENCE_LSTM"
    (source,), rest = inputs_of(node.inputs, 1, (_INPUTS_OF_BOTH if is_both else _INPUTS) - 1)
    steps = steps_of(node, source, is_sequence=node.op != "LSTM")
    directions: list[list[Tensor | None]] = [[source, *rest]]
    if is_both:
        if node.options.get("merge_outputs") and not steps.is_time_major and steps.rows > 1:
            # NOTE: TFLite uses the size of a merged output as the size of a state row.
            raise Unsupported("merged outputs of several rows: TFLite uses other rows' states")
        directions = _split_directions([source, *rest])
    recurrent = [tensors[_RECURRENT + 1] for tensors in directions]  # of the forget gate
    widths = [each.shape[-1] if each is not None and each.shape else 0 for each in recurrent]
    results, states = results_of(node, steps, widths, 2 * len(directions))
    lstms = []
    for at, (tensors, result) in enumerate(zip(directions, results, strict=True)):
        lstms.append(_direction(tensors, result, states[2 * at : 2 * at + 2], steps))
        steps = steps.backward()
    return lstms


def _split_directions(inputs: Sequence[Tensor | None]) -> list[list[Tensor | None]]:
    """Return each direction's inputs in the order of a unidirectional node, then auxiliary ones."""
    source, auxiliary, linked = inputs[0], inputs[_AUXILIARY], inputs[_AUXILIARY + 1 :]
    backward = source
    if auxiliary is not None and all(each is None for each in linked):
        # Without weights of its own it is the input of the second direction.
        backward, auxiliary = auxiliary, None
    none = [None] * 4
    second = [*inputs[_HIDDEN:_STATES], *inputs[_STATES + 2 : _STATES + 4]]
    return [
        [source, *inputs[1:_HIDDEN], *inputs[_STATES : _STATES + 2], *none, auxiliary, *linked[:4]],
        [backward, *second, *none, auxiliary, *linked[4:]],
    ]


def _direction(
    tensors: Sequence[Tensor | None],
    result: StepOutput,
    states: Sequence[Tensor],
    steps: Steps,
) -> Lstm:
    source, hidden, cell = tensors[0], tensors[_HIDDEN], tensors[_CELL]
    if source is None or hidden is None or cell is None:
        raise Unsupported("states must be inputs and outputs")
    first = 0 if tensors[_WEIGHTS] is not None else 1
    weights = _present(tensors[_WEIGHTS + first : _WEIGHTS + 4], "weights")
    recurrent = _present(tensors[_RECURRENT + first : _RECURRENT + 4], "recurrent weights")
    biases = _present(tensors[_BIASES + first : _BIASES + 4], "biases")
    norms: tuple[Tensor, ...] = ()
    if any(each is not None for each in tensors[_NORMS:_INPUTS]):
        norms = _present(tensors[_NORMS + first : _NORMS + 4], "coefficients of normalisation")
    auxiliary, *aux_weights = tensors[_INPUTS:] or [None]
    if auxiliary is None and any(each is not None for each in aux_weights):
        raise Unsupported("weights of an auxiliary input that is left out")
    if first and any(tensors[at] is not None for at in (_RECURRENT, _BIASES, _NORMS)):
        raise Unsupported("an input gate without weights, but with other constants of its own")
    peepholes = [None if at is None else tensors[at] for at in _PEEPHOLES[first:]]
    if len({each is None for each in peepholes if each is not peepholes[-2]}) > 1:
        raise Unsupported("only some gates have peepholes")
    lstm = Lstm(
        source=source,
        auxiliary=auxiliary,
        result=result,
        hidden=hidden,
        cell=cell,
        next_hidden=states[0],
        next_cell=states[1],
        weights=weights,
        auxiliary_weights=_present(aux_weights[first:], "auxiliary weights") if auxiliary else (),
        recurrent=recurrent,
        peepholes=tuple(peepholes),
        biases=biases,
        projection=tensors[_PROJECTION],
        projection_bias=tensors[_PROJECTION_BIAS],
        norms=norms,
        steps=steps,
        depth=source.shape[-1] if source.shape else 0,
        cells=weights[0].shape[0] if weights[0].shape else 0,
        width=recurrent[0].shape[-1] if recurrent[0].shape else 0,
    )
    _require_shapes(lstm)
    return lstm


def _present(tensors: Sequence[Tensor | None], what: str) -> tuple[Tensor, ...]:
    present = tuple(each for each in tensors if each is not None)
    if len(present) != len(tensors):
        raise Unsupported(f"{len(present)} {what}: {len(tensors)} are needed")
    return present


def _require_shapes(lstm: Lstm) -> None:
    cells, width, rows = lstm.cells, lstm.width, lstm.rows
    if lstm.projection is None and (lstm.projection_bias is not None or width != cells):
        raise Unsupported(f"{cells} cells, {width} outputs: a projection is needed")
    outer = lstm.result.tensor.shape[:-1]
    auxiliary_depth = lstm.auxiliary.shape[-1] if lstm.auxiliary and lstm.auxiliary.shape else 0
    expected: list[tuple[Sequence[Tensor | None], tuple[int, ...]]] = [
        ([lstm.source], (*outer, lstm.depth)),
        ([lstm.auxiliary], (*outer, auxiliary_depth)),
        (lstm.auxiliary_weights, (cells, auxiliary_depth)),
        (lstm.weights, (cells, lstm.depth)),
        (lstm.recurrent, (cells, width)),
        ((*lstm.peepholes, *lstm.biases, *lstm.norms), (cells,)),
        ([lstm.projection], (width, cells)),
        ([lstm.projection_bias], (width,)),
        ([lstm.cell, lstm.next_cell], (rows, cells)),
        ([lstm.hidden, lstm.next_hidden], (rows, width)),
    ]
    for tensors, shape in expected:
        for tensor in tensors:
            if tensor is not None:
                if tensor.shape != shape:
                    raise Unsupported(f"a tensor {shape_text(tensor)}: the others give {shape}")
                elements_of(tensor)
    elements_of(lstm.source)
    has_peepholes = any(each is not None for each in lstm.peepholes)
    if has_peepholes and width != cells:
        # NOTE: TFLite's kernels then use the output size as the number of cells.
        raise Unsupported("peepholes with a projection to another size")


def require_types(lstm: Lstm, types: Sequence[tuple[Sequence[Tensor | None], str]]) -> None:
    """Check the types of tensors that are not omitted.

    Raises:
        Unsupported: one differs.
    """
    for tensors, dtype in types:
        for tensor in tensors:
            if tensor is not None and tensor.dtype != dtype:
                raise Unsupported(f"{tensor.dtype}: {dtype} is needed with {lstm.source.dtype}")


def stacked(tensors: Sequence[Tensor], what: str) -> NDArray[Any]:
    """Return constants of equal shapes, stacked along a new first axis.

    Raises:
        Unsupported: one is not constant.
    """
    return np.stack([require_constant(tensor, what) for tensor in tensors])


def clip_of(node: Node, name: str) -> float:
    """Return a clipping bound for absolute values; 0: none.

    Raises:
        Unsupported: it is no finite number, or negative.
    """
    value = node.options.get(name, 0.0)
    if not isinstance(value, float | int) or not 0 <= value < math.inf:
        raise Unsupported(f"{name} {value!r}: a finite number of 0 or more is needed")
    return float(value)
