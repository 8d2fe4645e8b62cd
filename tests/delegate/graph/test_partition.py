# SPDX-License-Identifier: Apache-2.0
"""How claimed nodes are grouped, what crosses the borders, and which shapes are unknown.

That TFLite groups alike is tested in tests/delegate/host/test_opencl_delegate.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate.graph.ir import Graph, Node, Tensor
from delegate.graph.mediapipe import is_lacking
from delegate.graph.partition import (
    LEAST_WORK,
    Partition,
    dynamic_tensors,
    partition_of,
    partitions,
    work,
)
from delegate.inspect import write_model
from tests.support.compare import interpreter
from tests.support.model import const, graph_of, op, t
from tests.support.nets import net
from tests.support.nodes import other_nodes, valid_nodes


def claimed_of(graph: Graph) -> set[int]:
    return {node.index for node in graph.nodes if node.op == "ADD"}


def groups(graph: Graph) -> list[list[int]]:
    return [[node.index for node in p.nodes] for p in partitions(graph, claimed_of(graph))]


def borders(partition: Partition) -> tuple[list[int], list[int]]:
    return [x.index for x in partition.inputs], [x.index for x in partition.outputs]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([("ADD", [0, 0], 1), ("ADD", [1, 1], 2)], [[0, 1]]),
        ([("ADD", [0, 0], 1), ("MUL", [1, 1], 2), ("ADD", [2, 2], 3)], [[0], [2]]),
        # The other branch needs nothing of the CPU's: it joins the first group.
        (
            [("ADD", [0, 0], 1), ("MUL", [1, 1], 2), ("ADD", [0, 1], 3), ("ADD", [2, 3], 4)],
            [[0, 2], [3]],
        ),
        # The CPU's nodes come first, so both of the others can be one group.
        ([("MUL", [0, 0], 1), ("ADD", [0, 0], 2), ("ADD", [1, 2], 3)], [[1, 2]]),
        ([("MUL", [0, 0], 1), ("MUL", [1, 1], 2)], []),
    ],
    ids=["chain", "cut", "branch", "cpu-first", "none"],
)
def test_groups(nodes: Sequence[tuple[str, Sequence[int], int]], expected: list[list[int]]) -> None:
    assert groups(net(nodes)) == expected


def test_borders_are_what_is_computed_on_the_other_side() -> None:
    weights, source = const(np.zeros(4, np.int8)), t((4,), "int8")
    a, b, c, d = (t((4,), "int8") for _ in range(4))
    graph = graph_of(
        [
            op("ADD", [source, weights], [a]),  # read inside and outside
            op("ADD", [a, None], [b]),  # read inside, and an output of the graph
            op("ADD", [b, a], [c]),  # read nowhere, and no output
            op("MUL", [a, source], [d]),
        ],
        [source],
        [b, d],
    )
    (partition,) = partitions(graph, {0, 1, 2})
    numbers = {name: graph.nodes[i].outputs[0].index for i, name in enumerate("abcd")}
    assert borders(partition) == ([0], sorted([numbers["a"], numbers["b"]]))
    inner = partition_of(graph, [2, 1])
    assert [node.index for node in inner.nodes] == [1, 2]
    assert borders(inner) == ([numbers["a"]], [numbers["b"]])


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    nodes = [
        (
            draw(st.sampled_from(["ADD", "MUL"])),
            [draw(st.integers(max(0, result - 5), result - 1)) for _ in range(2)],
            result,
        )
        for result in range(1, draw(st.integers(2, 20)))
    ]
    return net(nodes, draw(st.lists(st.integers(1, max(1, len(nodes))), max_size=3)))


@given(graphs())
def test_groups_run_one_after_another_with_all_that_they_need(graph: Graph) -> None:
    found = partitions(graph, claimed_of(graph))
    in_groups = [node.index for partition in found for node in partition.nodes]
    assert sorted(in_groups) == sorted(claimed_of(graph))
    # Run whatever can run, CPU nodes and whole partitions; each node must have its inputs.
    there: set[Tensor | None] = {*graph.inputs}
    waiting: list[tuple[tuple[Node, ...], set[Tensor | None]]] = [
        *(((node,), set(node.inputs)) for node in graph.nodes if node.op == "MUL"),
        *((partition.nodes, set[Tensor | None](partition.inputs)) for partition in found),
    ]
    while waiting:
        nodes, needed = next(entry for entry in waiting if entry[1] <= there)
        inside = set(needed)
        for node in nodes:
            assert set(node.inputs) <= inside
            inside.update(node.outputs)
        there |= inside
        waiting.remove((nodes, needed))


@given(graphs())
def test_a_group_by_itself_has_the_same_borders(graph: Graph) -> None:
    for partition in partitions(graph, claimed_of(graph)):
        again = partition_of(graph, [node.index for node in partition.nodes])
        assert again.nodes == partition.nodes
        assert borders(again) == borders(partition)
        (alone,) = partitions(graph, [node.index for node in partition.nodes])
        assert borders(alone) == borders(partition)


def shape_maker(name: str, sources: Sequence[Tensor | None], is_custom: bool = False) -> Graph:
    made, last = t((4,), "int8"), t((4,), "int8")
    return graph_of([op(name, sources, [made], is_custom=is_custom), op("ABS", [made], [last])])


X = t((1, 4), "int8")


@pytest.mark.parametrize(
    ("name", "sources", "is_dynamic"),
    [
        ("RESHAPE", [X, t((1,), "int32")], True),
        ("RESHAPE", [X, const(np.array([4], np.int32))], False),
        ("EXPAND_DIMS", [X, t((), "int64")], True),
        ("FILL", [t((2,), "int32"), t((), "int8")], True),
        ("PAD", [X, t((2, 2), "int32")], True),
        ("PAD", [X, const(np.zeros((2, 2), np.int32))], False),
        ("ADD", [X, X], False),
        ("ADD", [t((1, 4, 4), "int32"), t((1, 4, 4), "int32")], False),
        ("ADD", [t((4,), "int32"), t((), "int32")], False),
        ("CONV_2D", [X, const(np.zeros(4, np.int8)), None], False),
        ("WHERE", [t((4,), "bool")], True),
        ("WHILE", [X], True),
        ("READ_VARIABLE", [t((), "resource")], True),
        ("ABS", [t((0,), "int8")], False),
        ("ABS", [t((-1,), "int8")], True),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_dynamic_tensors(name: str, sources: list[Tensor | None], is_dynamic: bool) -> None:
    graph = shape_maker(name, sources)
    outputs = {tensor for node in graph.nodes for tensor in node.outputs}
    assert (outputs <= dynamic_tensors(graph, ())) is is_dynamic
    assert (not outputs & dynamic_tensors(graph, ())) is not is_dynamic


def test_a_custom_op_may_make_dynamic_tensors() -> None:
    graph = shape_maker("my op", [X], is_custom=True)
    assert dynamic_tensors(graph, ()) == {n.outputs[0] for n in graph.nodes}


def test_a_claimed_node_has_its_shapes_from_here() -> None:
    graph = shape_maker("RESHAPE", [X, t((1,), "int32")])
    assert dynamic_tensors(graph, {0}) == frozenset()


def test_work_counts_multiplications_and_elements() -> None:
    x, y = t((1, 8, 8, 16), "uint8", 0.5, 3), t((1, 8, 8, 32), "uint8", 0.5, 3)
    weights = const(np.zeros((32, 3, 3, 16), np.uint8), 0.1)
    depth = const(np.zeros((1, 3, 3, 16), np.uint8), 0.1)
    elements = 16 * 8 * 8
    conv = graph_of([op("CONV_2D", [x, weights], [y])])
    assert work(partition_of(conv, [0]).nodes) == elements * (16 + 32) + 8 * 8 * 32 * 9 * 16
    depthwise = graph_of([op("DEPTHWISE_CONV_2D", [x, depth], [x])])
    assert work(partition_of(depthwise, [0]).nodes) == elements * 32 + 8 * 8 * 16 * 9
    shape = t((2,), "int32")
    reshape = graph_of([op("RESHAPE", [x, const(np.array([1, -1], np.int32))], [y])])
    assert work(partition_of(reshape, [0]).nodes) == elements * (16 + 32)
    folded = replace(shape, is_folded=True, data=np.zeros(2, np.int32))
    known = graph_of([op("SHAPE", [x], [folded])])
    assert work(partition_of(known, [0]).nodes) == 0
    assert elements * (16 + 32) < LEAST_WORK


EVERY = (*valid_nodes("uint8").values(), *other_nodes().values())
CUSTOM = {node.op: node for node in EVERY if node.is_custom}


@pytest.mark.parametrize("name", CUSTOM)
def test_which_custom_ops_tflite_lacks(name: str) -> None:
    error = ""
    try:
        interpreter(write_model(graph_of([CUSTOM[name]])))
    except (RuntimeError, ValueError) as refusal:
        error = str(refusal)
    assert ("unresolved custom op" in error) == is_lacking(CUSTOM[name])
