# SPDX-License-Identifier: Apache-2.0
"""The launches of an LSTM's steps.

All steps launch the same kernels: a step reads the previous output from the output tensor or the
state, and updates the cell in place. An integer or float step is one launch. Hybrid steps, and
steps with layer normalisation over the cells, compute all gate sums first, in separate launches. A
projection is another launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from delegate.graph.ir import Tensor
from delegate.launch import Defines, Launch, Params, temporary
from delegate.ops._launches.tiles import MOST_ROUNDS, by_work, lanes_of, launch_over
from delegate.ops._numbers import ceil_div
from delegate.ops._recurrent.lstm_products import Products
from delegate.ops._recurrent.lstm_records import Lstm
from delegate.ops._recurrent.steps import HybridInput, int8_rows, rounding
from delegate.target import Target

_CELL_COST = 64  # of a cell's functions, in vector multiplications


@dataclass(frozen=True, slots=True, eq=False)
class Arithmetic:
    """Fields and macros that depend on the tensors' types."""

    family: str
    sums: Params  # fields of the kernel that computes gate sums
    cells: Params  # fields of the following part, in the same or another kernel
    projection: Params  # fields of the projection kernel
    is_tanh: bool = True
    is_asymmetric: bool = False  # whether quantised rows have a zero point
    wraps: bool = False  # whether products of integer normalisation wrap at 32 bits

    @property
    def dtype(self) -> str:
        """The type of gate sums."""
        return "int16" if self.family == "quant8" else "float32"

    @property
    def of_cells(self) -> str:
        """The kernel family of the part after the sums."""
        return "float" if self.family == "hybrid" else self.family


def launches(
    lstm: Lstm,
    kind: Arithmetic,
    rows: Mapping[Tensor, HybridInput],
    target: Target,
    products: Products | None = None,
) -> Iterator[Launch]:
    """Yield the launches of all steps; `rows`: the quantised inputs of a hybrid LSTM.

    `products`: matrix products that compute the gate sums instead.
    """
    if products is not None:
        yield from products.input_launches
    dtype = "int8" if kind.family == "quant8" else "float32"
    unprojected = temporary("before the projection", (lstm.rows, lstm.cells), dtype)
    is_split = kind.family == "hybrid" or bool(lstm.norms)
    # Other items of the same launch write the next state, so a step reads the output instead.
    previous, hidden, cell = _hidden(lstm.hidden, lstm.width), lstm.hidden, lstm.cell
    for at in lstm.steps.order:
        output = lstm.result.at(at, lstm.steps) | {"hidden_output": lstm.next_hidden}
        cell_fields = output
        if lstm.projection is not None:
            cell_fields = {"output": unprojected, "output_at": 0, "output_row": lstm.cells}
        cell_fields = cell_fields | {"cell": cell, "cell_output": lstm.next_cell}
        if products is not None:
            yield from products.of_step(lstm, hidden)
            sums = products.fields(lstm, at) | _sizes(lstm) | kind.cells
            defines = {**_defines(lstm, kind), "IN_TWO_PARTS": 1}
            yield cells_of_step(lstm.rows, sums | cell_fields, target, defines)
        elif not is_split:
            yield _one_launch(lstm, kind, at, previous | cell_fields, target)
        else:
            yield from _in_parts(lstm, kind, rows, at, hidden, cell_fields, target)
        if lstm.projection is not None:
            yield from _projected(lstm, kind, unprojected, output, target)
        previous, hidden, cell = (
            lstm.result.hidden(at, lstm.steps),
            lstm.next_hidden,
            lstm.next_cell,
        )


def _hidden(tensor: Tensor, row: int) -> Params:
    return {"hidden": tensor, "hidden_at": 0, "hidden_row": row}


def _input(lstm: Lstm, at: int) -> Params:
    step, row = lstm.steps.stride(lstm.depth)
    return {"input": lstm.source, "input_at": at * step, "input_row": row}


def _sizes(lstm: Lstm) -> Params:
    return {"depth": lstm.depth, "cells": lstm.cells, "width": lstm.width}


def _defines(lstm: Lstm, kind: Arithmetic) -> Defines:
    defines: dict[str, int | str] = {
        "GATES": len(lstm.weights),
        "IS_PROJECTED": int(lstm.projection is not None),
        "IS_TANH": int(kind.is_tanh),
    }
    if lstm.norms:
        defines |= (
            {"PRODUCTS_WRAP": int(kind.wraps)} if kind.dtype == "int16" else {"IS_NORMALIZED": 1}
        )
    return defines


