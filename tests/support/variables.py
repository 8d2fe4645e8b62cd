# SPDX-License-Identifier: Apache-2.0
"""Models with resource variables, as converters write them: CALL_ONCE initialises them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, Node, Tensor
from tests.support.model import const, graph_of, op, t
from tests.support.subgraphs import write_subgraphs

SHAPE = (1, 4)


def handle(name: str) -> tuple[Node, Tensor]:
    """Return the node that names a variable, and its output."""
    tensor = t((), "resource", name=f"handle of {name}")
    return op("VAR_HANDLE", [], [tensor], {"container": "", "shared_name": name}), tensor


def beginning(values: Mapping[str, NDArray[Any]]) -> Graph:
    """Return the graph that initialises variables with these values."""
    nodes: list[Node] = []
    for name, array in values.items():
        node, resource = handle(name)
        nodes += [node, op("ASSIGN_VARIABLE", [resource, const(array)], [])]
    return graph_of(nodes, [], [])


def counter(more: Sequence[Node] = (), once: int = 1) -> Graph:
    """Return x -> s, s * x, where s is 10 plus the sum of all x so far; the variable is read twice.

    `more`: nodes between the assignment and the second read. `once`: the initialising subgraph.
    """
    x, before, after, again, y = (t(SHAPE, "float32", name=name) for name in "xbasy")
    node, resource = handle("sum")
    nodes = [
        op("CALL_ONCE", [], [], {"init_subgraph_index": once}),
        node,
        op("READ_VARIABLE", [resource], [before]),
        op("ADD", [before, x], [after]),
        op("ASSIGN_VARIABLE", [resource, after], []),
        *more,
        op("READ_VARIABLE", [resource], [again]),
        op("MUL", [again, x], [y]),
    ]
    return graph_of(nodes, [x], [after, y])


TEN = {"sum": np.full(SHAPE, 10, np.float32)}


def counter_model() -> bytes:
    """Return the model of `counter`."""
    return write_subgraphs(counter(), beginning(TEN))
