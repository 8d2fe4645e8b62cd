# SPDX-License-Identifier: Apache-2.0
"""Programs and executors of whole graphs, and the comparison of two executors' outputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from delegate.engine import Engine
from delegate.graph.partition import partition_of
from delegate.host.tflite.library import installed_rules
from delegate.inspect import Graph
from delegate.launch import Schedule, size_bytes
from delegate.plan.lowering.compiler import compile_partition
from delegate.plan.planners.planner import Planner
from delegate.plan.record import LaunchPlan
from delegate.plan.tuning.dispatch import Selection
from delegate.run.executor import Executor
from delegate.target import Target
from tests.support.cases import Strategy


def schedule_of(graph: Graph, strategy: Strategy) -> Schedule:
    """Return the program of a whole graph, with each node's first alternative."""
    partition = partition_of(graph, range(len(graph.nodes)))
    return compile_partition(partition, strategy.target, lambda node, alternatives: alternatives[0])


def fallback_schedule(graph: Graph) -> Schedule:
    """Return the same with each node's last alternative, the fallback kernel."""
    partition = partition_of(graph, range(len(graph.nodes)))
    return compile_partition(partition, Target(), lambda node, alternatives: alternatives[-1])


def executor_of(
    engine: Engine, graph: Graph, nodes: Sequence[int] | None = None, batch: int = 1
) -> Executor:
    """Return an executor of some nodes of a graph; None: all of them."""
    partition = partition_of(graph, range(len(graph.nodes)) if nodes is None else nodes)
    return engine.executor(partition, engine.target(installed_rules()), batch)


def selection_of(
    engine: Engine, graph: Graph, nodes: Sequence[int] | None = None, batch: int = 1
) -> Selection:
    """Return the program and dispatch mode that an engine without a child selects for nodes."""
    partition = partition_of(graph, range(len(graph.nodes)) if nodes is None else nodes)
    return planner_of(engine).select(partition, engine.target(installed_rules()), batch)


def planner_of(engine: Engine) -> Planner:
    """Return the planner of an engine without a child."""
    assert isinstance(engine._planning, Planner)
    return engine._planning


def constant_bytes(engine: Engine) -> int:
    """Return the size of all constants on the device, for an engine without a child."""
    return planner_of(engine).weights.size_bytes


def launches_of(executor: Executor) -> list[LaunchPlan]:
    """Return the launches of an executor, in order."""
    return [launch for step in executor.plan.steps for launch in step.launches]


def assert_same_runs(expected: Executor, other: Executor, runs: int) -> None:
    """Assert that two executors of one program and batch give equal bytes for random inputs."""
    rng = np.random.default_rng(1)
    plan, batch = expected.plan, expected.batch
    for _ in range(runs):
        inputs = [rng.integers(0, 256, batch * size_bytes(t)).astype(np.uint8) for t in plan.inputs]
        results = []
        for executor in (expected, other):
            outputs = [np.zeros(batch * size_bytes(t), np.uint8) for t in plan.outputs]
            executor.run(inputs, outputs)
            results.append(outputs)
        for wanted, got in zip(*results, strict=True):
            np.testing.assert_array_equal(got, wanted)
