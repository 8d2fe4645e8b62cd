# SPDX-License-Identifier: Apache-2.0
"""WHILE and IF: which nodes take their place, why they stay, and which shapes are known behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from delegate.graph import infer as infer_module
from delegate.graph import inline
from delegate.graph.infer import infer
from delegate.graph.ir import Calls
from delegate.graph.partition import (
    is_worth_its_launches,
    may_be_dynamic,
    partition_of,
    partitions,
    plain_nodes,
)
from delegate.inspect import Graph, Node, Tensor, read_model, write_model
from tests.support.compare import interpreter, invoke
from tests.support.model import const, graph_of, graph_values, op, t
from tests.support.tiers import slow
from tflite_opencl.conformance.cases.loops import branches, choice, loop, recurrent

SHAPE = (2, 3)


def turning(_: Tensor, own: Sequence[Tensor]) -> tuple[Sequence[Node], Sequence[Tensor]]:
    """Return a body that adds two tensors, and lets them change places."""
    total = t(SHAPE)
    return [op("ADD", own, [total])], [own[1], total]


def two(**keywords: Any) -> list[Tensor]:
    return [t(SHAPE, **keywords), t(SHAPE, **keywords)]


def known(node: Node) -> Node:
    """Return the node with what is known of it as the only one of a graph."""
    return infer(graph_of([node])).nodes[0]


def test_a_loop_is_unrolled() -> None:
    made = known(loop(3, two(), turning))
    assert made.calls is not None
    assert (made.calls.obstacle, made.calls.is_sized) == ("", True)
    first, second, third = plain_nodes([made])
    assert [each.op for each in (first, second, third)] == ["ADD"] * 3
    x, y = made.inputs[1:]
    assert first.inputs == (x, y)
    assert second.inputs == (y, first.outputs[0])
    assert third.inputs == (first.outputs[0], second.outputs[0])
    count, one, other = made.outputs
    assert count.is_folded
    assert int(np.asarray(count.data)) == 3
    assert (one, other) == (second.outputs[0], third.outputs[0])
    assert first.outputs[0].index < 0
    assert {each.index for each in plain_nodes([made])} == {made.index}


def test_no_round_gives_what_came_in() -> None:
    made = known(loop(0, two(), turning))
    assert [(each.op, each.inputs[0]) for each in plain_nodes([made])] == [
        ("RESHAPE", made.inputs[1]),
        ("RESHAPE", made.inputs[2]),
    ]


def test_what_is_carried_in_vain_stays_a_constant() -> None:
    """Of a recurrent network's first state each round knows the values, and shares the weights."""
    made = known(recurrent("lstm", 3, 4, 5).nodes[0])
    nodes = plain_nodes([made])
    assert [each.op for each in nodes].count("FULLY_CONNECTED") == 6
    weights = {each.inputs[1] for each in nodes if each.op == "FULLY_CONNECTED"}
    assert len(weights) == 2
    places = [each.inputs[1].data for each in nodes if each.op == "GATHER" and each.inputs[1]]
    assert [int(place) for place in places if place is not None] == [0, 1, 2]


@pytest.mark.parametrize(("taken", "ops"), [("then", ["MAXIMUM"]), ("else", ["REVERSE_V2"])])
def test_of_a_known_branch_the_other_is_gone(taken: str, ops: list[str]) -> None:
    graph = infer(branches("float32", taken))
    (chosen,) = [node for node in graph.nodes if node.op == "IF"]
    assert [node.op for node in plain_nodes([chosen])] == ops
    made = partition_of(graph, range(len(graph.nodes)))
    assert [node.op for node in made.nodes] == ["REVERSE_V2", *ops, "REVERSE_V2"]
    assert made.indices == (0, 1, 2)
    assert made.inlined == {1: "IF"}


