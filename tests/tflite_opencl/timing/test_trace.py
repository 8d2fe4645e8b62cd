# SPDX-License-Identifier: Apache-2.0
"""Traces: the content of their tracks, and equal content in both formats."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from delegate import DeviceInfo, OpenCLDelegate, Verdict
from delegate.inspect import LaunchTime, PartitionRun, write_model
from tests.support.compare import interpreter, invoke
from tests.support.small_v2 import small_v2
from tflite_opencl.oracle.values import input_sets
from tflite_opencl.timing.profile import TimedRun, timed_runs
from tflite_opencl.timing.trace import (
    ARENA,
    CPU,
    DELEGATE,
    DEVICE,
    INTERPRETER,
    LOAD,
    QUEUE,
    Trace,
    TraceSlice,
    chrome_json,
    perfetto_trace,
    trace_of,
)

GRAPH = small_v2()
MODEL = write_model(GRAPH)
LAUNCHES = 13


def traced(device: DeviceInfo, runs: int = 2, **options: object) -> Trace:
    delegate = OpenCLDelegate(MODEL, device.index, tune="off", profiling=True, **options)  # type: ignore[arg-type]
    interp = interpreter(MODEL, delegate)
    invoke(interp, input_sets(GRAPH)[0])
    result = timed_runs(delegate, interp.invoke, runs)
    return trace_of(result, delegate.verdicts, delegate.partitions, "a test")


def on(track: str, slices: Sequence[TraceSlice]) -> list[TraceSlice]:
    return [each for each in slices if each.track == track]


def test_tracks(device: DeviceInfo) -> None:
    trace = traced(device)
    calls = on(INTERPRETER, trace.slices)
    assert [each.name for each in calls] == ["invoke", "invoke"]
    assert len(on(QUEUE, trace.slices)) == 2 * LAUNCHES
    kernels = on(DEVICE, trace.slices)
    assert len(kernels) == (2 * LAUNCHES if trace.has_timers else 2)
    for each in trace.slices:
        assert any(call.begun <= each.begun <= each.ended <= call.ended for call in calls), each
    for earlier, later in pairwise(kernels):
        assert earlier.ended <= later.begun
    arena = [value for track, _, value in trace.counters if track == ARENA]
    assert arena[LAUNCHES] == 0.0
    # The first launch has its input and output, the last one 21 values twice.
    assert arena[0] == 32 * 32 * 3 + 16 * 16 * 16
    assert arena[LAUNCHES - 1] == 2 * 21
    loads = [value for track, _, value in trace.counters if track == LOAD]
    assert len(loads) == 3
    assert loads[-1] == 0.0


def test_kernels_begin_after_enqueue(device: DeviceInfo) -> None:
    trace = traced(device)
    if not trace.has_timers:
        pytest.skip("the device's timers say nothing")
    calls = {each.flow: each for each in on(QUEUE, trace.slices)}
    kernels = {each.flow: each for each in on(DEVICE, trace.slices)}
    assert calls.keys() == kernels.keys()
    assert len(calls) == 2 * LAUNCHES
    for flow, kernel in kernels.items():
        assert kernel.name == calls[flow].name
        assert kernel.begun >= calls[flow].begun


def test_cpu_nodes_are_between_partitions(device: DeviceInfo) -> None:
    trace = traced(device, 1, exclude_ops=["AVERAGE_POOL_2D"], min_nodes_per_partition=1)
    assert [each.name for each in on(CPU, trace.slices)] == ["TFLite", "nodes 11", "TFLite"]
    parts = [each for each in on(DELEGATE, trace.slices) if each.name == "partition"]
    first, second = parts
    between = on(CPU, trace.slices)[1]
    assert (between.begun, between.ended) == (first.ended, second.begun)


def read_back(content: bytes) -> tuple[dict[str, list[tuple[str, int, int]]], set[str]]:
    """Return each track's slices as (name, begin, end), and the names of counters."""
    schema = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = schema.Trace()
    trace.ParseFromString(content)
    names: dict[int, str] = {}
    opened: dict[str, list[tuple[str, int]]] = defaultdict(list)
    done: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    counted: set[str] = set()
    last = 0
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            names[packet.track_descriptor.uuid] = packet.track_descriptor.name
        if not packet.HasField("track_event"):
            continue
        assert packet.timestamp >= last
        last, event = packet.timestamp, packet.track_event
        track = names[event.track_uuid]
        if event.type == schema.TrackEvent.TYPE_COUNTER:
            counted.add(track)
        elif event.type == schema.TrackEvent.TYPE_SLICE_BEGIN:
            opened[track].append((event.name, last))
        else:
            name, begun = opened[track].pop()
            done[track].append((name, begun, last))
    assert not any(opened.values())
    return done, counted


