# SPDX-License-Identifier: Apache-2.0
"""Finds the graphs of calling interpreters: in a given file, or in TFLite's memory.

They are compared with TFLite's plan, to detect a delegate with another model.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from delegate.errors import AbiMismatch, ModelError
from delegate.format import schema
from delegate.format.reader import Subgraphs, read_code
from delegate.format.source import Source, named, open_model
from delegate.format.stateful import resources_in
from delegate.format.table import File, options_of
from delegate.graph.ir import Graph, Node, Resources
from delegate.graph.partition import CALLERS
from delegate.host.tflite.callbacks import Constants, PlannedNode, Shapes
from delegate.host.tflite.locate import locate
from delegate.host.tflite.mapped_files import MappedFiles
from delegate.host.tflite.marks import Marks, mark_of

_log = logging.getLogger("delegate")
_BODY = "BODY"  # calls a WHILE's body, besides the WHILE


class Graphs:
    """Finds the graph of each interpreter.

    Attributes:
        given: the main graph of the given model.
    """

    def __init__(self, model: Source | Graph | Subgraphs | None, marks: Marks) -> None:
        """`model`: the model of every interpreter, or its parsed form.

        None: each is found in TFLite's memory.

        Raises:
            ModelError: the model cannot be read. OSError: the file cannot be read.
        """
        self._file: _ModelFile | None = None  # of the given model
        self._marks = marks
        # The last interpreter with several graphs, by its mark.
        self._last: tuple[int, _ModelFile] = 0, _ModelFile(Subgraphs(memoryview(b"")))
        self.given: Graph | None = None
        # Of the last interpreter judged: whether each subgraph is inlined at every call, so that
        # TFLite never runs it.
        self._is_inlined: dict[int, bool] = {}
        # Queries about the model as a whole refer to this graph.
        self.main = model.subgraph if isinstance(model, Graph) else 0
        if isinstance(model, Graph):
            self.given = model
        elif isinstance(model, Subgraphs):
            self._file, self.given = _ModelFile(model), model[0]
        elif model is not None:
            with named(model):
                self._file = _ModelFile(Subgraphs(open_model(model)))
                self.given = self._file.subgraphs[0]

    def graph(self, context: int) -> Graph | None:
        """Return the graph of a TfLiteContext; None: it is left to TFLite.

        That applies to damaged graphs except the model's first, and to called ones whose shapes
        change from call to call, that are read by other ops, or that are inlined at every call.

        A graph found in memory has views of TFLite's constants, valid as long as the interpreter.

        Raises:
            ModelError: it is not found, or cannot be read.
        """
        given = self.given
        if given is not None and given.subgraphs == 1:
            return given
        file, number = self._file_of(context)
        if self._is_inlined.get(number):
            return None
        return given if given is not None and number == self.main else file.graph(number)

    def note_calls(self, graph: Graph, taken: Collection[int]) -> None:
        """Record which nodes were taken: graphs that they inline are not judged separately."""
        if graph.subgraph == 0:
            self._is_inlined = {}
        taken = {*taken}
        for node in graph.nodes:
            is_inlined = node.index in taken and node.body is not None
            for number in _called_by(node):
                self._is_inlined[number] = is_inlined and self._is_inlined.get(number, True)

    def resources(self, context: int) -> Resources:
        """Return the resource variables in all graphs of a TfLiteContext's model.

        Raises:
            ModelError: the model is not found.
        """
        return (self._file or self._file_of(context)[0]).resources

    def _file_of(self, context: int) -> tuple[_ModelFile, int]:
        """Return the file of a TfLiteContext's graph, and the subgraph's index.

        Raises:
            ModelError: it is not found.
        """
        mark, last = self._last
        known = last.subgraphs.content if mark and mark == mark_of(context) else None
        located = locate(context, known)
        if located is None:
            raise ModelError(_NOT_FOUND if self.given is None else _NOT_TOLD)
        if located.content is not known:
            last = _ModelFile(Subgraphs(located.content))
            if len(last.subgraphs) > 1:
                self._last = self._marks.of(context), last
        return self._file or last, located.subgraph


_NOT_FOUND = (
    "the model has no names and no constants by which it is found in memory: "
    "give OpenCLDelegate its path"
)
_NOT_TOLD = (
    "the model has several subgraphs, and no names and no constants by which they are told apart"
)


class _ModelFile:
    """A model's graphs as they are judged; results are cached."""

    def __init__(self, subgraphs: Subgraphs) -> None:
        self.subgraphs = subgraphs
        self._graphs: dict[int, Graph | None] = {}

    def graph(self, number: int) -> Graph | None:
        """Return one; None: another op uses its nodes, its shapes change, or it is damaged.

        Raises:
            ModelError: the first cannot be read.
        """
        if number not in self._graphs:
            self._graphs[number] = self._judge(number) if number else self.subgraphs[0]
        return self._graphs[number]

    @cached_property
    def resources(self) -> Resources:
        """The resource variables in all graphs."""
        return resources_in(self.subgraphs)

    def _judge(self, number: int) -> Graph | None:
        try:
            callers = self._callers.get(number, set())
            graph = replace(self.subgraphs[number], is_called=bool(callers))
            why = _left(graph, callers) if callers else None
        except ModelError as error:  # TFLite may never run it
            _log.warning("subgraph %d is left to the CPU: %s", number, error)
            return None
        if why is not None:
            _log.info("subgraph %d is left to the CPU: %s", number, why)
        return graph if why is None else None

    @cached_property
    def _callers(self) -> dict[int, set[str]]:
        """The ops that call subgraphs, by the subgraph's index; for a WHILE's body also _BODY."""
        model = File(self.subgraphs.content).root()
        ops = [read_code(c)[0] for c in model.tables("operator_codes", "operator code")]
        calling = {op for op in ops if _names_subgraphs(op)}
        found: dict[int, set[str]] = {}
        for subgraph in model.tables("subgraphs", "subgraph"):
            for operator in subgraph.tables("operators", "operator"):
                code = operator.scalar("opcode_index")
                if code >= len(ops) or ops[code] not in calling:
                    continue
                op = ops[code]
                for name, number in options_of(operator, op).items():
                    if "subgraph" in name:
                        is_body = op == "WHILE" and name.startswith("body")
                        found.setdefault(number, set()).update((op, _BODY) if is_body else (op,))
        return found


