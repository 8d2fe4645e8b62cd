# SPDX-License-Identifier: Apache-2.0
"""Verdicts and programs, with ops and devices that answer as told."""

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
from delegate.graph.verdict import Loss
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
    found = compiler.verdicts(graph, TARGET, check, exclude)
    assert [(index, name) for index, name, _ in found] == [(n.index, n.op) for n in graph.nodes]
    return [reason for _, _, reason in found]


def test_what_lowers_and_passes_the_check_runs() -> None:
    graph = net([("ADD", [0, 0], 1), ("MUL", [1, 0], 2), ("ADD", [2, 1], 3)])
    assert reasons(graph) == [None, "MUL is beyond us", None]


def test_a_node_that_child_processes_died_of_is_told_from_one_that_is_refused() -> None:
    graph = net([("ADD", [0, 0], 1), ("MUL", [1, 0], 2)])
    found = compiler.verdicts(graph, TARGET, lambda _: Loss("children died of it"))
    assert [verdict.is_lost for verdict in found] == [True, False]


def test_excluded_ops_are_not_even_lowered() -> None:
    graph = net([("ADD", [0, 0], 1), ("MUL", [1, 0], 2)])
    excluded = "excluded by exclude_ops"
    assert reasons(graph, works, "MUL") == [None, excluded]
    assert reasons(graph, works, "MUL", "ADD") == [excluded, excluded]


def test_nodes_out_of_order_are_all_refused() -> None:
    graph = net([("ADD", [0, 0], 1), ("ADD", [1, 1], 2), ("ADD", [0, 0], 3)])
    first, second, third = graph.nodes
    why = f"the nodes are out of order: node 1 reads tensor {first.outputs[0].index}, which node 0 "
    assert reasons(replace(graph, nodes=(second, first, third))) == [f"{why}computes"] * 3
    loop = replace(first, inputs=(first.outputs[0], first.inputs[1]))
    assert reasons(replace(graph, nodes=(loop, second, third)))[2] is not None


def test_a_constant_that_is_an_input_is_not_believed() -> None:
    x, both, middle, y = t((2,), "int32"), const([1, 2]), t((2,), "int32"), t((2,), "int32")
    nodes = [op("ADD", [both, both], [middle]), op("ADD", [x, middle], [y])]
    graph = infer(graph_of(nodes, [x, both]))
    (first,) = {t.index for t in graph.nodes[0].inputs if t is not None}
    why = f"tensor {first} is a constant and an input of the graph, too"
    assert reasons(graph) == [why, None]
    assert not graph.nodes[0].outputs[0].is_folded
    assert graph.nodes[0].outputs[0].ranges is None


def test_one_alternative_that_passes_is_enough_and_the_chosen_one_is_used() -> None:
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


def test_a_node_of_which_no_alternative_passes_says_the_last_reason() -> None:
    graph = net([("ADD", [0, 0], 1)])

    def none(alternative: Alternative) -> str | None:
        return f"{alternative.name} does not build"

    assert reasons(graph, none) == ["second does not build"]

    def choose(node: Node, alternatives: Sequence[Alternative]) -> Alternative:
        raise Unsupported("none builds")

    with pytest.raises(Unsupported, match=r"node 0 \(ADD\): none builds"):
        compiler.compile_partition(partition_of(graph, [0]), TARGET, choose)


def test_state_no_output_and_no_alternative_are_refused() -> None:
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
    made = [t((4,), "int8") for _ in range(3)]
    return graph_of(
        [
            op(name, [t((4,), "int8"), shape], [made[0]]),
            op("ADD", [made[0], made[0]], [made[1]]),
            op("ADD", [made[1], made[1]], [made[2]]),
        ]
    )


def test_all_that_follows_an_unknown_shape_is_refused() -> None:
    why = "a tensor's shape is known only at run time"
    computed, constant = t((1,), "int32"), const(np.array([4], np.int32))
    assert reasons(shaped(computed, "TILE")) == ["TILE is beyond us", why, why]
    assert reasons(shaped(constant, "TILE")) == ["TILE is beyond us", None, None]
    # Whatever the numbers are, their product has the shape that the inputs' shapes say.
    assert reasons(shaped(computed, "MUL")) == ["MUL is beyond us", None, None]
    assert reasons(shaped(computed, "ADD")) == [None, None, None]


def test_as_many_places_as_hold_are_known_of_a_constant_alone() -> None:
    why, after = "how many places it gives is known only at run time", t((2, 1), "int64")
    for holds, expected in (
        (t((3,), "bool"), [why, "a tensor's shape is known only at run time"]),
        (const(np.array([True, False, True])), [None, None]),
    ):
        found = t((2, 1), "int64")
        graph = graph_of([op("WHERE", [holds], [found]), op("ADD", [found, found], [after])])
        assert reasons(infer(graph)) == expected


def test_the_choices_that_may_gain_most_are_made_first() -> None:
    """A start measures for some seconds, and not all nodes."""
    shapes = [(1, 4, 4, 8), (1, 4, 4, 8), (1, 32, 32, 8), (1, 4, 4, 8)]
    values = [t(shape, "float32") for shape in shapes]
    nodes = [
        op("RELU", [values[0]], [values[1]]),
        op("PAD", [values[1]], [values[2]]),
        op("MAX_POOL_2D", [values[2]], [values[3]]),
    ]
    graph = graph_of(nodes, [values[0]], [values[3]])
    asked: list[str] = []

    def choose(node: Node, alternatives: Sequence[Alternative]) -> Alternative:
        asked.append(node.op)
        return alternatives[0]

    partition = partition_of(graph, [0, 1, 2])
    program = compiler.compile_partition(partition, TARGET, choose)
    assert asked == ["PAD", "MAX_POOL_2D", "RELU"]
    assert [step.op for step in program.steps] == ["RELU", "PAD", "MAX_POOL_2D"]
