# SPDX-License-Identifier: Apache-2.0
"""Which resource variables become kept tensors, and what the graph is then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate.graph.ir import Resources
from delegate.graph.resources import resources_of, touches, with_resources
from delegate.inspect import Graph
from tests.support.model import const, graph_of, op, t
from tests.support.variables import SHAPE, TEN, beginning, counter, handle


def file_of(*graphs: Graph) -> list[Graph]:
    return [replace(graph, subgraph=number) for number, graph in enumerate(graphs)]


def test_each_version_is_a_tensor_of_the_variable_s_name() -> None:
    main, first = file_of(counter(), beginning(TEN))
    graph = with_resources(main, resources_of([main, first]))
    assert {name: values.tolist() for name, values in graph.resources.initial.items()} == {
        "sum": [[10, 10, 10, 10]]
    }
    _, _, read, add, assign, again, _ = graph.nodes
    (found, held), (left,) = read.inputs, assign.outputs
    assert again.inputs[1] is assign.inputs[1] is held is graph.nodes[1].outputs[0]
    assert found is not None
    assert (found.state_name, left.state_name, found.shape, left.dtype) == (
        "sum",
        "sum",
        SHAPE,
        "float32",
    )
    assert (assign.inputs[0], again.inputs[0]) == (add.outputs[0], left)
    numbers = [tensor.index for tensor in graph.tensors]
    assert sorted(numbers[len(main.tensors) :], reverse=True) == numbers[len(main.tensors) :]
    assert max(numbers[len(main.tensors) :]) < -2
    assert [node.index for node in graph.nodes] == [node.index for node in main.nodes]
    assert all(tensor.is_folded for node in graph.nodes[:2] for tensor in node.outputs)


def test_a_graph_without_variables_stays() -> None:
    x, y = t(SHAPE, "float32"), t(SHAPE, "float32")
    graph = graph_of([op("ABS", [x], [y])])
    assert not touches(graph)
    assert with_resources(graph, Resources(why_not="never")) is graph


def test_variables_stay_on_the_cpu_with_a_reason() -> None:
    main, first = counter(), beginning(TEN)
    node, made = handle("sum")
    value, result = t((2,), "float32"), t(SHAPE, "float32")
    other_shape = graph_of([node, op("READ_VARIABLE", [made], [value])], [], [value])
    computes = graph_of([*first.nodes, op("ABS", [const(TEN["sum"])], [result])], [], [])
    condition = t((1,), "bool")
    calls = graph_of(
        [op("IF", [condition], [], {"then_subgraph_index": 0, "else_subgraph_index": 1})]
    )
    composed = graph_of([op("STABLEHLO_COMPOSITE", [], [], {"decomposition_subgraph_index": 0})])
    elsewhere = graph_of([node, op("CAST", [made], [t((), "int32")])])
    for graphs, why in (
        ([main], "CALL_ONCE calls graph 1, which is not there"),
        ([main, beginning({})], "no CALL_ONCE begins the resource variable 'sum'"),
        ([main, computes], "the graph of CALL_ONCE has ABS"),
        ([main, first, other_shape], "has float32 of (2,), and the resource variable 'sum' begins"),
        ([main, first, calls], "a body of control flow touches a resource variable"),
        ([main, first, composed], "a body of control flow touches a resource variable"),
        ([main, first, elsewhere], "node 1 (CAST) takes a resource variable"),
        (
            [counter(once=1), first, counter(once=3), beginning({"sum": TEN["sum"] + 1})],
            "the resource variable 'sum' has two different initial values",
        ),
        (
            [main, graph_of([node, op("ASSIGN_VARIABLE", [made, value], [])])],
            "has a computed initial value",
        ),
        ([main, first, graph_of([node], [], [made])], "is an input or output of a graph"),
        (
            [main, first, graph_of([op("READ_VARIABLE", [t((), "resource")], [result])])],
            "has a handle of another graph",
        ),
    ):
        found = resources_of(file_of(*graphs))
        assert why in found.why_not
        assert with_resources(main, found).resources is found


@pytest.mark.parametrize("container", ["", "shelf"])
def test_names_have_their_container(container: str) -> None:
    made = t((), "resource")
    options = {"container": container, "shared_name": "a"}
    nodes = [
        op("VAR_HANDLE", [], [made], options),
        op("ASSIGN_VARIABLE", [made, const(np.ones(2, np.float32))], []),
    ]
    once = graph_of([op("CALL_ONCE", [], [], {"init_subgraph_index": 1})])
    found = resources_of(file_of(once, graph_of(nodes, [], [])))
    assert [*found.initial] == [f"{container}/a".strip("/")]
