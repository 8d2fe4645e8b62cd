# SPDX-License-Identifier: Apache-2.0
"""Attaches subgraphs to the nodes that run them, reading each once.

They are a STABLEHLO_COMPOSITE's decomposition, CALL_ONCE's initialisation, and the combining
function of STABLEHLO_REDUCE_WINDOW or STABLEHLO_SCATTER. WHILE and IF call two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from delegate.errors import ModelError
from delegate.graph.ir import Calls, Graph, Node
from delegate.graph.reduced_windows import STABLEHLO
from delegate.graph.resources import ONCE

# Op -> the option that names the subgraph.
BODY_OPTIONS: Mapping[str, str] = {
    "STABLEHLO_COMPOSITE": "decomposition_subgraph_index",
    ONCE: "init_subgraph_index",
    STABLEHLO: "body_subgraph_index",
    "STABLEHLO_SCATTER": "update_computation_subgraph_index",
}
# Op -> the options that name the subgraphs that it calls.
CALL_OPTIONS: Mapping[str, tuple[str, str]] = {
    "WHILE": ("cond_subgraph_index", "body_subgraph_index"),
    "IF": ("then_subgraph_index", "else_subgraph_index"),
}
# Ops that need their subgraph; TFLite may never run the others, or they stay on the CPU.
_NEEDED = frozenset(BODY_OPTIONS) - {ONCE}
# Total of nested bodies: a small file could require 2^30 nodes.
_MOST_NODES = 100_000


def subgraphs_of(node: Node) -> dict[str, Graph]:
    """Return the subgraphs of a node, by option name."""
    if node.calls is not None:
        return dict(zip(CALL_OPTIONS[node.op], node.calls.graphs, strict=True))
    return {} if node.body is None else {BODY_OPTIONS[node.op]: node.body}


class Bodies:
    """The bodies of a model's nodes, by subgraph index."""

    def __init__(self, subgraphs: int) -> None:
        self._subgraphs = subgraphs  # their number in the model
        self._known: dict[int, Graph | None] = {}  # None: being read
        self._nodes: dict[int, int] = {}  # node counts, including nested bodies

    def attach(
        self, number: int, nodes: tuple[Node, ...], read: Callable[[int], Graph]
    ) -> tuple[Node, ...]:
        """Return the nodes of subgraph `number` with their bodies.

        A node gets none if its subgraph is missing, recursive or too large. `read` reads a
        subgraph by index.
        """
        self._known[number] = None
        found = tuple(self._with_bodies(node, read) for node in nodes)
        called = [node.options[option] for node in found for option in subgraphs_of(node)]
        self._nodes[number] = len(nodes) + sum(self._nodes[each] for each in called)
        return found

    def _with_bodies(self, node: Node, read: Callable[[int], Graph]) -> Node:
        if node.is_custom:
            return node
        if (name := BODY_OPTIONS.get(node.op)) is not None:
            return replace(node, body=self._body(node, name, read))
        if node.op not in CALL_OPTIONS:
            return node
        called = [self._body(node, name, read) for name in CALL_OPTIONS[node.op]]
        graphs = tuple(each for each in called if each is not None)
        return replace(node, calls=Calls(graphs)) if len(graphs) == len(called) else node

    def _body(self, node: Node, option: str, read: Callable[[int], Graph]) -> Graph | None:
        called = node.options.get(option, -1)
        if not 0 < called < self._subgraphs:
            return None
        if called not in self._known:
            try:
                self._known[called] = read(called)
            except ModelError:
                if node.op in _NEEDED:
                    raise
                self._known[called] = None
        body = self._known[called]
        return None if body is None or self._nodes[called] > _MOST_NODES else body
