# SPDX-License-Identifier: Apache-2.0
"""The subgraphs that single nodes run, which are theirs alone: each is read once.

A STABLEHLO_COMPOSITE is decomposed into one, CALL_ONCE begins resource variables by one, and one of
STABLEHLO_REDUCE_WINDOW or STABLEHLO_SCATTER says how two elements are combined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from delegate.errors import ModelError
from delegate.graph.ir import Graph, Node
from delegate.graph.reduced_windows import STABLEHLO
from delegate.graph.resources import ONCE

# Op -> the option that names the subgraph.
BODY_OPTIONS: Mapping[str, str] = {
    "STABLEHLO_COMPOSITE": "decomposition_subgraph_index",
    ONCE: "init_subgraph_index",
    STABLEHLO: "body_subgraph_index",
    "STABLEHLO_SCATTER": "update_computation_subgraph_index",
}
# Of all bodies in one another: a small file could ask for 2^30 nodes.
_MOST_NODES = 100_000


class Bodies:
    """The bodies of a model's nodes, by the numbers of their subgraphs."""

    def __init__(self, subgraphs: int) -> None:
        self._subgraphs = subgraphs  # of the model
        self._known: dict[int, Graph | None] = {}  # None: it is not read to its end yet
        self._nodes: dict[int, int] = {}  # of each, with those of the ones in it

    def attach(
        self, number: int, nodes: tuple[Node, ...], read: Callable[[int], Graph]
    ) -> tuple[Node, ...]:
        """Return the nodes of subgraph `number` with their bodies.

        A node has none where the subgraph is missing, calls itself or becomes too large. `read`
        reads one by its number.
        """
        self._known[number] = None
        found = tuple(self._with_body(node, read) for node in nodes)
        called = [node.options[BODY_OPTIONS[node.op]] for node in found if node.body]
        self._nodes[number] = len(nodes) + sum(self._nodes[each] for each in called)
        return found

    def _with_body(self, node: Node, read: Callable[[int], Graph]) -> Node:
        option = "" if node.is_custom else BODY_OPTIONS.get(node.op, "")
        called = node.options.get(option, -1)
        if not 0 < called < self._subgraphs:
            return node
        if called not in self._known:
            try:
                self._known[called] = read(called)
            except ModelError:
                if node.op != ONCE:  # whose variables then stay on the CPU
                    raise
                self._known[called] = None
        body = self._known[called]
        if body is None or self._nodes[called] > _MOST_NODES:
            return node
        return replace(node, body=body)
