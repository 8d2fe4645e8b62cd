# SPDX-License-Identifier: Apache-2.0
"""Placement of state between runs of executors, and when it is copied."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from delegate import DeviceError, DeviceInfo
from delegate.graph.persistent import persistent_tensors, with_carry
from delegate.inspect import Graph
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.dispatch.planned import planned_executor
from delegate.plan.layout import as_bytes
from delegate.run.device import Device
from delegate.run.executor import Executor
from delegate.run.state import State
from tests.support.model import graph_of, op, t
from tests.support.opencl import opencl_error
from tests.support.schedules import fallback_schedule

SHAPE, PART = (5, 3), (1, 3)


class Bed:
    """Two executors of one State: one writes a row of the value, the other adds to all rows.

    `has_arena`: both share an arena.
    """

    def __init__(self, device: DeviceInfo, has_arena: bool = False) -> None:
        self._opened = Device(device)
        old, new = (t(SHAPE, "int32", name=name) for name in ("old", "new"))
        row, at, x = t(PART, "int32", name="row"), t((2,), "int32"), t(SHAPE, "int32", name="x")
        update = op("DYNAMIC_UPDATE_SLICE", [old, row, at], [new])
        self.graphs = [
            with_carry(graph_of([update], [old, row, at], [new]), {"new": "old"}),
            with_carry(graph_of([op("ADD", [old, x], [new])], [old, x], [new]), {"new": "old"}),
        ]
        self.state = State(self._opened, has_arena=has_arena)
        self.state.add(persistent_tensors(self.graphs[0]))
        self.kernels = Kernels(self._opened)
        self.executors = [self.executor(graph) for graph in self.graphs]
        self.expected = np.zeros(SHAPE, np.int32)

    def executor(self, graph: Graph) -> Executor:
        arguments = self._opened, self.kernels, fallback_schedule(graph)
        return planned_executor(*arguments, state=self.state, region=self.state.region)

    def update(self, place: int, value: int) -> None:
        row = np.full(PART, value, np.int32)
        self.executors[0].run([as_bytes(row), as_bytes(np.array([place, 0], np.int32))], [])
        self.expected[place] = value

    def add(self, value: int) -> None:
        self.executors[1].run([as_bytes(np.full(SHAPE, value, np.int32))], [])
        self.expected += value

    @property
    def is_right(self) -> bool:
        return np.array_equal(self.state.values()["old"][0], self.expected)


@pytest.fixture(params=[False, True], ids=["own arenas", "one arena"])
def bed(device: DeviceInfo, request: pytest.FixtureRequest) -> Bed:
    return Bed(device, request.param)


@pytest.fixture
def apart(device: DeviceInfo) -> Bed:
    return Bed(device)


@pytest.fixture
def shared(device: DeviceInfo) -> Bed:
    return Bed(device, has_arena=True)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets an element for each copy between buffers."""
    real: Any = cl.enqueue_copy
    created: list[int] = []

    def counted(queue: Any, target: Any, source: Any, **places: Any) -> Any:
        if isinstance(target, cl.Buffer) and isinstance(source, cl.Buffer):
            created.append(places["byte_count"])
        return real(queue, target, source, **places)

    monkeypatch.setattr(cl, "enqueue_copy", counted)
    return created


def test_runs_of_one_executor_copy_nothing(bed: Bed, copies: list[int]) -> None:
    bed.update(1, 7)
    bed.update(3, 8)
    assert bed.is_right
    assert bed.is_right
    bed.update(0, 5)
    assert bed.is_right
    assert copies == []


def test_executors_copy_state_from_each_other(apart: Bed, copies: list[int]) -> None:
    apart.update(1, 7)
    apart.add(1)
    copies.clear()
    apart.add(2)
    assert copies == [60]  # from the last output to the next input
    apart.update(2, 4)
    assert copies == [60] * 2
    apart.add(3)
    assert apart.is_right


def test_shared_state_is_not_copied(shared: Bed, copies: list[int]) -> None:
    shared.update(1, 7)
    shared.add(1)
    shared.update(2, 4)
    assert copies == [60]  # ADD writes the new value over the old one
    assert shared.is_right
    (row, at), (x,) = (executor.copy_strategy.memory.inputs for executor in shared.executors)
    assert min(row[0], at[0], x[0]) >= shared.state.region.size_bytes


