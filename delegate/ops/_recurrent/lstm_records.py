# SPDX-License-Identifier: Apache-2.0
"""The tensors of an LSTM node, checked: its gates' weights, its sizes, and its state.

The state stands twice in a node: inputs that a run finds, and outputs that it leaves.
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

# Places among the inputs, of the gates input, forget, cell and output.
_WEIGHTS, _RECURRENT, _BIASES, _NORMS = 1, 5, 12, 20
_PEEPHOLES = (9, 10, None, 11)
_PROJECTION, _PROJECTION_BIAS, _HIDDEN, _CELL = 16, 17, 18, 19
_INPUTS = 24
# Of both directions: those of the second follow the first's, then the states, then an auxiliary
# input and its weights.
_STATES, _AUXILIARY, _INPUTS_OF_BOTH = 35, 39, 48


@dataclass(frozen=True, slots=True, eq=False)
class Lstm:
    """An LSTM over steps of rows.

    A sequence of gates has four, or three where the input gate is what the forget gate leaves.
    """

    source: Tensor  # (rows, steps, depth), or steps first, or one step of rows
    auxiliary: Tensor | None  # another input, of another depth
    result: StepOutput  # the same with `width` in the place of the depth
    hidden: Tensor  # (rows, width): the output of the step before
    cell: Tensor  # (rows, cells)
    next_hidden: Tensor
    next_cell: Tensor
    weights: tuple[Tensor, ...]  # (cells, depth)
    auxiliary_weights: tuple[Tensor, ...]  # (cells, depth of the auxiliary input)
    recurrent: tuple[Tensor, ...]  # (cells, width)
    peepholes: tuple[Tensor | None, ...]  # (cells,)
    biases: tuple[Tensor, ...]  # (cells,)
    projection: Tensor | None  # (width, cells); None: the width is that of the cells
    projection_bias: Tensor | None  # (width,)
    norms: tuple[Tensor, ...]  # (cells,), coefficients; none: sums of gates are not normalised
    steps: Steps
    depth: int
    cells: int
    width: int

    @property
    def rows(self) -> int:
        """Rows that have steps of their own."""
        return self.steps.rows


def decoded(node: Node) -> list[Lstm]:
    """Return a node's record, or one for each of its directions.

    Raises:
        Unsupported: no state, shapes that do not fit.
    Source: tflite/kernels/lstm.cc, unidirectional_sequence_lstm.cc CheckInputTensorDimensions,
    bidirectional_sequence_lstm.cc
    """
    is_both = node.op == "BIDIRECTIONAL_SEQUENCE_LSTM"
    (source,), rest = inputs_of(node.inputs, 1, (_INPUTS_OF_BOTH if is_both else _INPUTS) - 1)
    steps = steps_of(node, source, is_sequence=node.op != "LSTM")
    every: list[list[Tensor | None]] = [[source, *rest]]
    if is_both:
        if node.options.get("merge_outputs") and not steps.is_time_major and steps.rows > 1:
            # NOTE: it takes the size of a merged output for that of a row of the state.
            raise Unsupported("merged outputs of several rows: TFLite takes other rows' states")
        every = _directions([source, *rest])
    recurrent = [own[_RECURRENT + 1] for own in every]  # of the forget gate, which all have
    widths = [each.shape[-1] if each is not None and each.shape else 0 for each in recurrent]
    results, states = results_of(node, steps, widths, 2 * len(every))
    found = []
    for at, (own, result) in enumerate(zip(every, results, strict=True)):
        found.append(_direction(own, result, states[2 * at : 2 * at + 2], steps))
        steps = steps.backward()
    return found


def _directions(of: Sequence[Tensor | None]) -> list[list[Tensor | None]]:
    """Return the inputs of each direction as a node of one has them, then what is auxiliary."""
    source, auxiliary, more = of[0], of[_AUXILIARY], of[_AUXILIARY + 1 :]
    backward = source
    if auxiliary is not None and all(each is None for each in more):
        # Without weights of its own it is the input of the second direction.
        backward, auxiliary = auxiliary, None
    none = [None] * 4
    second = [*of[_HIDDEN:_STATES], *of[_STATES + 2 : _STATES + 4]]
    return [
        [source, *of[1:_HIDDEN], *of[_STATES : _STATES + 2], *none, auxiliary, *more[:4]],
        [backward, *second, *none, auxiliary, *more[4:]],
    ]


def _direction(
    tensors: Sequence[Tensor | None],
    result: StepOutput,
    states: Sequence[Tensor],
    steps: Steps,
) -> Lstm:
    source, hidden, cell = tensors[0], tensors[_HIDDEN], tensors[_CELL]
    if source is None or hidden is None or cell is None:
        raise Unsupported("variable tensors and what they become are needed")
    first = 0 if tensors[_WEIGHTS] is not None else 1
    weights = _present(tensors[_WEIGHTS + first : _WEIGHTS + 4], "weights")
    recurrent = _present(tensors[_RECURRENT + first : _RECURRENT + 4], "recurrent weights")
    biases = _present(tensors[_BIASES + first : _BIASES + 4], "biases")
    norms: tuple[Tensor, ...] = ()
    if any(each is not None for each in tensors[_NORMS:_INPUTS]):
        norms = _present(tensors[_NORMS + first : _NORMS + 4], "coefficients of normalisation")
    auxiliary, *linked = tensors[_INPUTS:] or [None]
    if auxiliary is None and any(each is not None for each in linked):
        raise Unsupported("weights of an auxiliary input that is left out")
    if first and any(tensors[at] is not None for at in (_RECURRENT, _BIASES, _NORMS)):
        raise Unsupported("an input gate without weights, but with other constants of its own")
    peepholes = [None if at is None else tensors[at] for at in _PEEPHOLES[first:]]
    if len({each is None for each in peepholes if each is not peepholes[-2]}) > 1:
        raise Unsupported("some gates read the cell, and some do not")
    lstm = Lstm(
        source=source,
        auxiliary=auxiliary,
        result=result,
        hidden=hidden,
        cell=cell,
        next_hidden=states[0],
        next_cell=states[1],
        weights=weights,
        auxiliary_weights=_present(linked[first:], "auxiliary weights") if auxiliary else (),
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
    found = tuple(each for each in tensors if each is not None)
    if len(found) != len(tensors):
        raise Unsupported(f"{len(found)} {what}: {len(tensors)} are needed")
    return found


def _require_shapes(lstm: Lstm) -> None:
    cells, width, rows = lstm.cells, lstm.width, lstm.rows
    if lstm.projection is None and (lstm.projection_bias is not None or width != cells):
        raise Unsupported(f"{cells} cells, {width} outputs: a projection is needed")
    before = lstm.result.tensor.shape[:-1]
    beside = lstm.auxiliary.shape[-1] if lstm.auxiliary and lstm.auxiliary.shape else 0
    wanted: list[tuple[Sequence[Tensor | None], tuple[int, ...]]] = [
        ([lstm.source], (*before, lstm.depth)),
        ([lstm.auxiliary], (*before, beside)),
        (lstm.auxiliary_weights, (cells, beside)),
        (lstm.weights, (cells, lstm.depth)),
        (lstm.recurrent, (cells, width)),
        ((*lstm.peepholes, *lstm.biases, *lstm.norms), (cells,)),
        ([lstm.projection], (width, cells)),
        ([lstm.projection_bias], (width,)),
        ([lstm.cell, lstm.next_cell], (rows, cells)),
        ([lstm.hidden, lstm.next_hidden], (rows, width)),
    ]
    for tensors, shape in wanted:
        for tensor in tensors:
            if tensor is not None:
                if tensor.shape != shape:
                    raise Unsupported(f"a tensor {shape_text(tensor)}: the others give {shape}")
                elements_of(tensor)
    elements_of(lstm.source)
    has_peepholes = any(each is not None for each in lstm.peepholes)
    if has_peepholes and width != cells:
        # NOTE: TFLite's kernels take the outputs' number for that of the cells there.
        raise Unsupported("a projection to another size, and gates that read the cell")


def require_types(lstm: Lstm, types: Sequence[tuple[Sequence[Tensor | None], str]]) -> None:
    """Check the types of tensors, where they are not left out.

    Raises:
        Unsupported: one differs.
    """
    for tensors, dtype in types:
        for tensor in tensors:
            if tensor is not None and tensor.dtype != dtype:
                raise Unsupported(f"{tensor.dtype}: {dtype} is needed with {lstm.source.dtype}")


def stacked(tensors: Sequence[Tensor], what: str) -> NDArray[Any]:
    """Return constants of one shape, one after the other.

    Raises:
        Unsupported: one is computed.
    """
    return np.stack([require_constant(tensor, what) for tensor in tensors])


def clip_of(node: Node, name: str) -> float:
    """Return a bound of absolute values; 0: none.

    Raises:
        Unsupported: it is no number, or below 0.
    """
    value = node.options.get(name, 0.0)
    if not isinstance(value, float | int) or not 0 <= value < math.inf:
        raise Unsupported(f"{name} {value!r}: no number from 0 on")
    return float(value)