def test_a_loop_of_known_results_is_in_its_partition_without_a_node() -> None:
    x, shape, made = t((2, 3)), t((2,), "int32"), t((2, 3))
    sizes = op("SHAPE", [x], [shape], {"out_type": "int32"})
    looped = loop(2, [shape], lambda _, own: ([], own))
    graph = infer(graph_of([sizes, looped, op("NEG", [x], [made])], [x], [*looped.outputs, made]))
    whole = partition_of(graph, range(3))
    assert {node.op for node in whole.nodes} == {"SHAPE", "NEG"}
    assert whole.indices == (0, 1, 2)
    again = partition_of(graph, whole.indices)
    assert (again.inputs, again.outputs) == (whole.inputs, whole.outputs)


@slow
def test_calls_in_calls_are_looked_at_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these loops runs the one before twice, and has no node when it is unrolled."""
    visited = 0
    fold = infer_module.fold

    def counted(graph: Graph, inline: Any) -> Graph:
        nonlocal visited
        visited += len(graph.nodes)
        return fold(graph, inline)

    monkeypatch.setattr(infer_module, "fold", counted)

    def none(_: Tensor, own: Sequence[Tensor]) -> tuple[Sequence[Node], Sequence[Tensor]]:
        return [], own

    node = loop(1500, [t(SHAPE)], none)
    for _ in range(12):

        def outer(
            _: Tensor, own: Sequence[Tensor], inner: Node = node
        ) -> tuple[Sequence[Node], Sequence[Tensor]]:
            first = replace(inner, inputs=(inner.inputs[0], *own), outputs=fresh(inner))
            again = replace(inner, inputs=(inner.inputs[0], first.outputs[1]), outputs=fresh(inner))
            return [first, again], again.outputs[1:]

        node = loop(2, [t(SHAPE)], outer)
    made = known(node)
    assert made.calls is not None
    assert made.calls.obstacle.endswith("calls lead to more than 32768 nodes")
    assert visited < 2 * 32768


def fresh(node: Node) -> tuple[Tensor, ...]:
    return tuple(replace(each) for each in node.outputs)


def test_what_is_known_later_of_an_input_is_known_inside() -> None:
    """Ranges are found when the loop stands already: its nodes then read the new tensor."""
    x, place = t((4, 3)), t((4,), "int32")
    first = op("ARG_MAX", [x, const(np.array(1, np.int32))], [place], {"output_type": "int32"})

    def body(_: Tensor, own: Sequence[Tensor]) -> tuple[Sequence[Node], Sequence[Tensor]]:
        turned = t((4,), "int32")
        return [op("NEG", [own[0]], [turned])], [turned]

    graph = infer(graph_of([first, loop(1, [place], body)]))
    found, made = graph.nodes
    assert found.outputs[0].ranges is not None
    assert plain_nodes([made])[0].inputs == found.outputs


def _open_count(body: Any = turning) -> Node:
    return loop(t((), "int32"), two(), body)


def _with(node: Node, place: int, graph: Graph) -> Node:
    assert node.calls is not None
    graphs = [*node.calls.graphs]
    graphs[place] = graph
    return replace(node, calls=Calls(tuple(graphs)))


def _body(node: Node) -> Graph:
    assert node.calls is not None
    return node.calls.graphs[1]


def _changed(node: Node, **fields: Any) -> Node:
    """Return a loop whose body takes its last tensor otherwise."""
    body = _body(node)
    last = body.inputs[-1]
    other = replace(last, **fields)
    new = tuple(other if each is last else each for each in body.tensors)
    nodes = tuple(
        replace(each, inputs=tuple(other if i is last else i for i in each.inputs))
        for each in body.nodes
    )
    outputs = tuple(other if each is last else each for each in body.outputs)
    return _with(
        node, 1, replace(body, tensors=new, nodes=nodes, inputs=(*body.inputs[:-1], other),
        outputs=outputs)
    )  # fmt: skip


def _grown(_: Tensor, own: Sequence[Tensor]) -> tuple[Sequence[Node], Sequence[Tensor]]:
    joined = t((4, 3))
    return [op("CONCATENATION", [own[0], own[0]], [joined], {"axis": 0})], [joined, own[1]]


def _inner(_: Tensor, own: Sequence[Tensor]) -> tuple[Sequence[Node], Sequence[Tensor]]:
    nested = loop(t((), "int32"), own, turning)
    count = nested.inputs[1]
    assert count is not None
    made = op("CAST", [own[0]], [t(SHAPE, "int32")])
    first = op("SUM", [made.outputs[0], const(np.array([0, 1], np.int32))], [count])
    return [made, first, nested], [*nested.outputs[2:]]


def _handing_on(*places: int) -> Node:
    """Return a loop whose outputs are a sum (0) or inputs, which count from 1."""

    def body(_: Tensor, own: Sequence[Tensor]) -> tuple[Sequence[Node], Sequence[Tensor]]:
        total = t(SHAPE)
        return [op("ADD", own[:2], [total])], [[total, *own][place] for place in places]

    return loop(2, [*two(), t(SHAPE)], body)


def _out_of_order() -> Node:
    made = loop(2, two(), turning)
    body = _body(made)
    add, counted = body.nodes
    late = replace(add, inputs=(counted.outputs[0], add.inputs[1]))
    return _with(made, 1, replace(body, nodes=(late, counted)))


LEFT: dict[str, tuple[Node, str]] = {
    "count": (_open_count(), "how often it runs is known only at run time"),
    "branch": (
        choice(t((), "bool"), two(), "float32"),
        "which branch runs is known only at run time",
    ),
    "byte": (
        choice(const(np.array(2, np.uint8).view(bool)), two(), "float32"),
        "its condition is a byte besides 0 and 1",
    ),
    "many": (loop(3000, two(), turning), "more than 4096 nodes once unrolled"),
    "endless": (loop(2**31 - 1, two(), turning), "more than 4096 nodes once unrolled"),
    "nested": (
        loop(2, two(), _inner),
        "WHILE in it: how often it runs is known only at run time",
    ),
    "types": (
        _changed(loop(2, two(), turning), dtype="int32"),
        "float32, int32 in a graph that it calls: they must be one",
    ),
    "state": (
        _changed(loop(2, two(), turning), is_variable=True),
        "a graph that it calls keeps state in a variable tensor",
    ),
    "order": (_out_of_order(), "the nodes of a graph that it calls are out of order"),
    **{
        f"handed-on-{name}": (
            node,
            "its body hands an input on to a later place, and TFLite overwrites it before",
        )
        for name, node in {
            "turned": _handing_on(2, 1, 3),
            "later": _handing_on(0, 1, 3),
            "twice": _handing_on(1, 0, 2),
            "last": _handing_on(3, 0, 1),
        }.items()
    },
    "absent": (
        replace(loop(2, two(), turning), inputs=(*loop(2, two(), turning).inputs[:2], None)),
        "an input is left out",
    ),
    "fewer": (
        _with(loop(2, two(), turning), 1, graph_of([op("ABS", [t(SHAPE)], [t(SHAPE)])])),
        "its body has a different number of inputs or outputs",
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_why_a_node_is_not_inlined(name: str) -> None:
    node, why = LEFT[name]
    inputs = [each for each in node.inputs if each is not None and each.data is None]
    made = inline.inlined(node, infer)
    assert made.calls is not None
    assert (made.body, made.calls.obstacle) == (None, why)
    assert plain_nodes([made]) == (made,)
    assert inputs


def test_a_node_that_reads_a_tensor_of_unknown_shape_is_left() -> None:
    places = t((-1, 1), "int64")
    nodes = [op("WHERE", [t(SHAPE, "bool")], [places]), loop(2, [places], _as_it_is)]
    _, made = infer(graph_of(nodes)).nodes
    assert made.calls is not None
    assert (made.body, made.calls.obstacle) == (None, "a tensor's shape is known only at run time")


def _as_it_is(_: Tensor, own: Sequence[Tensor]) -> tuple[Sequence[Node], Sequence[Tensor]]:
    return [], own


@pytest.mark.parametrize("places", [(1, 2, 3), (2, 0, 3), (1, 1, 0), (3, 3, 0), (0, 0, 3)])
def test_what_tflite_does_not_overwrite_is_handed_on(places: tuple[int, ...]) -> None:
    """Of these TFLite's own results are right, as it copies one output after the other."""
    node = _handing_on(*places)
    assert inline.inlined(node, infer).body is not None
    x = [np.full(SHAPE, value, np.float32) for value in (1, 10, 100)]
    now = [*x]
    for _ in range(2):
        now = [[now[0] + now[1], *now][place] for place in places]
    made = interpreter(write_model(graph_of([node], outputs=node.outputs[1:])))
    for got, expected in zip(invoke(made, x), now, strict=True):
        np.testing.assert_array_equal(got, expected)


