# SPDX-License-Identifier: Apache-2.0
"""The launches of an LSTM's steps.

All steps are launches of the same programs: what a step gives stays in the output, or in the state
that it leaves, where the next finds it, and the cell is written in place. A step of integers, or of
floats, is one launch. Others sum all gates first: those of rows that become int8, by launches of
their own, and those whose sums are normalised over the cells of a row. Where outputs are projected,
that is a launch more.
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

_CELL_COST = 64  # multiplications of vectors that the functions of cells take


@dataclass(frozen=True, slots=True, eq=False)
class Arithmetic:
    """What differs by the tensors' types."""

    family: str
    sums: Params  # fields of the kernel that sums the gates
    cells: Params  # fields of what follows, in the same kernel or others
    projection: Params  # fields of the kernel that projects
    is_tanh: bool = True
    is_asymmetric: bool = False  # whether a row that becomes int8 has a zero point
    wraps: bool = False  # products of normalised integers, which may be beyond 32 bits

    @property
    def dtype(self) -> str:
        """The type of sums of gates."""
        return "int16" if self.family == "quant8" else "float32"

    @property
    def of_cells(self) -> str:
        """The family of what follows the sums."""
        return "float" if self.family == "hybrid" else self.family


def launches(
    lstm: Lstm,
    own: Arithmetic,
    rows: Mapping[Tensor, HybridInput],
    target: Target,
    products: Products | None = None,
) -> Iterator[Launch]:
    """Yield the launches of all steps; `rows`: those of inputs that become int8.

    `products`: what sums the gates in their place.
    """
    if products is not None:
        yield from products.of_inputs
    dtype = "int8" if own.family == "quant8" else "float32"
    between = temporary("before the projection", (lstm.rows, lstm.cells), dtype)
    is_split = own.family == "hybrid" or bool(lstm.norms)
    # Other items of the one launch write what the state becomes: it reads the output instead.
    before, hidden, cell = _hidden(lstm.hidden, lstm.width), lstm.hidden, lstm.cell
    for at in lstm.steps.order:
        place = lstm.result.at(at, lstm.steps) | {"hidden_output": lstm.next_hidden}
        of_cells = place
        if lstm.projection is not None:
            of_cells = {"output": between, "output_at": 0, "output_row": lstm.cells}
        of_cells = of_cells | {"cell": cell, "cell_output": lstm.next_cell}
        if products is not None:
            yield from products.of_step(lstm, hidden)
            sums = products.fields(lstm, at) | _sizes(lstm) | own.cells
            defines = {**_defines(lstm, own), "IN_TWO_PARTS": 1}
            yield cells_of_step(lstm.rows, sums | of_cells, target, defines)
        elif not is_split:
            yield _whole(lstm, own, at, before | of_cells, target)
        else:
            yield from _in_parts(lstm, own, rows, at, hidden, of_cells, target)
        if lstm.projection is not None:
            yield from _projected(lstm, own, between, place, target)
        before, hidden, cell = lstm.result.hidden(at, lstm.steps), lstm.next_hidden, lstm.next_cell


def _hidden(tensor: Tensor, row: int) -> Params:
    return {"hidden": tensor, "hidden_at": 0, "hidden_row": row}


def _input(lstm: Lstm, at: int) -> Params:
    step, row = lstm.steps.stride(lstm.depth)
    return {"input": lstm.source, "input_at": at * step, "input_row": row}


def _sizes(lstm: Lstm) -> Params:
    return {"depth": lstm.depth, "cells": lstm.cells, "width": lstm.width}


def _defines(lstm: Lstm, own: Arithmetic) -> Defines:
    defines: dict[str, int | str] = {
        "GATES": len(lstm.weights),
        "IS_PROJECTED": int(lstm.projection is not None),
        "IS_TANH": int(own.is_tanh),
    }
    if lstm.norms:
        defines |= (
            {"PRODUCTS_WRAP": int(own.wraps)} if own.dtype == "int16" else {"IS_NORMALIZED": 1}
        )
    return defines


