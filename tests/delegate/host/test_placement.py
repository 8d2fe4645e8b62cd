# SPDX-License-Identifier: Apache-2.0
"""Options.placement: decisions by given times, and what is measured on a device."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from delegate import DeviceInfo, OpenCLDelegate, Options
from delegate import engine as start_engine
from delegate.engine import Engine, open_engine
from delegate.errors import DeviceError
from delegate.graph.partition import Partition, partition_of
from delegate.host import placement
from delegate.host.placement import Placement, Timings
from delegate.inspect import Graph, write_model
from tests.support.compare import RUNTIME, interpreter, invoke
from tests.support.delay import SHAPE, delays, variable
from tests.support.model import const, graph_of, op, t
from tests.support.nets import (
    THREE_PARTITIONS,
    assert_equal_outputs,
    assert_runs_exactly,
    conv_pool,
    delegate_for,
    image,
    net,
)
from tests.support.tiers import slow
from tests.support.without_tflite import needs_tflite
from tflite_opencl.conformance.cases.loops import loop

pytestmark = needs_tflite
NODES = (0, 1, 2)
FASTEST, INF = 1.05, math.inf


@pytest.mark.parametrize(
    ("timings", "factor", "left", "reason"),
    [
        (Timings(0.31, 0.12), FASTEST, NODES, "faster on the CPU: 0.12 ms, 0.31 ms on the device"),
        (Timings(0.12, 0.31), FASTEST, None, ""),
        (Timings(1.04, 1.0), FASTEST, None, ""),  # a tie
        (Timings(1.06, 1.0), FASTEST, NODES, "faster on the CPU: 1.00 ms, 1.06 ms on the device"),
        (Timings(1.9, 1.0), 2.0, None, ""),
        (Timings(21.0, 10.0), 2.0, NODES, "faster on the CPU: 10 ms, 21 ms on the device"),
        (Timings(99.0, 1.0), INF, None, ""),
        (
            Timings(1.0, 2.0, 0.5, (2,)),
            FASTEST,
            (2,),
            "faster on the CPU: cut in two, the partition takes 0.50 ms, 1.00 ms on the device",
        ),
        # Within the factor more nodes on the device are preferred.
        (Timings(1.0, 2.0, 0.97, (2,)), FASTEST, None, ""),
        (Timings(1.0, 2.0, 0.6, (2,)), 2.0, None, ""),
        (
            Timings(9.0, 1.0, 1.04, (2,)),
            FASTEST,
            (2,),
            "faster on the CPU: cut in two, the partition takes 1.04 ms, 9.00 ms on the device",
        ),
        (
            Timings(9.0, 1.0, 1.5, (2,)),
            FASTEST,
            NODES,
            "faster on the CPU: 1.00 ms, 9.00 ms on the device",
        ),
    ],
)
def test_decision(
    timings: Timings, factor: float, left: tuple[int, ...] | None, reason: str
) -> None:
    assert timings.on_cpu(NODES, factor) == (None if left is None else (left, reason))


class _Times:
    """Replaces the measurement: every partition takes these seconds, and is not cut."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
        self.seconds, self.calls = seconds, 0
        monkeypatch.setattr(placement, "_SHORT_SECONDS", math.inf)
        monkeypatch.setattr(placement, "in_turns", self._in_turns)

    def _in_turns(self, runs: Sequence[Any]) -> list[float]:
        self.calls += 1
        assert all(run(1) > 0 for run in runs)  # each candidate really runs
        return [*self.seconds[: len(runs)]]


def _placed(
    model: bytes, device: DeviceInfo, word: str = "fastest", **options: Any
) -> OpenCLDelegate:
    own = {"placement": word, "min_nodes_per_partition": 0, **options}
    return delegate_for(model, device, **own)


