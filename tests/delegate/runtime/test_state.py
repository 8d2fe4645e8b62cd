# SPDX-License-Identifier: Apache-2.0
"""Where kept values lie between the runs of executors, and when they are copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from delegate import DeviceError, DeviceInfo
from delegate.graph.kept import carried, kept_tensors
from delegate.inspect import Graph
from delegate.runtime.device import Device
from delegate.runtime.executor import Executor
from delegate.runtime.kernels import Kernels
from delegate.runtime.layout import as_bytes
from delegate.runtime.state import State
from tests.delegate.runtime.test_executor import program_of
from tests.support.deal import any_driver
from tests.support.model import graph_of, op, t
from tests.support.opencl import opencl_error

pytestmark = any_driver
SHAPE, PART = (5, 3), (1, 3)


class Bed:
    """Two executors of one State: one writes a row of the value, the other adds to all of it."""

    def __init__(self, device: DeviceInfo) -> None:
        self._opened = Device(device)
        old, new = (t(SHAPE, "int32", name=name) for name in ("old", "new"))
        row, at, x = t(PART, "int32", name="row"), t((2,), "int32"), t(SHAPE, "int32", name="x")
        update = op("DYNAMIC_UPDATE_SLICE", [old, row, at], [new])
        self.graphs = [
            carried(graph_of([update], [old, row, at], [new]), {"new": "old"}),
            carried(graph_of([op("ADD", [old, x], [new])], [old, x], [new]), {"new": "old"}),
        ]
        self.state = State(self._opened)
        self.state.add(kept_tensors(self.graphs[0]))
        self.kernels = Kernels(self._opened)
        self.executors = [self.executor(graph) for graph in self.graphs]
        self.expected = np.zeros(SHAPE, np.int32)

    def executor(self, graph: Graph) -> Executor:
        return Executor(self._opened, self.kernels, program_of(graph), state=self.state)

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


@pytest.fixture
def bed(device: DeviceInfo) -> Bed:
    return Bed(device)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list with an element for each copy from buffer to buffer."""
    real: Any = cl.enqueue_copy
    made: list[int] = []

    def counted(queue: Any, target: Any, source: Any, **places: Any) -> Any:
        if isinstance(target, cl.Buffer) and isinstance(source, cl.Buffer):
            made.append(places["byte_count"])
        return real(queue, target, source, **places)

    monkeypatch.setattr(cl, "enqueue_copy", counted)
    return made


def test_runs_of_one_executor_copy_nothing(bed: Bed, copies: list[int]) -> None:
    bed.update(1, 7)
    assert copies == [60]
    bed.update(3, 8)
    bed.update(1, 9)
    assert copies == [60]
    assert bed.is_right
    assert bed.is_right
    assert copies == [60] * 2
    bed.update(0, 5)
    assert copies == [60] * 2
    assert bed.is_right


def test_executors_take_it_from_each_other(bed: Bed, copies: list[int]) -> None:
    bed.update(1, 7)
    bed.add(1)
    copies.clear()
    bed.add(2)
    assert copies == [60]  # from where it is left to where it is found
    bed.update(2, 4)
    assert copies == [60] * 2
    bed.add(3)
    assert bed.is_right


def test_it_outlives_the_executor_that_has_it(bed: Bed) -> None:
    bed.update(1, 7)
    bed.executors[0].close()
    bed.add(1)
    bed.executors[1].close()
    assert bed.is_right
    bed.executors = [bed.executor(graph) for graph in bed.graphs]
    bed.update(4, 3)
    assert bed.is_right


def test_what_is_put_or_begun_anew_is_found(bed: Bed) -> None:
    bed.update(1, 7)
    bed.expected[:] = 2
    bed.state.put({"old": bed.expected[np.newaxis].copy()})
    bed.update(0, 1)
    assert bed.is_right
    bed.state.reset()
    bed.expected[:] = 0
    bed.add(6)
    assert bed.is_right


def test_launches_alone_leave_it_as_it_is(bed: Bed) -> None:
    bed.update(1, 7)
    for executor in bed.executors:
        executor.repeat(3)
    assert bed.is_right
    bed.update(2, 8)
    row, at = np.full(PART, 5, np.int32), np.array([0, 0], np.int32)
    bed.executors[0].steps().run([as_bytes(row), as_bytes(at)], [], (), {})
    assert bed.is_right
    bed.update(3, 9)
    assert bed.is_right


def test_an_executor_that_cannot_give_it_back_loses_it(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
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
