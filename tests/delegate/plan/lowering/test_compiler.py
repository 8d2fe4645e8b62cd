# SPDX-License-Identifier: Apache-2.0
"""Verdicts and programs, with fake ops and devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from delegate import ops
from delegate.errors import Unsupported
from delegate.graph.infer import infer
from delegate.graph.ir import Graph, Node, Tensor
from delegate.graph.partition import partition_of
from delegate.graph.verdict import KilledReason
from delegate.launch import Alternative
from delegate.plan.lowering import compiler
from delegate.target import Target
from tests.support.model import const, graph_of, op, t
from tests.support.nets import net

FIRST, SECOND = Alternative("first", ()), Alternative("second", ())
TARGET = Target()


@pytest.fixture(autouse=True)
def _two_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    def lower(node: Node, target: Target) -> tuple[Alternative, ...]:
        assert target is TARGET
        if node.op in ("MUL", "TILE"):
            raise Unsupported(f"{node.op} is beyond us")
        return () if node.op == "ABS" else (FIRST, SECOND)

    monkeypatch.setattr(ops, "lower", lower)


def works(alternative: Alternative) -> str | None:
    return None


def takes(chosen: Alternative) -> compiler.Choose:
    def choose(node: Node, alternatives: Sequence[Alternative]) -> Alternative:
        assert alternatives == (FIRST, SECOND)
        return chosen

    return choose


def reasons(graph: Graph, check: compiler.Check = works, *exclude: str) -> list[str | None]:
    result = compiler.verdicts(graph, TARGET, check, exclude)
    assert [(index, name) for index, name, _ in result] == [(n.index, n.op) for n in graph.nodes]
    return [reason for _, _, reason in result]


def test_node_that_lowers_and_passes_check_is_supported() -> None:
    graph = net([("ADD", [0, 0], 1), ("MUL", [1, 0], 2), ("ADD", [2, 1], 3)])
    assert reasons(graph) == [None, "MUL is beyond us", None]


def test_banned_node_differs_from_refused_one() -> None:
    graph = net([("ADD", [0, 0], 1), ("MUL", [1, 0], 2)])
    result = compiler.verdicts(graph, TARGET, lambda _: KilledReason("children died of it"))
    assert [verdict.is_lost for verdict in result] == [True, False]


def test_excluded_ops_are_not_lowered() -> None:
    graph = net([("ADD", [0, 0], 1), ("MUL", [1, 0], 2)])
    excluded = "excluded by exclude_ops"
    assert reasons(graph, works, "MUL") == [None, excluded]
    assert reasons(graph, works, "MUL", "ADD") == [excluded, excluded]


def test_unsorted_nodes_are_refused() -> None:
    graph = net([("ADD", [0, 0], 1), ("ADD", [1, 1], 2), ("ADD", [0, 0], 3)])
    first, second, third = graph.nodes
    why = f"the nodes are out of order: node 1 reads tensor {first.outputs[0].index}, which node 0 "
    assert reasons(replace(graph, nodes=(second, first, third))) == [f"{why}computes"] * 3
    loop = replace(first, inputs=(first.outputs[0], first.inputs[1]))
    assert reasons(replace(graph, nodes=(loop, second, third)))[2] is not None


def test_constant_that_is_an_input_is_ignored() -> None:
    x, both, middle, y = t((2,), "int32"), const([1, 2]), t((2,), "int32"), t((2,), "int32")
    nodes = [op("ADD", [both, both], [middle]), op("ADD", [x, middle], [y])]
    graph = infer(graph_of(nodes, [x, both]))
    (first,) = {t.index for t in graph.nodes[0].inputs if t is not None}
    why = f"tensor {first} is a constant and an input of the graph, too"
    assert reasons(graph) == [why, None]
    assert not graph.nodes[0].outputs[0].is_folded
    assert graph.nodes[0].outputs[0].ranges is None


def test_one_passing_alternative_suffices() -> None:
    graph = net([("ADD", [0, 0], 1)])
    partition = partition_of(graph, [0])

    def only_second(alternative: Alternative) -> str | None:
        return "too new" if alternative is FIRST else None

    for check, expected in ((works, FIRST), (only_second, SECOND)):
        assert reasons(graph, check) == [None]
        program = compiler.compile_partition(partition, TARGET, takes(expected))
        assert [step.alternative for step in program.steps] == [expected]
        assert [(step.node_index, step.op) for step in program.steps] == [(0, "ADD")]
        assert (program.inputs, program.outputs) == (partition.inputs, partition.outputs)


def test_refusal_has_reason_of_last_alternative() -> None:
    graph = net([("ADD", [0, 0], 1)])

    def none(alternative: Alternative) -> str | None:
        return f"{alternative.name} does not build"

    assert reasons(graph, none) == ["second does not build"]

    def choose(node: Node, alternatives: Sequence[Alternative]) -> Alternative:
        raise Unsupported("none builds")

    with pytest.raises(Unsupported, match=r"node 0 \(ADD\): none builds"):
        compiler.compile_partition(partition_of(graph, [0]), TARGET, choose)


def test_unsupported_nodes_are_refused() -> None:
    state = t((4,), "int8", is_variable=True)
    graph = graph_of(
        [
            op("ADD", [state, state], [t((4,), "int8")]),
            op("ADD", [t((4,), "int8")], []),
            op("ABS", [t((4,), "int8")], [t((4,), "int8")]),
        ]
    )
    assert reasons(graph) == ["state in a variable tensor", "no output", "no way to run it"]


def shaped(shape: Tensor, name: str) -> Graph:
    tensors = [t((4,), "int8") for _ in range(3)]
    return graph_of(
        [
            op(name, [t((4,), "int8"), shape], [tensors[0]]),
            op("ADD", [tensors[0], tensors[0]], [tensors[1]]),
            op("ADD", [tensors[1], tensors[1]], [tensors[2]]),
        ]
    )


def test_nodes_after_unknown_shape_are_refused() -> None:
    why = "a tensor's shape is known only at run time"
    computed, constant = t((1,), "int32"), const(np.array([4], np.int32))
    assert reasons(shaped(computed, "TILE")) == ["TILE is beyond us", why, why]
    assert reasons(shaped(constant, "TILE")) == ["TILE is beyond us", None, None]
    # The product's shape follows from the inputs' shapes, whatever the values.
    assert reasons(shaped(computed, "MUL")) == ["MUL is beyond us", None, None]
    assert reasons(shaped(computed, "ADD")) == [None, None, None]


def test_dimension_that_depends_on_values_needs_constant() -> None:
    why, after = "how many places it gives is known only at run time", t((2, 1), "int64")
    for holds, expected in (
        (t((3,), "bool"), [why, "a tensor's shape is known only at run time"]),
        (const(np.array([True, False, True])), [None, None]),
    ):
        result = t((2, 1), "int64")
        graph = graph_of([op("WHERE", [holds], [result]), op("ADD", [result, result], [after])])
        assert reasons(infer(graph)) == expected


def test_choices_with_most_to_gain_come_first() -> None:
    """A start has only some seconds, which are not enough for all nodes."""
    shapes = [(1, 4, 4, 8), (1, 4, 4, 8), (1, 32, 32, 8), (1, 4, 4, 8)]
    values = [t(shape, "float32") for shape in shapes]
    nodes = [
        op("RELU", [values[0]], [values[1]]),
        op("PAD", [values[1]], [values[2]]),
        op("MAX_POOL_2D", [values[2]], [values[3]]),
    ]
    graph = graph_of(nodes, [values[0]], [values[3]])
    order: list[str] = []

    def choose(node: Node, alternatives: Sequence[Alternative]) -> Alternative:
        order.append(node.op)
        return alternatives[0]

    partition = partition_of(graph, [0, 1, 2])
    program = compiler.compile_partition(partition, TARGET, choose)
    assert order == ["PAD", "MAX_POOL_2D", "RELU"]
    assert [step.op for step in program.steps] == ["RELU", "PAD", "MAX_POOL_2D"]
