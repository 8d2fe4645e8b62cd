# SPDX-License-Identifier: Apache-2.0
"""Which variable tensors become kept ones, and what the graph is then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from delegate.graph.ir import Resources
from delegate.graph.persistent import WRITES, persistent_tensors, with_variables, written_variables
from delegate.graph.shapes import output_shapes
from tests.support.delay import SHAPE, delay, delays, variable
from tests.support.model import const, graph_of, op, t
from tests.support.nodes import other_nodes, valid_nodes


def test_a_node_that_writes_one_makes_its_next_version() -> None:
    state = variable()
    graph = delays([state, variable("other"), state])
    made = with_variables(graph)
    first, between, last = made.nodes
    (found,), (left,) = written_variables(first), written_variables(last)
    assert (graph.tensors[found.index].name, found.state_name) == ("state", "state")
    assert left is first.outputs[1]
    assert left.index < -2
    assert (left.state_name, left.shape, left.dtype) == ("state", state.shape, "float32")
    assert (between.outputs[1].state_name, last.outputs[1].state_name) == ("other", "state")
    assert [tensor.state_name for tensor in persistent_tensors(made)] == ["state", "other"]
    assert [len(node.outputs) for node in graph.nodes] == [1, 1, 1]
    assert with_variables(made) is made


def test_each_graph_of_a_file_has_its_own() -> None:
    graph = replace(delays([variable()]), subgraph=2)
    assert [tensor.state_name for tensor in persistent_tensors(with_variables(graph))] == [
        "state of graph 2"
    ]


def test_names_that_are_taken_are_numbers() -> None:
    graph = delays([variable(), variable(), variable("held")])
    graph = replace(graph, resources=Resources({"held": np.zeros(SHAPE, np.float32)}))
    found = [tensor for tensor in graph.tensors if tensor.is_variable]
    kept = {tensor.state_name for tensor in persistent_tensors(with_variables(graph))}
    assert kept == {str(tensor.index) for tensor in found if tensor.name != "held"}


def test_what_is_left_as_it_is() -> None:
    x, y = t(SHAPE, "float32"), t(SHAPE, "float32")
    given, shown, text = variable(), variable(), t(SHAPE, "string", is_variable=True)
    constant = replace(const(np.zeros((1, 8), np.float32)), is_variable=True)
    made = t(SHAPE, "float32", is_variable=True)
    twice = op("UNIDIRECTIONAL_SEQUENCE_LSTM", [x, *[None] * 17, *[variable()] * 2], [y])
    custom = op("SVDF", [x, None, None, None, variable()], [y], is_custom=True)
    for graph in (
        graph_of([delay(x, y, given)], [x, given], [y]),
        graph_of([delay(x, y, shown)], [x], [y, shown]),
        graph_of([delay(x, y, constant)], [x], [y]),
        graph_of([op("ABS", [text], [y])], [x], [y]),
        graph_of([op("ABS", [x], [made]), op("ABS", [made], [y])], [x], [y]),
        graph_of([twice], [x], [y]),
        graph_of([op("ABS", [x], [y])], [x], [y]),
    ):
        assert with_variables(graph) is graph
    read = with_variables(graph_of([custom], [x], [y]))
    assert (read.nodes[0].inputs[4], len(read.nodes[0].outputs)) == (persistent_tensors(read)[0], 1)


def test_shapes_of_versions_are_the_variable_s() -> None:
    (node,) = with_variables(delays([variable()])).nodes
    assert output_shapes(node) == (SHAPE, (1, 8))
    assert output_shapes(delays([variable()]).nodes[0]) == (SHAPE,)


def test_every_op_with_variable_tensors_is_known_to_write_them() -> None:
    found: dict[str, set[int]] = {}
    for node in (*valid_nodes("int8").values(), *other_nodes().values()):
        places = {place for place, each in enumerate(node.inputs) if each and each.is_variable}
        if places and node.options.get("kernel_type") != "BASIC":
            found.setdefault(node.op, set()).update(places)
    assert found == {name: {*places} for name, places in WRITES.items()}
