# SPDX-License-Identifier: Apache-2.0
"""A graph whose node writes a variable tensor: SVDF with weights that make it a delay by one run.

The state is a pair for each of UNITS: what came the run before, and what comes now.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from delegate.graph.ir import Graph, Node, Tensor
from tests.support.model import const, graph_of, op, t

UNITS = 4
SHAPE = (1, UNITS)


def variable(name: str = "state") -> Tensor:
    """Return the state of a delay."""
    return t((1, 2 * UNITS), "float32", name=name, is_variable=True)


def delay(x: Tensor, y: Tensor, state: Tensor) -> Node:
    """Return the node that gives in y what x was a run before."""
    features = const(np.eye(UNITS, dtype=np.float32))
    times = const(np.array([[1, 0]] * UNITS, np.float32))
    return op("SVDF", [x, features, times, None, state], [y], {"rank": 1})


def delays(states: Sequence[Tensor], more: Sequence[str] = ()) -> Graph:
    """x -> through a delay for each of these states, which may come twice, after ABS or others.

    `more`: ops of one input, each between two delays.
    """
    x = last = t(SHAPE, "float32", name="x")
    nodes = []
    for number, state in enumerate(states):
        if number and more:
            made = t(SHAPE, "float32", name=f"between {number}")
            nodes.append(op(more[(number - 1) % len(more)], [last], [made]))
            last = made
        made = t(SHAPE, "float32", name=f"y {number}")
        nodes.append(delay(last, made, state))
        last = made
    return graph_of(nodes, [x], [last])
