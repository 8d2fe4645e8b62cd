# SPDX-License-Identifier: Apache-2.0
"""New shapes reach every place a tensor is named in, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate.graph.edit import (
    of_nodes,
    with_input_shapes,
    with_named_shapes,
    with_shapes,
    with_tensors,
)
from delegate.graph.ir import Graph
from delegate.graph.persistent import with_variables
from delegate.inspect import infer, read_model, write_model
from tests.support.delay import delays, variable
from tests.support.model import const, graph_of, graph_values, op, t
from tests.support.nets import THREE_PARTITIONS, conv_pool


def test_a_new_shape_is_the_same_tensor_wherever_it_is_used() -> None:
    graph = conv_pool()
    source, middle, result = graph.nodes[0].inputs[0], graph.nodes[1].inputs[0], graph.outputs[0]
    assert source is not None
    assert middle is not None
    new = with_shapes(graph, {source.index: (3, 7, 6, 2), middle.index: (3, 7, 6, 5)})
    assert new.inputs[0] is new.nodes[0].inputs[0] is new.tensors[source.index]
    assert new.nodes[0].outputs[0] is new.nodes[1].inputs[0] is new.tensors[middle.index]
    assert new.inputs[0].shape == (3, 7, 6, 2)
    assert new.nodes[0].outputs[0].shape == (3, 7, 6, 5)
    assert new.outputs[0] is result  # whose shape was not named
    assert graph.inputs[0].shape == (1, 7, 6, 2)


def test_a_tensor_inside_of_a_fused_node_is_replaced_too() -> None:
    x, between, z, s = (t((1, 4), "int8", 0.1, name=name) for name in "xbzs")
    node = replace(op("conv_2d_add", [x, z], [s]), inner=(between,))
    wide = replace(between, shape=(2, 4))
    new = with_tensors(Graph((x, z, s), (node,), (x, z), (s,)), {between: wide})
    assert new.nodes[0].inner == (wide,)
    assert new.nodes[0].inputs == node.inputs


def test_nothing_but_the_shape_changes() -> None:
    graph = conv_pool()
    before = graph_values(graph)
    new = graph_values(with_shapes(graph, {graph.inputs[0].index: (3, 7, 6, 2)}))
    assert new["tensors"][0].pop("shape") == (3, 7, 6, 2)
    assert before["tensors"][0].pop("shape") == (1, 7, 6, 2)
    assert new == before


def test_a_graph_whose_shapes_are_right_is_returned_as_it_is() -> None:
    graph = conv_pool()
    assert with_shapes(graph, {}) is graph
    assert with_shapes(graph, {t.index: t.shape for t in graph.tensors}) is graph


def test_constants_keep_their_shape_and_missing_inputs_stay_missing() -> None:
    weights = const(np.zeros((2, 2), np.int8))
    node = op("FULLY_CONNECTED", [t((1, 2), "int8"), weights, None], [t((1, 2), "int8")])
    graph = graph_of([node])
    new = with_shapes(graph, {0: (5, 2), 1: (9, 9)})
    assert new.nodes[0].inputs[0] is new.tensors[0]
    assert new.tensors[0].shape == (5, 2)
    assert new.nodes[0].inputs[1] is graph.tensors[1]
    assert new.nodes[0].inputs[2] is None


def test_inputs_have_the_shapes_that_are_given_and_none_is_open() -> None:
    x = t((1, 1, 1, 3), name="x", shape_signature=(1, -1, -1, 3))
    y = t((1, 4), name="y", shape_signature=(-1, 4))
    graph = graph_of([op("ABS", [x], [t((1, 1, 1, 3))]), op("NEG", [y], [t((1, 4))])])
    for shapes in ({"x": (1, 5, 6, 3)}, {graph.inputs[0].index: (1, 5, 6, 3)}):
        made = with_named_shapes(graph, shapes)
        assert made.inputs[0].shape == made.nodes[0].inputs[0].shape == (1, 5, 6, 3)
        assert (made.inputs[0].shape_signature, made.inputs[1]) == ((), graph.inputs[1])
    assert with_input_shapes(graph, {1: (1, 4)}).inputs[1].shape_signature == ()
    for wrong in ((5, 6, 3), (1, 0, 6, 3)):
        with pytest.raises(ValueError, match=r"input x is .*: .* is no shape of it"):
            with_input_shapes(graph, {0: wrong})
    with pytest.raises(ValueError, match="shapes: there is no input 'z': x, y"):
        with_named_shapes(graph, {"z": (1,)})


def test_part_of_a_graph_has_what_others_read() -> None:
    part = of_nodes(infer(THREE_PARTITIONS), [1, 2, 4])
    assert [(n.index, n.op) for n in part.nodes] == [
        (0, "ADD"),
        (1, "ADD"),
        (2, "AVERAGE_POOL_2D"),
    ]
    assert [t.index for t in part.tensors] == list(range(len(part.tensors)))
    ends = ([t.origin for t in each] for each in (part.inputs, part.outputs))
    # It reads the input, node 0 and node 3; nodes 3 and 5 read what it makes.
    assert [*ends] == [[0, 1, 4], [3, 5]]
    reread = read_model(write_model(part))
    assert [n.op for n in reread.nodes] == [n.op for n in part.nodes]


def test_part_of_a_graph_has_known_results_as_constants() -> None:
    x, size, y = t((2, 3)), t((2,), "int32"), t((2, 3))
    nodes = [op("SHAPE", [x], [size], {"out_type": "int32"}), op("RESHAPE", [x, size], [y], {})]
    known = infer(graph_of(nodes, [x], [y]))
    part = of_nodes(known, [0, 1])
    assert [n.op for n in part.nodes] == ["RESHAPE"]
    (_, sizes) = part.nodes[0].inputs
    assert sizes is not None
    assert sizes.data is not None
    assert sizes.data.tolist() == [2, 3]
    assert not sizes.is_folded


def test_part_of_a_graph_has_one_tensor_for_a_variable() -> None:
    known = with_variables(infer(delays([variable("a"), variable("b")])))
    part = of_nodes(known, [0, 1])
    assert [t.name for t in part.tensors if t.is_variable] == ["a", "b"]
    assert [len(n.outputs) for n in part.nodes] == [1, 1]
    assert all(not t.is_variable for t in (*part.inputs, *part.outputs))