SIZED: dict[str, tuple[Node, bool]] = {
    "loop": (_open_count(), True),
    "branches": (choice(t((), "bool"), two(), "float32"), True),
    "grows": (_open_count(_grown), False),
    "nested": (loop(2, two(), _inner), True),
    "types": (_changed(_open_count(), dtype="int32"), False),
}


@pytest.mark.parametrize("name", SIZED)
def test_behind_a_call_shapes_are_known_where_tflite_knows_them(name: str) -> None:
    node, expected = SIZED[name]
    outputs = tuple(replace(each, shape=()) for each in node.outputs)
    made = inline.inlined(replace(node, outputs=outputs), infer)
    assert may_be_dynamic(made) is not expected
    shapes = [tensor.shape for tensor in made.outputs]
    if expected:
        assert shapes[-1] == SHAPE
    else:
        assert shapes == [()] * len(shapes)


def test_shapes_of_branches_that_differ_are_not_known() -> None:
    x, condition = t(SHAPE), t((), "bool")
    first, second = t(SHAPE), t(SHAPE)
    graphs = (
        graph_of([op("ABS", [first], [t(SHAPE)])]),
        graph_of([op("TRANSPOSE", [second, const(np.array([1, 0], np.int32))], [t((3, 2))])]),
    )
    node = replace(op("IF", [condition, x], [t(SHAPE)]), calls=Calls(graphs))
    assert may_be_dynamic(inline.inlined(node, infer))


