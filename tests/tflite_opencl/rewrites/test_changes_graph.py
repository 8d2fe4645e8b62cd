# SPDX-License-Identifier: Apache-2.0
"""Graphs of new nodes: indices, names, order, and dropped tensors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate.format.reader import read_model
from delegate.format.writer import write_model
from delegate.graph.ir import Graph, Node, Tensor
from tests.support.model import const, graph_of, op, t
from tflite_opencl.rewrites.changes import new_tensor, rebuilt


def chain() -> Graph:
    """Return x -RELU-> a, (a, 2) -MUL-> b, (b, a) -ADD-> y, and an unread constant."""
    x, a, b, y = (t((2, 3), name=name) for name in "xaby")
    two = const(np.float32([[2]]), name="two")
    nodes = [op("RELU", [x], [a]), op("MUL", [a, two], [b]), op("ADD", [b, a], [y])]
    graph = graph_of(nodes)
    spare = replace(const(np.float32([7]), name="spare"), index=len(graph.tensors))
    return replace(graph, tensors=(*graph.tensors, spare))


def tensor(graph: Graph, name: str) -> Tensor:
    (result,) = (t for t in graph.tensors if t.name == name)
    return result


def assert_numbered(graph: Graph) -> None:
    assert [t.index for t in graph.tensors] == list(range(len(graph.tensors)))
    assert [n.index for n in graph.nodes] == list(range(len(graph.nodes)))
    own = set(graph.tensors)
    for node in graph.nodes:
        assert {t for t in (*node.inputs, *node.outputs) if t is not None} <= own
    assert {*graph.inputs, *graph.outputs} <= own


def test_same_nodes_are_the_same_graph() -> None:
    graph = chain()
    assert rebuilt(graph, graph.nodes) is graph
    assert rebuilt(graph, list(graph.nodes), {}) is graph


def test_unused_tensors_are_dropped() -> None:
    graph = chain()
    relu, _, add = graph.nodes
    a = tensor(graph, "a")
    new = rebuilt(graph, [relu, replace(add, inputs=(a, a))])
    assert_numbered(new)
    assert [t.name for t in new.tensors] == ["x", "a", "y", "spare"]
    assert [t.origin for t in new.tensors] == [None, None, 4, 5]
    assert new.tensors[0] is graph.tensors[0]
    assert [node.op for node in read_model(write_model(new)).nodes] == ["RELU", "ADD"]


def test_origin_survives_second_rewrite() -> None:
    graph = chain()
    relu, _, add = graph.nodes
    a = tensor(graph, "a")
    once = rebuilt(graph, [relu, replace(add, inputs=(a, a))])
    second = once.nodes[1]
    x = once.inputs[0]
    twice = rebuilt(once, [replace(second, inputs=(x, x))])
    assert_numbered(twice)
    assert [(t.name, t.origin) for t in twice.tensors] == [("x", None), ("y", 4), ("spare", 5)]


def test_new_tensors_have_unique_names() -> None:
    graph = chain()
    relu, mul, add = graph.nodes
    new_ones = [new_tensor("a", (2, 3), "float32") for _ in range(2)]
    steps: list[Node] = [
        replace(relu, outputs=(new_ones[0],)),
        Node(-1, "RELU6", 1, (new_ones[0],), (new_ones[1],)),
        Node(-1, "RELU", 1, (new_ones[1],), relu.outputs),
        mul,
        add,
    ]
    new = rebuilt(graph, steps)
    assert_numbered(new)
    assert [t.name for t in new.tensors] == ["x", "a", "two", "b", "y", "spare", "a_1", "a_2"]
    assert [t.origin for t in new.tensors[-2:]] == [-1, -1]
    assert [node.op for node in new.nodes] == ["RELU", "RELU6", "RELU", "MUL", "ADD"]


def test_changed_tensor_is_replaced_everywhere() -> None:
    graph = chain()
    x, y = graph.inputs[0], graph.outputs[0]
    new = rebuilt(
        graph, graph.nodes, {x: replace(x, dtype="float16"), y: replace(y, dtype="float16")}
    )
    assert_numbered(new)
    assert new.inputs[0].dtype == new.outputs[0].dtype == "float16"
    assert new.nodes[0].inputs == new.inputs
    assert new.nodes[2].outputs == new.outputs
    assert new.nodes[1] is graph.nodes[1]


def test_tensor_can_be_replaced_by_new_one() -> None:
    graph = chain()
    two = tensor(graph, "two")
    three = new_tensor("three", (1, 1), "float32", data=np.float32([[3]]))
    new = rebuilt(graph, graph.nodes, {two: three})
    assert_numbered(new)
    assert [t.name for t in new.tensors] == ["x", "a", "three", "b", "y", "spare"]


def test_unread_input_stays() -> None:
    graph = chain()
    add = graph.nodes[2]
    two = tensor(graph, "two")
    new = rebuilt(graph, [replace(add, inputs=(two, two))])
    assert_numbered(new)
    assert [t.name for t in new.inputs] == ["x"]


def test_unsorted_graph_is_refused() -> None:
    graph = chain()
    relu, mul, add = graph.nodes
    with pytest.raises(ValueError, match="ADD reads 'b' before a node makes it"):
        rebuilt(graph, [relu, add, mul])
    with pytest.raises(ValueError, match="'a' is made twice"):
        rebuilt(graph, [relu, relu, mul, add])
