# SPDX-License-Identifier: Apache-2.0
"""The launches of an LSTM's steps.

All steps are launches of the same programs: what a step gives stays in the output, or in the state
that it leaves, where the next finds it, and the cell is written in place. A step of integers, or of
floats, is one launch. Others sum all gates first: those of rows that become int8, by launches of
their own, and those whose sums are normalised over the cells of a row. Where outputs are projected,
that is a launch more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from delegate.graph.ir import Tensor
from delegate.launch import Defines, Launch, Params, temporary
from delegate.ops._launches.tiles import MOST_ROUNDS, by_work, launch_over
from delegate.ops._recurrent.lstm_records import Lstm
from delegate.ops._recurrent.steps import HybridInput, int8_rows
from delegate.target import Target


@dataclass(frozen=True, slots=True, eq=False)
class Arithmetic:
    """What differs by the tensors' types."""

    family: str
    sums: Params  # fields of the kernel that sums the gates
    cells: Params  # fields of what follows, in the same kernel or others
    projection: Params  # fields of the kernel that projects
    is_tanh: bool = True
    is_asymmetric: bool = False  # whether a row that becomes int8 has a zero point

    @property
    def of_cells(self) -> str:
        """The family of what follows the sums."""
        return "float" if self.family == "hybrid" else self.family


def launches(lstm: Lstm, own: Arithmetic, target: Target) -> Iterator[Launch]:
    """Yield the launches of all steps."""
    dtype = "int8" if own.family == "quant8" else "float32"
    between = temporary("before the projection", (lstm.rows, lstm.cells), dtype)
    step, row = lstm.steps.stride(lstm.width)
    is_split = own.family == "hybrid" or bool(lstm.norms)
    rows = None
    if own.family == "hybrid":
        count = lstm.rows * lstm.steps.count
        made = int8_rows(lstm.source, count, lstm.depth, own.is_asymmetric, target)
        yield from made.launches
        rows = HybridInput(lstm.steps, made)
    for at in range(lstm.steps.count):
        place: Params = {"output": lstm.result, "output_at": at * step, "output_row": row}
        place["hidden_output"] = lstm.next_hidden
        of_cells = place
        if lstm.projection is not None:
            of_cells = {"output": between, "output_at": 0, "output_row": lstm.cells}
        hidden = lstm.next_hidden if at else lstm.hidden
        if not is_split:
            # Other items of the launch write what the next step finds in the state.
            before = (
                _hidden(lstm.result, (at - 1) * step, row) if at else _hidden(hidden, 0, lstm.width)
            )
            yield _whole(lstm, own, at, before | of_cells, target)
        else:
            yield from _in_parts(lstm, own, rows, at, hidden, of_cells, target)
        if lstm.projection is not None:
            yield from _projected(lstm, own, between, place, target)


def _hidden(tensor: Tensor, at: int, row: int) -> Params:
    return {"hidden": tensor, "hidden_at": at, "hidden_row": row}


def _input(lstm: Lstm, at: int) -> Params:
    step, row = lstm.steps.stride(lstm.depth)
    return {"input": lstm.source, "input_at": at * step, "input_row": row}


def _sizes(lstm: Lstm) -> Params:
    return {"depth": lstm.depth, "cells": lstm.cells, "width": lstm.width}


def _cells(lstm: Lstm, at: int) -> Params:
    return {"cell": lstm.next_cell if at else lstm.cell, "cell_output": lstm.next_cell}


def _defines(lstm: Lstm, own: Arithmetic) -> Defines:
    defines: dict[str, int | str] = {
        "GATES": len(lstm.weights),
        "IS_PROJECTED": int(lstm.projection is not None),
        "IS_TANH": int(own.is_tanh),
    }
    return defines | ({"IS_NORMALIZED": 1} if lstm.norms else {})


def _launch(
    kernel: str, items: int, cost: int, params: Params, target: Target, defines: Defines
) -> Launch:
    tiling = by_work(items, cost, target, max(1, MOST_ROUNDS // (2 * cost)))
    return launch_over("lstm", kernel, tiling, params | {"items": items}, defines)


def _whole(lstm: Lstm, own: Arithmetic, at: int, fields: Params, target: Target) -> Launch:
    """Return a step that is one launch."""
    fields = _input(lstm, at) | _cells(lstm, at) | fields | _sizes(lstm) | own.sums | own.cells
    cost = len(lstm.weights) * (lstm.depth + lstm.width)
    items = lstm.rows * lstm.cells
    return _launch(f"lstm_{own.family}", items, cost, fields, target, _defines(lstm, own))


def _in_parts(
    lstm: Lstm,
    own: Arithmetic,
    rows: HybridInput | None,
    at: int,
    hidden: Tensor,
    place: Params,
    target: Target,
) -> Iterator[Launch]:
    """Yield the launches of a step whose gates are summed first."""
    gates, cells = len(lstm.weights), lstm.rows * lstm.cells
    sums = temporary("sums of gates", (lstm.rows, gates, lstm.cells), "float32")
    defines = _defines(lstm, own)
    state = _cells(lstm, at)
    if rows is None:
        fields = _input(lstm, at) | _hidden(hidden, 0, lstm.width)
    else:
        before = int8_rows(hidden, lstm.rows, lstm.width, own.is_asymmetric, target)
        yield from before.launches
        fields = rows.at(at, before)
    fields |= {"cell": state["cell"], "output": sums} | _sizes(lstm) | own.sums
    cost = lstm.depth + lstm.width
    kernel = f"lstm_sums_{own.family}"
    yield _launch(kernel, gates * cells, cost, fields, target, {"GATES": gates})
    fields = {"sums": sums} | state | _sizes(lstm) | own.cells
    if not lstm.norms:
        yield _launch("lstm_cells_float", cells, gates, fields | place, target, defines)
        return
    cost = 2 * gates * lstm.cells
    yield _launch("lstm_cells_float", cells, cost, fields | {"sums_output": sums}, target, defines)
    fields = {"sums": sums, "cell": lstm.next_cell} | place | _sizes(lstm) | own.cells
    yield _launch("lstm_output_float", cells, 2 * lstm.cells, fields, target, defines)


def _projected(
    lstm: Lstm, own: Arithmetic, between: Tensor, place: Params, target: Target
) -> Iterator[Launch]:
    fields: Params = {"input": between}
    if own.family == "hybrid":
        rows = int8_rows(between, lstm.rows, lstm.cells, own.is_asymmetric, target)
        yield from rows.launches
        fields = rows.fields
    fields = fields | place | _sizes(lstm) | own.projection
    kernel = f"lstm_projection_{own.family}"
    yield _launch(kernel, lstm.rows * lstm.width, lstm.cells, fields, target, {})
