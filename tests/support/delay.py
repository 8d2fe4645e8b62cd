# SPDX-License-Identifier: Apache-2.0
"""An SVDF whose weights make it a delay line of one run: the smallest node with a variable tensor.

The state holds a pair for each of UNITS: the input of the last run, and the current one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from delegate.graph.ir import Graph, Node, Tensor
from tests.support.model import const, graph_of, op, t

UNITS = 4
SHAPE = (1, UNITS)


def variable(name: str = "state") -> Tensor:
    """Return the variable tensor of a delay."""
    return t((1, 2 * UNITS), "float32", name=name, is_variable=True)


def delay(x: Tensor, y: Tensor, state: Tensor) -> Node:
    """Return the node whose output y is the x of the run before."""
    features = const(np.eye(UNITS, dtype=np.float32))
    times = const(np.array([[1, 0]] * UNITS, np.float32))
    return op("SVDF", [x, features, times, None, state], [y], {"rank": 1})


def delays(states: Sequence[Tensor], more: Sequence[str] = ()) -> Graph:
    """Return a chain of delays, one for each state; a state may occur twice.

    `more`: unary ops, one between two delays.
    """
    x = last = t(SHAPE, "float32", name="x")
    nodes = []
    for number, state in enumerate(states):
        if number and more:
            tensor = t(SHAPE, "float32", name=f"between {number}")
            nodes.append(op(more[(number - 1) % len(more)], [last], [tensor]))
            last = tensor
        tensor = t(SHAPE, "float32", name=f"y {number}")
        nodes.append(delay(last, tensor, state))
        last = tensor
    return graph_of(nodes, [x], [last])
