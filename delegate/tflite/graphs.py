# SPDX-License-Identifier: Apache-2.0
"""The graphs of the interpreters that call: of a given file, or as TFLite holds them.

TFLite's plan is compared with them: have the interpreter and the delegate the same model?
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from delegate.errors import AbiMismatch, ModelError
from delegate.graph.ir import Graph
from delegate.graph.resources import Resources
from delegate.tflite.callbacks import Constants, PlannedNode, Shapes
from delegate.tflite.locate import locate
from delegate.tflite.reader import read_code, read_subgraph
from delegate.tflite.stateful import resources_in
from delegate.tflite.table import File, Source, named, open_model, options_of

_log = logging.getLogger("delegate")


class Graphs:
    """Finds the graph of each interpreter."""

    def __init__(self, model: Source | Graph | None) -> None:
        """`model`: the one of every interpreter, or a graph of it, which is then not read again.

        None: each is found in the memory of TFLite.

        Raises:
            ModelError: the model cannot be read. OSError: nor can its file.
        """
        self._content: memoryview | None = None
        self._given: dict[int, Graph | None] = {}  # of the given model, by subgraph
        self._resources: Resources | None = None  # of the given model
        # What is asked of the model as a whole is asked of this graph of it.
        self.main = model.subgraph if isinstance(model, Graph) else 0
        if isinstance(model, Graph):
            self._given[self.main] = model
        elif model is not None:
            with named(model):
                self._content = open_model(model)
                self._given[0] = read_subgraph(self._content, 0)

    @property
    def given(self) -> Graph | None:
        """The main graph of the given model, before any interpreter asks."""
        return self._given.get(self.main)

    def graph(self, context: int) -> Graph | None:
        """Return the graph that a TfLiteContext is of; None: TFLite keeps it.

        That is one that is damaged and not the model's first, and a called one whose shapes change
        from call to call, or that is more than run.

        A graph found in memory has views of TFLite's constants, which live as long as the
        interpreter.

        Raises:
            ModelError: it is not found, or cannot be read.
        """
        given = self.given
        if given is not None and given.subgraphs == 1:
            return given
        located = locate(context)
        if located is None:
            raise ModelError(_NOT_FOUND if given is None else _NOT_TOLD)
        number = located.subgraph
        if number in self._given:
            return self._given[number]
        if self._content is None:
            return _graph_of(located.content, number)
        self._given[number] = _graph_of(self._content, number)
        return self._given[number]

    def resources(self, context: int) -> Resources:
        """Return what all graphs of a TfLiteContext's model say of resource variables.

        Raises:
            ModelError: the model is not found.
        """
        if self._content is not None:
            if self._resources is None:
                self._resources = resources_in(self._content)
            return self._resources
        located = locate(context)
        if located is None:
            raise ModelError(_NOT_FOUND)
        return resources_in(located.content)


_NOT_FOUND = (
    "the model has no names and no constants by which it is found in memory: "
    "give OpenCLDelegate its path"
)
_NOT_TOLD = (
    "the model has several subgraphs, and no names and no constants by which they are told apart"
)


def _graph_of(content: memoryview, number: int) -> Graph | None:
    """Return a subgraph; None: its nodes are another op's, its shapes change, or it is damaged.

    Raises:
        ModelError: the first cannot be read.
    """
    if number == 0:
        return read_subgraph(content, 0)
    try:
        callers = _callers(content).get(number, set())
        graph = replace(read_subgraph(content, number), is_called=bool(callers))
        why = _left(graph, callers) if callers else None
    except ModelError as error:  # TFLite may never run it
        _log.warning("subgraph %d is left to the CPU: %s", number, error)
        return None
    if why is not None:
        _log.info("subgraph %d is left to the CPU: %s", number, why)
    return graph if why is None else None


def _left(graph: Graph, callers: Collection[str]) -> str | None:
    """Return why a graph that operators call stays on the CPU; None: it is judged."""
    # Others read the nodes of the graph that they call, such as STABLEHLO_SCATTER its sum.
    if others := {*callers} - _RUNNERS:
        return f"{min(others)} calls it"
    for tensor in (*graph.inputs, *graph.outputs):
        if -1 in tensor.shape_signature:
            return f"the size of tensor {tensor.index} is known only at run time"
    if "BODY" in callers:
        for given, made in zip(graph.inputs, graph.outputs, strict=False):
            if given.shape != made.shape:
                return f"each round makes tensor {made.index} of another size"
    return None


# What runs a graph as a whole.
_RUNNERS = frozenset({"IF", "WHILE", "BODY", "CALL_ONCE"})


def _callers(content: memoryview) -> dict[int, set[str]]:
    """Return the ops that call subgraphs, by the subgraph's number; of a WHILE's body also BODY."""
    model = File(content).root()
    ops = [read_code(c)[0] for c in model.tables("operator_codes", "operator code")]
    found: dict[int, set[str]] = {}
    for subgraph in model.tables("subgraphs", "subgraph"):
        for operator in subgraph.tables("operators", "operator"):
            code = operator.scalar("opcode_index")
            op = ops[code] if code < len(ops) else ""
            for name, number in (options_of(operator, op) if op else {}).items():
                if "subgraph" in name:
                    is_body = op == "WHILE" and name.startswith("body")
                    found.setdefault(number, set()).update((op, "BODY") if is_body else (op,))
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
