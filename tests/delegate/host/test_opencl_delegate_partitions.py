# SPDX-License-Identifier: Apache-2.0
"""Partitions: prediction of TFLite's, small and surplus ones, and their profiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegate import DelegateError, DeviceInfo
from delegate.graph.partition import partitions
from delegate.inspect import Graph, write_model
from delegate.run.executor import Executor
from tests.support.compare import inputs_for, interpreter, invoke, refusals
from tests.support.model import graph_of, op, t
from tests.support.nets import (
    CHAIN,
    LEFT,
    POOL,
    TAKEN,
    THREE_PARTITIONS,
    assert_equal_outputs,
    assert_runs_exactly,
    conv_pool,
    delegate_for,
    image,
    net,
)
from tests.support.tiers import slow
from tflite_opencl.models.build import numbers


@pytest.mark.parametrize(
    ("options", "expected", "reason"),
    [
        (
            {"min_nodes_per_partition": 0},
            [],
            "a partition of 1 that costs a CPU less than its copies",
        ),
        ({"min_nodes_per_partition": 1}, [[0, 1, 2], [4], [6, 7]], None),
        (
            {"min_nodes_per_partition": 2},
            [[0, 1, 2], [6, 7]],
            "a partition of 1: min_nodes_per_partition is 2",
        ),
        (
            {"min_nodes_per_partition": 3},
            [[0, 1, 2]],
            "a partition of 1: min_nodes_per_partition is 3",
        ),
        ({"min_nodes_per_partition": 9}, [], "a partition of 1: min_nodes_per_partition is 9"),
        ({"max_delegated_partitions": 3}, [[0, 1, 2], [4], [6, 7]], None),
        (
            {"max_delegated_partitions": 2},
            [[0, 1, 2], [6, 7]],
            "3 partitions: max_delegated_partitions is 2",
        ),
        (
            {"max_delegated_partitions": 1},
            [[0, 1, 2]],
            "3 partitions: max_delegated_partitions is 1",
        ),
    ],
    ids=lambda value: (
        "-".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else ""
    ),
)
def test_small_and_surplus_partitions_stay_on_cpu(
    device: DeviceInfo, options: dict[str, int], expected: list[list[int]], reason: str | None
) -> None:
    model = write_model(THREE_PARTITIONS)
    delegate = delegate_for(model, device, LEFT, **options)
    assert_runs_exactly(model, THREE_PARTITIONS, delegate)
    assert [sorted(group) for group in delegate.partitions] == expected
    assert refusals(delegate).get(4) == reason


@pytest.mark.parametrize(
    ("nodes", "outputs", "expected"),
    [
        ([("AVERAGE_POOL_2D", [0], 1), ("ADD", [1, 1], 2)], [], [[0, 1]]),
        ([("AVERAGE_POOL_2D", [0], 1), ("ADD", [0, 1], 2)], [1], [[0, 1]]),
        (
            [("AVERAGE_POOL_2D", [0], 1), ("MAX_POOL_2D", [1], 2), ("ADD", [1, 2], 3)],
            [],
            [[0], [2]],
        ),
        (
            [("AVERAGE_POOL_2D", [0], 1), ("MAX_POOL_2D", [0], 2), ("ADD", [1, 2], 3)],
            [],
            [[0], [2]],
        ),
        ([("MAX_POOL_2D", [0], 1), ("AVERAGE_POOL_2D", [0], 2), ("ADD", [1, 2], 3)], [2], [[1, 2]]),
        (
            [
                ("AVERAGE_POOL_2D", [0], 1),
                ("AVERAGE_POOL_2D", [1], 2),
                ("MAX_POOL_2D", [1], 3),
                ("ADD", [2, 3], 4),
            ],
            [],
            [[0, 1], [3]],
        ),
        ([("AVERAGE_POOL_2D", [0], 1), ("AVERAGE_POOL_2D", [0], 2)], [], [[0, 1]]),
        ([("MUL", [0, 0], 1), ("ADD", [1, 0], 2), ("MUL", [2, 1], 3)], [2], [[1]]),
    ],
    ids=[
        "chain",
        "output-read-inside-too",
        "left-op-in-the-middle",
        "diamond-with-a-left-branch",
        "diamond-left-branch-first",
        "branch-inside-and-outside",
        "two-branches",
        "between-two-left-ops",
    ],
)
def test_predicted_partitions_are_tflites(
    device: DeviceInfo,
    nodes: Sequence[tuple[str, Sequence[int], int]],
    outputs: Sequence[int],
    expected: list[list[int]],
) -> None:
    graph = net(nodes, outputs)
    model = write_model(graph)
    delegate = delegate_for(model, device)
    assert_runs_exactly(model, graph, delegate)
    assert [sorted(group) for group in delegate.partitions] == expected


@st.composite
def nets(draw: st.DrawFn) -> Graph:
    nodes: list[tuple[str, list[int], int]] = []
    for result in range(1, draw(st.integers(2, 13)) + 1):
        name = draw(st.sampled_from([*TAKEN, *LEFT]))
        # Mostly recent tensors, otherwise nearly all graphs are shallow.
        recent = st.integers(max(0, result - 4), result - 1)
        count = 1 if "POOL" in name else 2
        nodes.append((name, [draw(recent) for _ in range(count)], result))
    return net(nodes, draw(st.lists(st.integers(1, len(nodes)), max_size=2)))


@slow
@settings(max_examples=60)
@given(nets())
def test_random_graphs_have_predicted_partitions_and_exact_results(
    device: DeviceInfo, graph: Graph
) -> None:
    model = write_model(graph)
    delegate = delegate_for(model, device)
    ours, inputs = interpreter(model, delegate), inputs_for(graph)[0]
    claimed = {node.index for node in graph.nodes if node.op in TAKEN}
    assert set(range(len(graph.nodes))) - set(refusals(delegate)) == claimed
    predicted = partitions(graph, claimed)
    assert [sorted(group) for group in delegate.partitions] == [
        [node.index for node in partition.nodes] for partition in predicted
    ]
    assert_equal_outputs(invoke(ours, inputs), invoke(interpreter(model), inputs))


def test_executors_of_predicted_partitions_run(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    created: list[Executor] = []

    def counted(*arguments: Any, **options: Any) -> Executor:
        created.append(Executor(*arguments, **options))
        return created[-1]

    monkeypatch.setattr("delegate.run.local_backend.Executor", counted)
    model = write_model(THREE_PARTITIONS)
    delegate = delegate_for(model, device)
    interpreter(model, delegate)
    assert len(created) == len(delegate.partitions) == 3


def test_profile_has_a_row_for_each_launch(device: DeviceInfo) -> None:
    graph = conv_pool()
    model = write_model(graph)
    delegate = delegate_for(model, device, profiling=True)
    assert delegate.profile() == []
    ours = interpreter(model, delegate)
    assert delegate.profile() == []
    for _ in range(2):
        invoke(ours, inputs_for(graph)[0])
    rows = delegate.profile()
    assert [(row.node, row.op) for row in rows][-1] == (1, "AVERAGE_POOL_2D")
    assert {row.node for row in rows} == {0, 1}
    assert rows[-1].kernel in ("pool_2d_quant8", "pool_2d_vector_quant8")
    for row in rows:
        assert row.kernel.startswith(("conv_2d", "pool_2d"))
        assert row.alternative
        assert row.global_size > 0
        assert 0 < row.microseconds < 10e6


def test_profile_covers_every_partition(device: DeviceInfo) -> None:
    model = write_model(THREE_PARTITIONS)
    delegate = delegate_for(model, device, profiling=True)
    invoke(interpreter(model, delegate), inputs_for(THREE_PARTITIONS)[0])
    assert delegate.profile() == []  # the interpreter was destroyed, with its launches
    ours = interpreter(model, delegate)
    invoke(ours, inputs_for(THREE_PARTITIONS)[0])
    assert [row.node for row in delegate.profile()] == [0, 1, 2, 4, 6, 7]


def test_profile_requires_option(device: DeviceInfo) -> None:
    with pytest.raises(DelegateError, match="make the delegate with profiling=True"):
        delegate_for(write_model(CHAIN), device).profile()


@pytest.mark.parametrize(("least", "taken"), [(1, [*range(4), 5, 7, 8]), (2, [*range(4), 7, 8])])
def test_nodes_after_one_given_back_for_its_size_are_claimed(
    device: DeviceInfo, least: int, taken: list[int]
) -> None:
    """TFLite lacks a size that a node on the device computes; the delegate folds it."""
    first, pooled = image(1, 4, 4, 4), image(1, 4, 4, 4)
    flat, squared, sums, last = (image(1, 64) for _ in range(4))
    shape, batch, sizes = t((4,), "int32"), t((), "int32"), t((2,), "int32")
    zero, one = numbers([0]), numbers([1])
    graph = graph_of(
        [
            op("ADD", [source := image(1, 4, 4, 4), source], [first]),
            op("SHAPE", [first], [shape], {"out_type": "int32"}),
            op("STRIDED_SLICE", [shape, zero, one, one], [batch], {"shrink_axis_mask": 1}),
            op("PACK", [batch, numbers(64)], [sizes], {"values_count": 2}),
            op("MAX_POOL_2D", [first], [pooled], POOL),
            op("RESHAPE", [pooled, sizes], [flat]),
            op("MUL", [flat, flat], [squared]),
            op("ADD", [squared, squared], [sums]),
            op("ADD", [sums, sums], [last]),
        ]
    )
    model = write_model(graph)
    delegate = delegate_for(model, device, min_nodes_per_partition=least)
    assert_runs_exactly(model, graph, delegate)
    assert [*range(9)] == sorted({*taken, *refusals(delegate)})