def launch_of_step(
    kernel: str, items: int, cost: int, params: Params, target: Target, defines: Defines
) -> Launch:
    """Return a launch over the items of a step, each of so many multiplications."""
    tiling = by_work(items, cost, target, max(1, MOST_ROUNDS // (2 * cost)))
    file = "lstm_quant8" if kernel.endswith("quant8") else "lstm"
    return launch_over(file, kernel, tiling, params | {"items": items}, defines)


def cells_of_step(rows: int, params: Params, target: Target, defines: Defines) -> Launch:
    """Return the launch that makes the cells of a step of floats from its sums of gates.

    An item has several cells where a CPU's vectors do.
    """
    cells = params["cells"]
    assert isinstance(cells, int)
    is_alone = target.group_items == 1 and not defines.get("IS_NORMALIZED")
    lanes = (lanes_of(cells, target) if is_alone else 0) or 1
    row_items = ceil_div(cells, lanes)
    items = rows * row_items
    # A normalised sum is one of all cells of the row, a few times.
    cost = 8 * cells if defines.get("IS_NORMALIZED") else _CELL_COST
    tiling = by_work(items, cost, target, max(1, MOST_ROUNDS // (2 * cost)), least=1)
    fields: Params = {**params, "row_items": row_items, "items": items}
    return launch_over("lstm", "lstm_cells_float", tiling, fields, {**defines, "LANES": lanes})


def _whole(lstm: Lstm, own: Arithmetic, at: int, fields: Params, target: Target) -> Launch:
    """Return a step that is one launch."""
    fields = _input(lstm, at) | fields | _sizes(lstm) | own.sums | own.cells
    cost = len(lstm.weights) * (lstm.depth + lstm.width)
    items = lstm.rows * lstm.cells
    return launch_of_step(f"lstm_{own.family}", items, cost, fields, target, _defines(lstm, own))


def _in_parts(
    lstm: Lstm,
    own: Arithmetic,
    rows: Mapping[Tensor, HybridInput],
    at: int,
    hidden: Tensor,
    place: Params,
    target: Target,
) -> Iterator[Launch]:
    """Yield the launches of a step whose gates are summed first."""
    gates, cells = len(lstm.weights), lstm.rows * lstm.cells
    sums = temporary("sums of gates", (lstm.rows, gates, lstm.cells), own.dtype)
    defines = _defines(lstm, own)
    if not rows:
        fields = _input(lstm, at) | _hidden(hidden, lstm.width)
    else:
        before = int8_rows(hidden, lstm.rows, lstm.width, own.is_asymmetric, target)
        yield from before.launches
        fields = rows[lstm.source].at(at, before)
        if lstm.auxiliary is not None:
            fields |= rows[lstm.auxiliary].fields("auxiliary", at)
    fields |= {"cell": place["cell"], "output": sums} | _sizes(lstm) | own.sums
    cost = lstm.depth + lstm.width
    kernel = f"lstm_sums_{own.family}"
    of_sums: Defines = {"GATES": gates, **(rounding(target) if rows else {})}
    if rows and lstm.auxiliary is not None:
        of_sums = {**of_sums, "HAS_AUXILIARY": 1}
    yield launch_of_step(kernel, gates * cells, cost, fields, target, of_sums)
    fields = {"sums": sums} | _sizes(lstm) | own.cells
    if not lstm.norms:
        yield cells_of_step(lstm.rows, fields | place, target, defines)
        return
    state: Params = {"cell": place["cell"], "cell_output": lstm.next_cell, "sums_output": sums}
    if own.of_cells == "float":
        yield cells_of_step(lstm.rows, fields | state, target, defines)
    else:
        cost = 2 * gates * lstm.cells
        yield launch_of_step("lstm_cells_quant8", cells, cost, fields | state, target, defines)
    place = {name: each for name, each in place.items() if name != "cell_output"}
    fields |= place | {"cell": lstm.next_cell}
    yield launch_of_step(
        f"lstm_output_{own.of_cells}", cells, 2 * lstm.cells, fields, target, defines
    )


def _projected(
    lstm: Lstm, own: Arithmetic, between: Tensor, place: Params, target: Target
) -> Iterator[Launch]:
    fields: Params = {"input": between}
    defines: Defines = {}
    if own.family == "hybrid":
        defines = rounding(target)
        rows = int8_rows(between, lstm.rows, lstm.cells, own.is_asymmetric, target)
        yield from rows.launches
        fields = rows.fields
    fields = fields | place | _sizes(lstm) | own.projection
    kernel = f"lstm_projection_{own.family}"
    yield launch_of_step(kernel, lstm.rows * lstm.width, lstm.cells, fields, target, defines)
