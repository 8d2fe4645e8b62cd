# SPDX-License-Identifier: Apache-2.0
"""Who makes and who reads a tensor, in a graph and in a part of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from delegate.graph.def_use import DefUse
from delegate.graph.partition import partition_of
from delegate.inspect import Graph
from tests.support.model import const, graph_of, op, t


def chain() -> Graph:
    """x -RELU-> a, (a, 2) -MUL-> b, (b, a) -ADD-> y."""
    x, a, b, y = (t((2, 3), name=name) for name in "xaby")
    two = const(np.float32([[2]]), name="two")
    return graph_of([op("RELU", [x], [a]), op("MUL", [a, two], [b]), op("ADD", [b, a], [y])])


def test_readers_and_makers() -> None:
    graph = chain()
    relu, mul, add = graph.nodes
    (x,), (a,), (b,), (y,) = graph.inputs, relu.outputs, mul.outputs, add.outputs
    links = DefUse(graph)
    assert links.consumers(a) == (mul, add)
    assert links.consumers(y) == ()
    assert [links.producer(each) for each in (x, a, b, y)] == [None, *graph.nodes]
    assert (links.producer(b, "MUL"), links.producer(b, "ADD"), links.producer(None)) == (
        mul,
        None,
        None,
    )
    assert links.sole_consumer(b) is links.sole_consumer(b, "ADD") is add
    assert links.sole_consumer(a) is links.sole_consumer(b, "MUL") is None


def test_a_node_that_reads_twice_counts_twice() -> None:
    x, y, z = t((2,), name="x"), t((2,)), t((2,))
    graph = graph_of([op("RELU", [x], [y]), op("ADD", [y, y], [z])])
    assert len(DefUse(graph).consumers(graph.nodes[0].outputs[0])) == 2
    assert DefUse(graph).sole_consumer(graph.nodes[0].outputs[0]) is None


def test_what_a_caller_reads_has_no_only_reader() -> None:
    graph = chain()
    b = graph.nodes[1].outputs[0]
    assert DefUse(replace(graph, outputs=(b,))).sole_consumer(b) is None
    assert DefUse(partition_of(graph, (0, 1))).sole_consumer(b) is None
