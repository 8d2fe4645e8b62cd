# SPDX-License-Identifier: Apache-2.0
"""IF nodes whose branches have outputs of different shapes, at the sizes of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from delegate.inspect import Graph, Node


def parting(made: Any, graph: Graph) -> list[bool]:
    """Return for each node with subgraphs whether it is or contains such an IF.

    `made`: an interpreter without a delegate, after a run; `graph`: of its model.
    """
    calling = (each for each in graph.nodes if each.calls is not None)
    return [any(_parts(made, choice) for choice in _choices(each)) for each in calling]


def _choices(node: Node) -> Iterator[Node]:
    """Yield each IF that a node is or contains."""
    if node.op == "IF":
        yield node
    for called in node.calls.graphs if node.calls is not None else ():
        for each in called.nodes:
            yield from _choices(each)


def _parts(made: Any, choice: Node) -> bool:
    assert choice.calls is not None
    numbers = choice.options["then_subgraph_index"], choice.options["else_subgraph_index"]
    then, otherwise = (
        [tuple(made._get_tensor_details(each.index, number)["shape"]) for each in called.outputs]
        for number, called in zip(numbers, choice.calls.graphs, strict=True)
    )
    return then != otherwise
