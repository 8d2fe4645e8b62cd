# SPDX-License-Identifier: Apache-2.0
"""Models with resource variables, as converters write them: CALL_ONCE begins what graphs touch."""

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
    made = t((), "resource", name=f"handle of {name}")
    return op("VAR_HANDLE", [], [made], {"container": "", "shared_name": name}), made


def beginning(values: Mapping[str, NDArray[Any]]) -> Graph:
    """Return the graph that begins variables with these."""
    nodes: list[Node] = []
    for name, array in values.items():
        node, made = handle(name)
        nodes += [node, op("ASSIGN_VARIABLE", [made, const(array)], [])]
    return graph_of(nodes, [], [])


def counter(more: Sequence[Node] = (), once: int = 1) -> Graph:
    """x -> the sum of all x so far and 10, and that sum times x, by a variable read twice.

    `more`: nodes between the assignment and the second read. `once`: the graph that begins it.
    """
    x, before, after, again, y = (t(SHAPE, "float32", name=name) for name in "xbasy")
    node, made = handle("sum")
    nodes = [
        op("CALL_ONCE", [], [], {"init_subgraph_index": once}),
        node,
        op("READ_VARIABLE", [made], [before]),
        op("ADD", [before, x], [after]),
        op("ASSIGN_VARIABLE", [made, after], []),
        *more,
        op("READ_VARIABLE", [made], [again]),
        op("MUL", [again, x], [y]),
    ]
    return graph_of(nodes, [x], [after, y])


TEN = {"sum": np.full(SHAPE, 10, np.float32)}


def counter_model() -> bytes:
    """Return the model of `counter`."""
    return write_subgraphs(counter(), beginning(TEN))