@pytest.mark.parametrize(
    ("word", "seconds", "is_taken"),
    [
        ("fastest", (2e-3, 1e-3), False),
        ("fastest", (1e-3, 2e-3), True),
        ("fastest", (1.04e-3, 1e-3), True),
        ("offload", (1.9e-3, 1e-3), True),
        ("offload", (2.1e-3, 1e-3), False),
        ("offload:9.5", (9.4e-3, 1e-3), True),
        ("offload:9.5", (9.6e-3, 1e-3), False),
    ],
)
def test_partitions_go_where_they_end_sooner(
    device: DeviceInfo,
    monkeypatch: pytest.MonkeyPatch,
    word: str,
    seconds: tuple[float, ...],
    is_taken: bool,
) -> None:
    times = _Times(monkeypatch, *seconds)
    model = write_model(THREE_PARTITIONS)
    delegate = _placed(model, device, word)
    assert_runs_exactly(model, THREE_PARTITIONS, delegate)
    assert times.calls == 3
    # LEAST_WORK, which would leave all of them to the CPU, has no say.
    expected = [[0, 1, 2], [4], [6, 7]] if is_taken else []
    assert [sorted(group) for group in delegate.partitions] == expected


def test_device_is_the_default_and_times_nothing(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = _Times(monkeypatch, 2.0, 1.0)
    model = write_model(THREE_PARTITIONS)
    delegate = delegate_for(model, device)
    interpreter(model, delegate)
    assert (times.calls, len(delegate.partitions)) == (0, 3)


def test_all_on_the_cpu_is_said(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _Times(monkeypatch, 2e-3, 1e-3)
    model = write_model(conv_pool())
    with caplog.at_level(logging.WARNING, "delegate"):
        delegate = _placed(model, device)
        interpreter(model, delegate)
    why = "faster on the CPU: 1.00 ms, 2.00 ms on the device"
    assert [verdict.reason for verdict in delegate.verdicts] == [why, why]
    assert f"placement='fastest' leaves every node to the CPU: {why}" in caplog.messages


def test_placement_names_its_own_reason(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _Times(monkeypatch, 2e-3, 1e-3)
    with caplog.at_level(logging.WARNING, "delegate"):
        interpreter(
            write_model(conv_pool()),
            _placed(write_model(conv_pool()), device, exclude_ops=["CONV_2D"]),
        )
    why = "faster on the CPU: 1.00 ms, 2.00 ms on the device"
    assert f"placement='fastest' leaves every node to the CPU: {why}" in caplog.messages


@pytest.mark.parametrize("is_first_on_device", [True, False])
def test_cut_partition_runs_exactly(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, is_first_on_device: bool
) -> None:
    """A part on the device and the rest on TFLite's kernels, of a quantised model."""
    graph = _long_chain()
    members = [0, 1] if is_first_on_device else [2, 3]

    def part(self: Placement, group: Partition, times: Sequence[float]) -> Partition:
        assert group.indices == (0, 1, 2, 3)
        return partition_of(self._graph, members)

    times = _Times(monkeypatch, 3e-3, 2e-3, 1e-3)
    monkeypatch.setattr(Placement, "_part", part)
    model = write_model(graph)
    delegate = _placed(model, device)
    assert_runs_exactly(model, graph, delegate)
    assert [sorted(group) for group in delegate.partitions] == [members]
    assert times.calls == 2  # without the cut, then with it; the part is not timed again
    why = "faster on the CPU: cut in two, the partition takes 1.00 ms, 3.00 ms on the device"
    assert {v.node: v.reason for v in delegate.verdicts if v.reason} == dict.fromkeys(
        {0, 1, 2, 3}.difference(members), why
    )


def _long_chain() -> Graph:
    names = ("AVERAGE_POOL_2D", "ADD", "AVERAGE_POOL_2D", "ADD")
    return net([(name, [n] * (1 + (name == "ADD")), n + 1) for n, name in enumerate(names)])


def test_node_times_find_the_cut(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut is tried where node times predict that it gains."""
    times = _Times(monkeypatch, 20e-3, 18e-3, 11e-3)
    monkeypatch.setattr(placement, "_SHORT_SECONDS", 0.0)
    monkeypatch.setattr(Placement, "_node_times", lambda *_: {0: 1.0, 1: 1.0, 2: 9.0, 3: 9.0})
    monkeypatch.setattr(Placement, "_prefix_seconds", lambda self, nodes: 4.5e-3 * len(nodes))
    model = write_model(_long_chain())
    delegate = _placed(model, device)
    interpreter(model, delegate)
    assert [sorted(group) for group in delegate.partitions] == [[0, 1]]
    assert times.calls == 2


def test_profiles_give_node_times(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    result = Placement._node_times

    def node_times(self: Placement, group: Partition) -> Any:
        found.append(result(self, group))
        return found[-1]

    monkeypatch.setattr(placement, "_SHORT_SECONDS", 0.0)
    monkeypatch.setattr(Placement, "_node_times", node_times)
    model = write_model(_long_chain())
    interpreter(model, _placed(model, device, passes=()))
    assert [{*each} for each in found] == [{0, 1, 2, 3}]
    assert all(us > 0 for us in found[0].values())


def _heavy(size: int) -> Graph:
    """Return a uint8 convolution: of 1x1 pixels the CPU is faster at, of many PoCL may be."""
    rng = np.random.default_rng(7)
    weights = const(rng.integers(0, 255, (32, 3, 3, 32)).astype(np.uint8), 0.02, 120)
    bias = const(rng.integers(-99, 99, 32).astype(np.int32), 0.01)
    source, result = (t((1, size, size, 32), "uint8", 0.5, 128) for _ in range(2))
    conv = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
    return graph_of([op("CONV_2D", [source, weights, bias], [result], conv)])


@slow
@pytest.mark.parametrize("size", [1, 64])
def test_measured_placement_is_exact_and_says_why(device: DeviceInfo, size: int) -> None:
    graph = _heavy(size)
    model = write_model(graph)
    delegate = _placed(model, device, exclude_ops=())
    assert_runs_exactly(model, graph, delegate)
    (verdict,) = delegate.verdicts
    assert verdict.reason is None or verdict.reason.startswith("faster on the CPU: ")
    assert (verdict.reason is None) == (delegate.partitions == [[0]])
    if size == 1:  # a call into Python costs more than TFLite's kernel
        assert verdict.reason is not None


@pytest.fixture
def with_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_engine, "is_on", True)


@slow
def test_timings_are_remembered(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, with_child: None
) -> None:
    model = write_model(conv_pool())
    times = _Times(monkeypatch, 2e-3, 1e-3)
    for word, threads, calls in (
        ("fastest", 1, 1),
        ("fastest", 1, 1),
        ("offload:3", 1, 1),  # another decision by the same times
        ("fastest", 2, 2),
    ):
        with closing(_placed(model, device, word, in_child_first=True)) as delegate:
            made = RUNTIME.interpreter(model, threads, "reference", [delegate])
            made.allocate_tensors()
            assert times.calls == calls, (word, threads)
            assert bool(delegate.partitions) == (word != "fastest")
            del made


@slow
def test_what_ends_the_timing_is_not_remembered(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, with_child: None
) -> None:
    """A device that fails once, or Ctrl-C, decides nothing about later starts."""
    model = write_model(_long_chain())  # no other test remembers its timings
    times = _Times(monkeypatch, 2e-3, 1e-3)

    def start(error: BaseException | None = None) -> list[list[int]]:
        def fails(*_: Any) -> None:
            assert error is not None
            raise error

        with (
            monkeypatch.context() as now,
            closing(_placed(model, device, in_child_first=True)) as delegate,
        ):
            if error is not None:
                now.setattr(placement._PartKernel, "invoke", fails)
            interpreter(model, delegate)
            return delegate.partitions

    with pytest.raises((RuntimeError, ValueError)):  # TFLite's
        start(KeyboardInterrupt())
    assert start(DeviceError("clFinish: OUT_OF_RESOURCES")) == [[0, 1, 2, 3]]
    assert start(MemoryError()) == [[0, 1, 2, 3]]
    assert (times.calls, start(), times.calls) == (0, [], 1)


@slow
def test_plan_file_has_the_timings(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, with_child: None, tmp_path: Any
) -> None:
    model, path = write_model(THREE_PARTITIONS), str(tmp_path / "plan")
    times = _Times(monkeypatch, 2e-3, 1e-3)
    with closing(_placed(model, device, in_child_first=True)) as delegate:
        interpreter(model, delegate)
        delegate.write_plan(path)
    assert times.calls == 3
    with closing(_placed(model, device, plan=path)) as delegate:
        interpreter(model, delegate)
        assert (times.calls, delegate.partitions) == (3, [])


def test_nodes_that_only_the_device_has_stay(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = _Times(monkeypatch, 2e-3, 1e-3)
    source, result = (t((1, 4), "float16") for _ in range(2))
    model = write_model(graph_of([op("ADD", [source, source], [result], {})]))
    delegate = _placed(model, device, exclude_ops=())
    interpreter(model, delegate, "builtin")
    assert (times.calls, delegate.partitions) == (0, [[0]])


def test_profiling_does_not_move_nodes(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    _Times(monkeypatch, 1e-3, 2e-3)
    model = write_model(conv_pool())
    delegate = _placed(model, device, profiling=True)
    made = interpreter(model, delegate)
    made.invoke()
    assert {launch.node for launch in delegate.profile()} == {0, 1}


@slow
def test_isolated_partitions_are_timed(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, with_child: None
) -> None:
    times = _Times(monkeypatch, 1e-3, 2e-3)
    model = write_model(conv_pool())
    with closing(_placed(model, device, isolate=True, in_child_first=True)) as delegate:
        assert_runs_exactly(model, conv_pool(), delegate)
        assert (times.calls, delegate.partitions) == (1, [[0, 1]])


@pytest.mark.parametrize("is_taken", [True, False])
def test_variable_tensors_are_timed_and_persist(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, is_taken: bool
) -> None:
    times = _Times(monkeypatch, *(1e-3, 2e-3) if is_taken else (2e-3, 1e-3))
    graph = delays([variable("a"), variable("b")])
    model = write_model(graph)
    delegate = _placed(model, device, exclude_ops=())
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert (times.calls, delegate.partitions) == (1, [[0, 1]] if is_taken else [])
    for number in range(4):
        x = np.full(SHAPE, number + 1, np.float32)
        assert_equal_outputs(invoke(ours, [x]), invoke(reference, [x]))


@slow
def test_partition_with_a_loop_is_timed(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its interpreters have the loop's graphs, too, of which the timed kernel takes no nodes."""
    times = _Times(monkeypatch, 2e-3, 1e-3)

    def body(_: Any, own: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        larger = image()
        return [op("MAXIMUM", own, [larger])], [own[1], larger]

    x, after = image(), image()
    looped = loop(3, [x, x], body)
    graph = graph_of([looped, op("RELU6", [looped.outputs[-1]], [after])], [x], [after])
    model = write_model(graph)
    delegate = _placed(model, device, exclude_ops=())
    assert_runs_exactly(model, graph, delegate)
    assert (times.calls >= 1, delegate.partitions) == (True, [])


def test_what_kills_a_child_is_not_timed_here(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = _Times(monkeypatch, 2e-3, 1e-3)
    monkeypatch.setattr(Engine, "why_not_on_cpu", lambda *_: "child processes died")
    model = write_model(conv_pool())
    delegate = _placed(model, device)
    interpreter(model, delegate)
    assert (times.calls, delegate.partitions) == (0, [[0, 1]])


@slow
def test_a_child_runs_the_cpu_first(device: DeviceInfo, with_child: None) -> None:
    x, y = t((1, 4)), t((1, 4))
    custom = graph_of([op("NoSuchOp", [x], [y], is_custom=True)])
    with closing(open_engine(Options(device.index, tune="off"))) as engine:
        package = RUNTIME.module.__name__.split(".")[0]
        assert "NoSuchOp" in engine.why_not_on_cpu(custom, package, 1)
        assert engine.why_not_on_cpu(conv_pool(), package, 1) == ""
        assert engine.why_not_on_cpu(conv_pool(), "no_such_package", 1) != ""
