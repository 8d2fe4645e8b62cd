# SPDX-License-Identifier: Apache-2.0
"""Converts timed runs to a timeline, slices and counters on one clock, and writes it to a file.

Two formats: Perfetto's protobuf, with the schema of the package `perfetto`, and Chrome's JSON.
ui.perfetto.dev opens both.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from delegate import Verdict
from delegate.inspect import PartitionRun
from tflite_opencl.timing.profile import LEAST_SHARE, TimedRun

INTERPRETER, CPU, DELEGATE = "interpreter", "TFLite, nodes on the CPU", "delegate"
QUEUE, DEVICE = "command queue", "device"
Facts = Mapping[str, int | float | str]
SLICES = (INTERPRETER, CPU, DELEGATE, QUEUE, DEVICE)
ARENA, LOAD = "arena in use, bytes", "CPU load, cores"
COUNTERS = (ARENA, LOAD)
_MOST_APART = 10**9  # ns between offsets of the two clocks in one run; more means a broken clock


@dataclass(frozen=True, slots=True)
class TraceSlice:
    """A time slice; times are in ns of the host's clock."""

    track: str
    name: str
    begun: int
    ended: int
    facts: Facts = field(default_factory=dict)
    flow: int = 0  # links slices of the same flow; 0: none


@dataclass(frozen=True, slots=True)
class Trace:
    """The content of a file."""

    process: str
    slices: Sequence[TraceSlice]
    counters: Sequence[tuple[str, int, float]]  # track, time in ns, value
    has_timers: bool  # False: device timers are not usable, so the kernels are one slice


def trace_of(
    runs: Sequence[TimedRun],
    verdicts: Sequence[Verdict],
    partitions: Sequence[Sequence[int]],
    process: str,
) -> Trace:
    """Return the timeline of runs; `partitions`: the nodes of each, in execution order."""
    slices: list[TraceSlice] = []
    counters: list[tuple[str, int, float]] = []
    left = [each.node for each in verdicts if not each.is_taken]
    # Whether the device's timers measure the work.
    counts = any(_busy(part) for run in runs for part in run.partitions)
    has_timers = counts
    for number, run in enumerate(runs):
        slices.append(TraceSlice(INTERPRETER, "invoke", run.begun, run.ended, {"run": number}))
        slices += _between(run, left, partitions)
        for place, part in enumerate(run.partitions):
            flow = 1 + 100_000 * (number * len(run.partitions) + place)
            offset = _offset(part) if counts else None
            has_timers = has_timers and offset is not None
            slices += _host(part, flow)
            slices += _device(part, flow, offset)
            counters += [
                (ARENA, begun, float(live))
                for (begun, _), live in zip(part.calls, part.live_bytes, strict=True)
            ]
            counters.append((ARENA, part.ended, 0.0))
        counters.append((LOAD, run.begun, run.cpu_ns / max(run.ended - run.begun, 1)))
    if runs:
        counters.append((LOAD, runs[-1].ended, 0.0))
    return Trace(process, slices, counters, has_timers)


def _between(
    run: TimedRun, left: Sequence[int], partitions: Sequence[Sequence[int]]
) -> list[TraceSlice]:
    """Return TFLite's activity before, between and after the partitions.

    A slice's nodes are those that the CPU runs and that precede the next partition in the
    file.
    """
    begins = [run.begun, *(each.returned for each in run.partitions)]
    ends = [*(each.called for each in run.partitions), run.ended]
    rest, found = list(left), []
    for place, (begun, ended) in enumerate(zip(begins, ends, strict=True)):
        until = min(partitions[place], default=0) if place < len(partitions) else None
        here = [node for node in rest if until is None or node < until]
        rest = [node for node in rest if node not in here]
        name = f"nodes {', '.join(map(str, here))}" if here else "TFLite"
        found.append(TraceSlice(CPU, name, begun, ended, {"nodes": len(here)}))
    return found


def _host(run: PartitionRun, flow: int) -> list[TraceSlice]:
    steps: tuple[tuple[str, int, int, Facts], ...] = (
        ("partition", run.called, run.returned,
         {"arena, bytes": run.arena_bytes, "constants, bytes": run.constant_bytes}),
        ("Python, before", run.called, run.begun, {}),
        ("upload", run.begun, run.uploaded, {"bytes": run.up_bytes}),
        ("put launches into the queue", run.uploaded, run.enqueued, {}),
        ("wait for the device", run.enqueued, run.computed, {}),
        ("download", run.computed, run.ended, {"bytes": run.down_bytes}),
        ("Python, after", run.ended, run.returned, {}),
    )  # fmt: skip
    found = [TraceSlice(DELEGATE, *step) for step in steps]
    for number, ((begun, ended), launch) in enumerate(zip(run.calls, run.launches, strict=True)):
        facts: Facts = {"node": launch.node, "op": launch.op}
        found.append(TraceSlice(QUEUE, launch.kernel, begun, ended, facts, flow + number))
    return found


def _device(run: PartitionRun, flow: int, offset: int | None) -> list[TraceSlice]:
    if offset is None:
        facts: Facts = {"launches": len(run.launches)}
        return [TraceSlice(DEVICE, "kernels, not timed apart", run.uploaded, run.computed, facts)]
    found: list[TraceSlice] = []
    for number, launch in enumerate(run.launches):
        queued, _, begun, ended = (at + offset for at in launch.clock_ns)
        facts = {
            "node": launch.node,
            "op": launch.op,
            "alternative": launch.alternative,
            "work-items": launch.global_size,
            "of a work-group": launch.local_size,
            "in the queue, us": (begun - queued) / 1000,
        }
        begun = max(begun, found[-1].ended) if found else begun  # timers are coarse
        found.append(
            TraceSlice(DEVICE, launch.kernel, begun, max(begun, ended), facts, flow + number)
        )
    return found


