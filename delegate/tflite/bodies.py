# SPDX-License-Identifier: Apache-2.0
"""The subgraphs that nodes are decomposed into (STABLEHLO_COMPOSITE): each is read once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from delegate.graph.ir import Graph, Node

# Of all decompositions in one another: a small file could ask for 2^30 nodes.
_MOST_NODES = 100_000


class Bodies:
    """The decompositions of a model's nodes, by the numbers of their subgraphs."""

    def __init__(self, subgraphs: int) -> None:
        self._subgraphs = subgraphs  # of the model
        self._known: dict[int, Graph | None] = {}  # None: it is not read to its end yet
        self._nodes: dict[int, int] = {}  # of each, with those of the ones in it

    def attach(
        self, number: int, nodes: tuple[Node, ...], read: Callable[[int], Graph]
    ) -> tuple[Node, ...]:
        """Return the nodes of subgraph `number` with their decompositions.

        A node has none where the subgraph is missing, calls itself or becomes too large. `read`
        reads one by its number.
        """
        self._known[number] = None
        found = tuple(self._with_body(node, read) for node in nodes)
        called = [node.options["decomposition_subgraph_index"] for node in found if node.body]
        self._nodes[number] = len(nodes) + sum(self._nodes[each] for each in called)
        return found

    def _with_body(self, node: Node, read: Callable[[int], Graph]) -> Node:
        called = node.options.get("decomposition_subgraph_index", -1)
        is_there = not node.is_custom and 0 < called < self._subgraphs
        if node.op != "STABLEHLO_COMPOSITE" or not is_there:
            return node
        if called not in self._known:
            self._known[called] = read(called)
        body = self._known[called]
        if body is None or self._nodes[called] > _MOST_NODES:
            return node
        return replace(node, body=body)