def test_perfetto_round_trip(device: DeviceInfo) -> None:
    trace = traced(device)
    done, counted = read_back(perfetto_trace(trace))
    assert counted == {ARENA, LOAD}
    for track in (INTERPRETER, CPU, DELEGATE, QUEUE, DEVICE):
        meant = [(s.name, s.begun, s.ended) for s in on(track, trace.slices) if s.ended > s.begun]
        assert sorted(done[track]) == sorted(meant)


def test_chrome_json_round_trip(device: DeviceInfo) -> None:
    trace = traced(device)
    events = json.loads(chrome_json(trace))["traceEvents"]
    threads = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    results = [(threads[e["tid"]], e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert results == [
        (s.track, s.name, s.begun / 1e3, (s.ended - s.begun) / 1e3) for s in trace.slices
    ]
    starts = [e["id"] for e in events if e["ph"] == "s"]
    ends = [e["id"] for e in events if e["ph"] == "f"]
    assert len(starts) == 2 * LAUNCHES
    assert ends == (starts if trace.has_timers else [])
    assert sum(e["ph"] == "C" for e in events) == len(trace.counters)


def run_of(launches: Sequence[tuple[int, int, int]], shift: int) -> TimedRun:
    """Return a run of launches (call, begin, end); the device's clock is late by `shift`."""
    times = [
        LaunchTime(n, "ADD", f"k{n}", "plain", 64, (end - begin) / 1e3, 8,
                   (call + 5 - shift, call + 6 - shift, begin - shift, end - shift))
        for n, (call, begin, end) in enumerate(launches)
    ]  # fmt: skip
    calls = tuple((call, call + 10) for call, _, _ in launches)
    part = PartitionRun(100, 110, 200, 400, 900, 950, 960, calls, tuple(times), (8,) * len(times),
                        1, 1, 64, 64)  # fmt: skip
    return TimedRun(0, 1000, [part], 2000)


VERDICTS = [Verdict(0, "ADD", None), Verdict(1, "ADD", None), Verdict(2, "MUL", "no")]


@pytest.mark.parametrize("shift", [0, 10**15, -(10**15)])
def test_device_clock_is_aligned_with_host(shift: int) -> None:
    run = run_of([(210, 300, 500), (250, 510, 800)], shift)
    trace = trace_of([run], VERDICTS, [[0, 1]], "a test")
    assert trace.has_timers
    first, second = on(DEVICE, trace.slices)
    assert abs(first.begun - 300) <= 5
    assert abs(second.ended - 800) <= 5
    assert second.ended - second.begun == 290
    assert on(CPU, trace.slices)[-1].name == "nodes 2"
    assert (LOAD, 0, 2.0) in trace.counters


def test_missing_timers_make_one_slice() -> None:
    run = run_of([(210, 300, 300), (250, 300, 300)], 7)
    trace = trace_of([run], VERDICTS, [[0, 1]], "a test")
    assert not trace.has_timers
    (kernels,) = on(DEVICE, trace.slices)
    assert (kernels.name, kernels.begun, kernels.ended) == ("kernels, not timed apart", 200, 900)


def test_jumping_clocks_are_ignored() -> None:
    run = run_of([(210, 300, 500), (250, 510, 800)], 0)
    (part,) = run.partitions
    jumped = replace(part.launches[1], clock_ns=(10**12, 10**12, 510, 800))
    part = replace(part, launches=(part.launches[0], jumped))
    trace = trace_of([replace(run, partitions=[part])], VERDICTS, [[0, 1]], "a test")
    assert not trace.has_timers
