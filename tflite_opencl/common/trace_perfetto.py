# SPDX-License-Identifier: Apache-2.0
"""A trace in Perfetto's own format, by the schema of the package `perfetto`."""

from __future__ import annotations

from typing import Any

from tflite_opencl.common.trace import COUNTERS, SLICES, Slice, Trace

_PROCESS, _FIRST, _SEQUENCE = 1, 10, 1  # ids of the tracks, and of the one who wrote them
_MONOTONIC, _BOOTTIME = 3, 6  # Source: perfetto/protos/perfetto/common/builtin_clock.proto


def perfetto_trace(trace: Trace) -> bytes:
    """Return the trace as protobuf; raises ImportError without the package."""
    # Imported here: the schema takes half a second, and is an extra.
    from perfetto.trace_builder.proto_builder import TraceProtoBuilder

    builder = TraceProtoBuilder()
    _begin(builder, trace)
    tracks = {name: _FIRST + number for number, name in enumerate((*SLICES, *COUNTERS))}
    for name, track in tracks.items():
        described = builder.add_packet().track_descriptor
        described.uuid, described.parent_uuid, described.name = track, _PROCESS, name
        if name in COUNTERS:
            described.counter.SetInParent()
    events: list[tuple[int, int, int, Slice | float, str]] = []
    for number, each in enumerate(trace.slices):
        if each.ended <= each.begun:
            continue
        # At one time the slice that lasts longer is the outer one: it begins first and ends last.
        events.append((each.begun, 1, number, each, each.track))
        events.append((each.ended, 0, -number, each, each.track))
    for name, at, value in trace.counters:
        events.append((at, 2, 0, value, name))
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
            _annotate(event, what)
    return bytes(builder.serialize())


def _begin(builder: Any, trace: Trace) -> None:
    """Add the clock that all times are of, and the process."""
    clocks = builder.add_packet()
    clocks.trusted_packet_sequence_id = _SEQUENCE
    begun = min((each.begun for each in trace.slices), default=0)
    for clock in (_MONOTONIC, _BOOTTIME):
        read = clocks.clock_snapshot.clocks.add()
        read.clock_id, read.timestamp = clock, begun
    clocks.clock_snapshot.primary_trace_clock = _MONOTONIC
    first = builder.add_packet()
    first.trusted_packet_sequence_id, first.sequence_flags = _SEQUENCE, 1  # nothing before it
    first.trace_packet_defaults.timestamp_clock_id = _MONOTONIC
    process = builder.add_packet().track_descriptor
    process.uuid, process.process.pid = _PROCESS, 1
    process.process.process_name = trace.process


def _annotate(event: Any, each: Slice) -> None:
    for name, value in each.facts.items():
        fact = event.debug_annotations.add()
        fact.name = name
        if isinstance(value, str):
            fact.string_value = value
        elif isinstance(value, int):
            fact.int_value = value
        else:
            fact.double_value = value
    if each.flow:
        event.flow_ids.append(each.flow)