def _called_by(node: Node) -> Iterator[int]:
    """Yield the indices of the subgraphs that a WHILE or an IF calls, transitively."""
    for graph in () if node.calls is None else node.calls.graphs:
        yield graph.subgraph
        for inner in graph.nodes:
            yield from _called_by(inner)


def _names_subgraphs(op: str) -> bool:
    kind = schema.options_class(op)
    return kind is not None and any("subgraph" in name for name in schema.fields(kind[0]))


def _left(graph: Graph, callers: Collection[str]) -> str | None:
    """Return why a called graph stays on the CPU; None: it is judged."""
    # Others read the nodes of the graph they call, such as STABLEHLO_SCATTER its sum.
    if others := {*callers} - CALLERS - {_BODY}:
        return f"{min(others)} calls it"
    for tensor in (*graph.inputs, *graph.outputs):
        if -1 in tensor.shape_signature:
            return f"the size of tensor {tensor.index} is known only at run time"
    if _BODY in callers:
        for given, made in zip(graph.inputs, graph.outputs, strict=False):
            if given.shape != made.shape:
                return f"each round makes tensor {made.index} of another size"
    return None


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
        if planned.index >= len(graph.nodes):
            raise _mismatch(f"node {planned.index}", _words(planned), "nothing")
        node = graph.nodes[planned.index]
        inputs = tuple(-1 if tensor is None else tensor.index for tensor in node.inputs)
        outputs = tuple(tensor.index for tensor in node.outputs)
        if (planned.op, planned.inputs, planned.outputs) != (node.op, inputs, outputs):
            known = PlannedNode(planned.index, node.op, inputs, outputs)
            raise _mismatch(f"node {planned.index}", _words(planned), _words(known))
        present.add(planned.index)
    if len(present) == len(plan) < len(graph.nodes):  # and no delegate has the others
        raise _mismatch("the model", f"{len(plan)} nodes", f"{len(graph.nodes)} nodes")
    return present


def _words(node: PlannedNode) -> str:
    return f"{node.op} {node.inputs} -> {node.outputs}"


_SHORT_BYTES = 1 << 16  # up to this size, bytes are compared before file mappings


def _match_constants(graph: Graph, shapes: Shapes, constants: Constants) -> None:
    mapped = MappedFiles()
    for tensor in graph.tensors:
        if tensor.data is None:
            continue
        if shapes.get(tensor.index) != tensor.shape:
            raise _mismatch(f"constant {tensor.index}", shapes.get(tensor.index), tensor.shape)
        if tensor.is_sparse:
            continue  # identical memory
        own_bytes = tensor.data.reshape(-1).view(np.uint8)
        given = constants.get(tensor.index, own_bytes)
        is_short = own_bytes.nbytes < _SHORT_BYTES
        if not is_short and mapped.are_same(given, own_bytes):
            continue
        if not np.array_equal(given, own_bytes):
            raise _mismatch(f"constant {tensor.index}", "of other values", "another")


def _mismatch(what: str, given: object, known: object) -> AbiMismatch:
    return AbiMismatch(
        f"{what} is {given} in the interpreter, {known} in the delegate's file: "
        "give both the same model"
    )