def test_calls_are_grouped_in_the_order_of_the_file() -> None:
    """TFLite runs no IF before one that stands before it, whatever both read."""
    x, y = two()
    first = choice(t((), "bool"), [x, y], "float32")
    second = choice(const(np.array(True)), [x, y], "float32")
    graph = infer(graph_of([op("ABS", [x], [t(SHAPE)]), first, second]))
    assert [each.indices for each in partitions(graph, {0, 2})] == [(0,), (2,)]
    assert [each.indices for each in partitions(graph, {0, 2}, keeps_order=False)] == [(0, 2)]


def test_a_file_has_the_subgraphs_that_nodes_call() -> None:
    graph = graph_of([loop(2, two(), _inner)])
    content = write_model(graph)
    read = read_model(content)
    assert read.subgraphs == 5
    assert write_model(read) == content
    (node,) = read.nodes
    assert node.calls is not None
    (_, body) = node.calls.graphs
    assert body.nodes[2].calls is not None
    assert graph_values(read)["nodes"][0]["options"] == {
        "cond_subgraph_index": 1,
        "body_subgraph_index": 2,
    }


def test_a_loop_of_small_nodes_is_not_worth_its_launches() -> None:
    assert not is_worth_its_launches(known(recurrent("gru", 5, 8, 8).nodes[0]))
    large = [t((1 << 14, 8)), t((1 << 14, 8))]

    def body(_: Tensor, own: Sequence[Tensor]) -> tuple[Sequence[Node], Sequence[Tensor]]:
        total = t(own[0].shape)
        return [op("ADD", own, [total])], [total, own[1]]

    assert is_worth_its_launches(known(loop(3, large, body)))