def launch_of_step(
    kernel: str, items: int, cost: int, params: Params, target: Target, defines: Defines
) -> Launch:
    """Return a launch over the items of a step; `cost`: vector multiplications per item."""
    tiling = by_work(items, cost, target, max(1, MOST_ROUNDS // (2 * cost)))
    file = "lstm_quant8" if kernel.endswith("quant8") else "lstm"
    return launch_over(file, kernel, tiling, params | {"items": items}, defines)


def cells_of_step(rows: int, params: Params, target: Target, defines: Defines) -> Launch:
    """Return the launch that computes the cells of a float step from its gate sums.

    On CPUs an item is a vector of cells.
    """
    cells = params["cells"]
    assert isinstance(cells, int)
    is_vectorised = target.group_items == 1 and not defines.get("IS_NORMALIZED")
    lanes = (lanes_of(cells, target) if is_vectorised else 0) or 1
    row_items = ceil_div(cells, lanes)
    items = rows * row_items
    # Layer normalisation loops over all cells of the row a few times.
    cost = 8 * cells if defines.get("IS_NORMALIZED") else _CELL_COST
    tiling = by_work(items, cost, target, max(1, MOST_ROUNDS // (2 * cost)), least=1)
    fields: Params = {**params, "row_items": row_items, "items": items}
    return launch_over("lstm", "lstm_cells_float", tiling, fields, {**defines, "LANES": lanes})


def _one_launch(lstm: Lstm, kind: Arithmetic, at: int, fields: Params, target: Target) -> Launch:
    """Return the single launch of a step."""
    fields = _input(lstm, at) | fields | _sizes(lstm) | kind.sums | kind.cells
    cost = len(lstm.weights) * (lstm.depth + lstm.width)
    items = lstm.rows * lstm.cells
    return launch_of_step(f"lstm_{kind.family}", items, cost, fields, target, _defines(lstm, kind))


def _in_parts(
    lstm: Lstm,
    kind: Arithmetic,
    rows: Mapping[Tensor, HybridInput],
    at: int,
    hidden: Tensor,
    output: Params,
    target: Target,
) -> Iterator[Launch]:
    """Yield the launches of a step that computes gate sums separately."""
    gates, cells = len(lstm.weights), lstm.rows * lstm.cells
    sums = temporary("sums of gates", (lstm.rows, gates, lstm.cells), kind.dtype)
    defines = _defines(lstm, kind)
    if not rows:
        fields = _input(lstm, at) | _hidden(hidden, lstm.width)
    else:
        hidden_rows = int8_rows(hidden, lstm.rows, lstm.width, kind.is_asymmetric, target)
        yield from hidden_rows.launches
        fields = rows[lstm.source].at(at, hidden_rows)
        if lstm.auxiliary is not None:
            fields |= rows[lstm.auxiliary].fields("auxiliary", at)
    fields |= {"cell": output["cell"], "output": sums} | _sizes(lstm) | kind.sums
    cost = lstm.depth + lstm.width
    kernel = f"lstm_sums_{kind.family}"
    sum_defines: Defines = {"GATES": gates, **(rounding(target) if rows else {})}
    if rows and lstm.auxiliary is not None:
        sum_defines = {**sum_defines, "HAS_AUXILIARY": 1}
    yield launch_of_step(kernel, gates * cells, cost, fields, target, sum_defines)
    fields = {"sums": sums} | _sizes(lstm) | kind.cells
    if not lstm.norms:
        yield cells_of_step(lstm.rows, fields | output, target, defines)
        return
    state: Params = {
        "cell": output["cell"],
        "cell_output": lstm.next_cell,
        "sums_output": sums,
    }
    if kind.of_cells == "float":
        yield cells_of_step(lstm.rows, fields | state, target, defines)
    else:
        cost = 2 * gates * lstm.cells
        yield launch_of_step("lstm_cells_quant8", cells, cost, fields | state, target, defines)
    output = {name: each for name, each in output.items() if name != "cell_output"}
    fields |= output | {"cell": lstm.next_cell}
    yield launch_of_step(
        f"lstm_output_{kind.of_cells}", cells, 2 * lstm.cells, fields, target, defines
    )


def _projected(
    lstm: Lstm, kind: Arithmetic, unprojected: Tensor, output: Params, target: Target
) -> Iterator[Launch]:
    fields: Params = {"input": unprojected}
    defines: Defines = {}
    if kind.family == "hybrid":
        defines = rounding(target)
        rows = int8_rows(unprojected, lstm.rows, lstm.cells, kind.is_asymmetric, target)
        yield from rows.launches
        fields = rows.fields
    fields = fields | output | _sizes(lstm) | kind.projection
    kernel = f"lstm_projection_{kind.family}"
    yield launch_of_step(kernel, lstm.rows * lstm.width, lstm.cells, fields, target, defines)