def _offset(run: PartitionRun) -> int | None:
    """Return the offset from the device's clock to the host's; None: it is not constant.

    A launch is enqueued during the host's call, and the device's clock records when.
    So each call bounds the offset on both sides.
    """
    if not run.launches:
        return 0
    pairs = [*zip(run.calls, (each.clock_ns[0] for each in run.launches), strict=True)]
    least = [before - queued for (before, _), queued in pairs]
    most = [after - queued for (_, after), queued in pairs]
    if max(least) - min(most) > _MOST_APART:
        return None
    if max(least) <= min(most):
        return (max(least) + min(most)) // 2
    # The clocks are read slightly before or after the call.
    return int(statistics.median([(a + b) // 2 for a, b in zip(least, most, strict=True)]))


def _busy(run: PartitionRun) -> bool:
    spent = sum(each.clock_ns[3] - each.clock_ns[2] for each in run.launches)
    return spent >= LEAST_SHARE * (run.computed - run.uploaded)


def chrome_json(trace: Trace) -> bytes:
    """Return the trace in Chrome's format.

    Source: "Trace Event Format", whose `ts` and `dur` are microseconds.
    """
    events: list[dict[str, object]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": trace.process}}
    ]
    for number, track in enumerate(SLICES, 1):
        name = {"name": track}
        events.append({"ph": "M", "pid": 1, "tid": number, "name": "thread_name", "args": name})
    for each in trace.slices:
        thread = SLICES.index(each.track) + 1
        begun, took = each.begun / 1e3, (each.ended - each.begun) / 1e3
        same = {"pid": 1, "tid": thread, "ts": begun}
        events.append({"ph": "X", "name": each.name, "dur": took, "args": dict(each.facts), **same})
        if each.flow:
            kind = {"ph": "s"} if each.track == QUEUE else {"ph": "f", "bp": "e"}
            events.append({**kind, "name": "launch", "cat": "launch", "id": each.flow, **same})
    for track, at, value in trace.counters:
        amount = {"value": value}
        events.append({"ph": "C", "pid": 1, "name": track, "ts": at / 1e3, "args": amount})
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}).encode()


_PROCESS, _FIRST, _SEQUENCE = 1, 10, 1  # ids of the tracks and of the packet sequence
_ANNOTATIONS: Mapping[type, str] = {str: "string_value", int: "int_value", float: "double_value"}
_MONOTONIC, _BOOTTIME = 3, 6  # Source: perfetto/protos/perfetto/common/builtin_clock.proto


def perfetto_trace(trace: Trace) -> bytes:
    """Return the trace as protobuf; raises ImportError if the package is missing."""
    # An optional dependency, whose schema takes half a second to import.
    from perfetto.trace_builder.proto_builder import TraceProtoBuilder

    builder = TraceProtoBuilder()
    _begin(builder, trace)
    tracks = {name: _FIRST + number for number, name in enumerate((*SLICES, *COUNTERS))}
    for name, track in tracks.items():
        described = builder.add_packet().track_descriptor
        described.uuid, described.parent_uuid, described.name = track, _PROCESS, name
        if name in COUNTERS:
            described.counter.SetInParent()
    events: list[tuple[int, int, int, TraceSlice | float, str]] = []
    for number, each in enumerate(trace.slices):
        if each.ended > each.begun:
            # At equal times the longer slice is the outer one: it begins first and ends last.
            events.append((each.begun, 1, number, each, each.track))
            events.append((each.ended, 0, -number, each, each.track))
    events += [(at, 2, 0, value, name) for name, at, value in trace.counters]
    for at, kind, _, what, name in sorted(events, key=lambda event: event[:3]):
        packet = builder.add_packet()
        packet.timestamp, packet.trusted_packet_sequence_id = at, _SEQUENCE
        event = packet.track_event
        event.track_uuid = tracks[name]
        if isinstance(what, float):
            event.type, event.double_counter_value = event.TYPE_COUNTER, what
        elif kind == 0:
            event.type = event.TYPE_SLICE_END
        else:
            event.type, event.name = event.TYPE_SLICE_BEGIN, what.name
            for fact, value in what.facts.items():
                kept = {"name": fact, _ANNOTATIONS[type(value)]: value}
                event.debug_annotations.add(**kept)
            event.flow_ids.extend([what.flow] if what.flow else ())
    return bytes(builder.serialize())


def _begin(builder: Any, trace: Trace) -> None:
    """Add the clock of all times, and the process."""
    clocks = builder.add_packet()
    clocks.trusted_packet_sequence_id = _SEQUENCE
    begun = min((each.begun for each in trace.slices), default=0)
    for clock in (_MONOTONIC, _BOOTTIME):
        clocks.clock_snapshot.clocks.add(clock_id=clock, timestamp=begun)
    clocks.clock_snapshot.primary_trace_clock = _MONOTONIC
    first = builder.add_packet()
    first.trusted_packet_sequence_id, first.sequence_flags = _SEQUENCE, 1  # no packets before it
    first.trace_packet_defaults.timestamp_clock_id = _MONOTONIC
    process = builder.add_packet().track_descriptor
    process.uuid, process.process.pid = _PROCESS, 1
    process.process.process_name = trace.process