def test_larger_executor_moves_state_to_larger_arena(shared: Bed) -> None:
    shared.update(1, 7)
    old, wide = t(SHAPE, "int32", name="old"), t((400, 3), "int32", name="wide")
    new, part = t(SHAPE, "int32", name="new"), t(SHAPE, "int32", name="part")
    begin, size = (t((2,), "int32", data=np.array(v, np.int32)) for v in ([2, 0], SHAPE))
    nodes = [op("SLICE", [wide, begin, size], [part]), op("ADD", [old, part], [new])]
    larger = shared.executor(with_carry(graph_of(nodes, [old, wide], [new]), {"new": "old"}))
    arena = larger.copy_strategy.arena
    assert shared.executors[1].copy_strategy.arena is arena
    given = np.arange(1200, dtype=np.int32).reshape(400, 3)
    larger.run([as_bytes(given)], [])
    shared.expected += given[2:7]
    shared.update(0, 3)
    assert shared.executors[0].copy_strategy.arena is arena
    shared.add(2)
    assert shared.is_right
    larger.run([as_bytes(given)], [])
    shared.expected += given[2:7]
    larger.close()
    assert shared.is_right


def test_arena_constants_survive_runs_of_others(shared: Bed) -> None:
    """Launches overwrite them, because both arenas are as small as possible."""
    constant = np.arange(15, dtype=np.int32).reshape(SHAPE)
    old, new = t(SHAPE, "int32", name="old"), t(SHAPE, "int32", name="new")
    graph = graph_of([op("ADD", [old, t(SHAPE, "int32", data=constant)], [new])], [old], [new])
    fixed = shared.executor(with_carry(graph, {"new": "old"}))
    (own,) = (each.offset for each in fixed.copy_strategy.memory.arena_constants)
    assert own in [at for at, _ in shared.executors[1].copy_strategy.memory.inputs]
    for run in (fixed.run, lambda *_: fixed.repeat(2)):
        shared.add(1)
        run([], [])
        shared.expected += constant if run == fixed.run else 0
        assert shared.is_right


def test_state_of_another_shape_needs_another_arena(shared: Bed) -> None:
    shared.update(1, 7)
    arena = shared.executors[0].copy_strategy.arena
    longer = t((6, 3), "int32", name="old")
    shared.state.add([replace(longer, state_name="old")])
    assert shared.state.values()["old"].shape == (1, 6, 3)
    other = shared.state.arena(arena.size, shared.state.region)
    assert other is not None
    assert other.buffer is not arena


def test_state_outlives_its_executor(bed: Bed) -> None:
    bed.update(1, 7)
    bed.executors[0].close()
    bed.add(1)
    bed.executors[1].close()
    assert bed.is_right
    bed.executors = [bed.executor(graph) for graph in bed.graphs]
    bed.update(4, 3)
    assert bed.is_right


def test_written_or_reset_state_is_read(bed: Bed) -> None:
    bed.update(1, 7)
    bed.expected[:] = 2
    bed.state.put({"old": bed.expected[np.newaxis].copy()})
    bed.update(0, 1)
    assert bed.is_right
    bed.state.reset()
    bed.expected[:] = 0
    bed.add(6)
    assert bed.is_right


def test_benchmark_runs_do_not_change_state(bed: Bed) -> None:
    bed.update(1, 7)
    for executor in bed.executors:
        executor.repeat(3)
    assert bed.is_right
    bed.update(2, 8)
    row, at = np.full(PART, 5, np.int32), np.array([0, 0], np.int32)
    bed.executors[0].inspector().run([as_bytes(row), as_bytes(at)], [], (), {})
    assert bed.is_right
    bed.update(3, 9)
    assert bed.is_right


def test_failed_copy_loses_state(apart: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    bed = apart
    bed.update(1, 7)

    def fail(*_: Any, **__: Any) -> None:
        raise opencl_error(cl.Error, "clEnqueueCopyBuffer", cl.status_code.OUT_OF_RESOURCES)

    with monkeypatch.context() as patched:
        patched.setattr(cl, "enqueue_copy", fail)
        bed.executors[0].close()
    for ask in (bed.state.values, lambda: bed.add(1)):
        with pytest.raises(DeviceError, match="the state is lost, as a run failed"):
            ask()
    bed.state.reset()
    bed.expected[:] = 0
    bed.add(1)
    assert bed.is_right
