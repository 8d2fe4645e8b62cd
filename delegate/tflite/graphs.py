# SPDX-License-Identifier: Apache-2.0
"""The graphs of the interpreters that call: of a given file, or as TFLite holds them.

TFLite's plan is compared with them: have the interpreter and the delegate the same model?
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from delegate.errors import AbiMismatch, ModelError
from delegate.graph.ir import Graph
from delegate.tflite.callbacks import Constants, PlannedNode, Shapes
from delegate.tflite.locate import locate
from delegate.tflite.reader import read_code, read_subgraph
from delegate.tflite.table import File, Source, named, open_model, options_of

_log = logging.getLogger("delegate")


class Graphs:
    """Finds the graph of each interpreter."""

    def __init__(self, model: Source | Graph | None) -> None:
        """`model`: the one of every interpreter, or its main graph, which is then not read again.

        None: each is found in the memory of TFLite.

        Raises:
            ModelError: the model cannot be read. OSError: nor can its file.
        """
        self._content: memoryview | None = None
        self._given: dict[int, Graph | None] = {}  # of the given model, by subgraph
        if isinstance(model, Graph):
            self._given[0] = model
        elif model is not None:
            with named(model):
                self._content = open_model(model)
                self._given[0] = read_subgraph(self._content, 0)

    @property
    def given(self) -> Graph | None:
        """The main graph of the given model, before any interpreter asks."""
        return self._given.get(0)

    def graph(self, context: int) -> Graph | None:
        """Return the graph that a TfLiteContext is of; None: TFLite keeps it.

        That is a body of control flow, and one that is damaged and not the model's first.

        A graph found in memory has views of TFLite's constants, which live as long as the
        interpreter.

        Raises:
            ModelError: it is not found, or cannot be read.
        """
        first = self._given.get(0)
        if first is not None and first.subgraphs == 1:
            return first
        located = locate(context)
        if located is None:
            raise ModelError(_NOT_FOUND if first is None else _NOT_TOLD)
        number = located.subgraph
        if number in self._given:
            return self._given[number]
        if self._content is None:
            return _main_graph(located.content, number)
        self._given[number] = _main_graph(self._content, number)
        return self._given[number]


_NOT_FOUND = (
    "the model has no names and no constants by which it is found in memory: "
    "give OpenCLDelegate its path"
)
_NOT_TOLD = (
    "the model has several subgraphs, and no names and no constants by which they are told apart"
)


def _main_graph(content: memoryview, number: int) -> Graph | None:
    """Return a subgraph that is run for itself; None: it is called, or damaged and not the first.

    Raises:
        ModelError: the first cannot be read.
    """
    if number == 0:
        return read_subgraph(content, 0)
    try:
        return None if number in _called(content) else read_subgraph(content, number)
    except ModelError as error:  # TFLite may never run it
        _log.warning("subgraph %d is left to the CPU: %s", number, error)
        return None


def _called(content: memoryview) -> set[int]:
    """Return the subgraphs that operators call: bodies of control flow and the like."""
    model = File(content).root()
    ops = [read_code(c)[0] for c in model.tables("operator_codes", "operator code")]
    found: set[int] = set()
    for subgraph in model.tables("subgraphs", "subgraph"):
        for operator in subgraph.tables("operators", "operator"):
            code = operator.scalar("opcode_index")
            if code < len(ops):
                options = options_of(operator, ops[code])
                found.update(number for name, number in options.items() if "subgraph" in name)
    return found


def match_plan(
    graph: Graph, plan: Sequence[PlannedNode], shapes: Shapes, constants: Constants
) -> set[int]:
    """Return the indices of the file's nodes that no other delegate has taken yet.

    Raises:
        AbiMismatch: the interpreter has another model than the file.
    """
    _match_constants(graph, shapes, constants)
    present = set()
    for planned in plan:
        if planned.op == "DELEGATE":
            continue
        given = f"{planned.op} {planned.inputs} -> {planned.outputs}"
        if planned.index >= len(graph.nodes):
            raise _mismatch(f"node {planned.index}", given, "nothing")
        node = graph.nodes[planned.index]
        inputs = tuple(-1 if tensor is None else tensor.index for tensor in node.inputs)
        outputs = tuple(tensor.index for tensor in node.outputs)
        if (planned.op, planned.inputs, planned.outputs) != (node.op, inputs, outputs):
            known = f"{node.op} {inputs} -> {outputs}"
            raise _mismatch(f"node {planned.index}", given, known)
        present.add(planned.index)
    if len(present) == len(plan) < len(graph.nodes):  # and no delegate has the rest
        raise _mismatch("the model", f"{len(plan)} nodes", f"{len(graph.nodes)} nodes")
    return present


def _match_constants(graph: Graph, shapes: Shapes, constants: Constants) -> None:
    for tensor in graph.tensors:
        if tensor.data is None:
            continue
        if shapes.get(tensor.index) != tensor.shape:
            raise _mismatch(f"constant {tensor.index}", shapes.get(tensor.index), tensor.shape)
        if tensor.is_sparse:
            continue  # TFLite has it as it is stored
        own_bytes = tensor.data.reshape(-1).view(np.uint8)
        if not np.array_equal(constants.get(tensor.index, own_bytes), own_bytes):
            raise _mismatch(f"constant {tensor.index}", "of other values", "another")


def _mismatch(what: str, given: object, known: object) -> AbiMismatch:
    return AbiMismatch(
        f"{what} is {given} in the interpreter, {known} in the delegate's file: "
        "give both the same model"
    )
