# SPDX-License-Identifier: Apache-2.0
"""The graphs of the interpreters that call: of a given file, or as TFLite holds them."""

from __future__ import annotations

import logging

from delegate.errors import ModelError
from delegate.graph.ir import Graph
from delegate.tflite.locate import locate
from delegate.tflite.node_options import options_of
from delegate.tflite.reader import read_code, read_subgraph
from delegate.tflite.source import Source, named, open_model
from delegate.tflite.table import File

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
