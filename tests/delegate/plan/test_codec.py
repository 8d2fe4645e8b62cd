# SPDX-License-Identifier: Apache-2.0
"""Plans as bytes: they round-trip, and invalid bytes are an error."""

from __future__ import annotations

import contextlib
import itertools
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegate import DeviceInfo, Options
from delegate.engine import Engine
from delegate.graph.ir import Tensor
from delegate.graph.persistent import persistent_tensors, with_carry
from delegate.guard import cache
from delegate.isa import ORDERS
from delegate.plan.codec import TunedPlan, UnreadablePlan, contents_of, decode, encode
from delegate.plan.contents import MissingContent, digest_of, load
from delegate.plan.dispatch.planned import planned_executor
from delegate.plan.planners.child_planner import _CacheSource
from delegate.plan.record import DISPATCH_MODES, ONE_BY_ONE, PERSISTENT
from delegate.plan.tuning.agreement import same_outputs
from delegate.run.constant_files import load_constants, save_constants
from delegate.run.executor import Executor
from delegate.run.programs import Programs
from delegate.run.state import State
from tests.support.model import const, graph_of, op, t
from tests.support.nets import conv_pool
from tests.support.schedules import fallback_schedule, planner_of, selection_of
from tests.support.tiers import slow
from tflite_opencl.conformance.cases._convolution import KINDS
from tflite_opencl.conformance.cases.chains import chains

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("one_context", "unoptimised")]

# Some networks with alternating types; the conformance suite runs all by plans.
_NAMES = {case.name.split("/")[2].split("-in")[0]: None for case in chains()}
_OF_EACH = {
    name: next(case for case in chains() if case.kind == kind and f"/{name}-in" in case.name)
    for name, kind in zip([*_NAMES][:4], itertools.cycle(KINDS), strict=False)
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(tmp_path))


@pytest.fixture
def engine(device: DeviceInfo) -> Iterator[Engine]:
    opened = Engine(Options(device.index, tune="off"))
    yield opened
    opened.close()


def answer_of(engine: Engine, executor: Executor) -> TunedPlan:
    """Return a child's answer about an executor."""
    with closing(executor.constants()) as taken:
        constants = save_constants(taken)
    return TunedPlan(executor.plan, constants, "quick", 3, 1.5)


def plain(value: Any, places: dict[int, int]) -> Any:
    """Return a record as plain values, in which equal tensors are the same number."""
    if isinstance(value, Tensor):
        place = places.setdefault(id(value), len(places))
        own = value.index, value.name, value.shape, value.dtype, value.state_name, value.is_variable
        return place, *own
    if is_dataclass(value):
        return [plain(getattr(value, each.name), places) for each in fields(value)]
    if isinstance(value, np.ndarray):
        return value.dtype.name, value.tolist()
    if isinstance(value, Mapping):
        return [(plain(key, places), plain(each, places)) for key, each in value.items()]
    if isinstance(value, tuple | list):
        return [plain(each, places) for each in value]
    return value


def assert_same_answers(one: TunedPlan, other: TunedPlan) -> None:
    # Offsets are only stored for tensors of steps, in any order.
    in_order, places = {}, list[dict[int, int]]()
    for answer in (one, other):
        own: dict[int, int] = {}
        memory = answer.plan.memory
        rest = plain([answer.plan.inputs, answer.plan.outputs, answer.plan.steps], own)
        known = [(t, at) for t, at in memory.offsets.items() if id(t) in own]
        offsets = {plain(tensor, own)[0]: at for tensor, at in known}
        in_order[id(answer)] = rest, {place: offsets[place] for place in sorted(offsets)}
        places.append(own)
    assert in_order[id(one)] == in_order[id(other)]
    for each in fields(one.plan.memory):
        if each.name not in ("offsets", "arena_constants"):
            assert getattr(one.plan.memory, each.name) == getattr(other.plan.memory, each.name)
    stored = [
        [(s.offset, s.values.tobytes()) for s in a.plan.memory.arena_constants]
        for a in (one, other)
    ]
    assert stored[0] == stored[1]
    for name in (
        "calls",
        "ints",
        "control_ints",
        "dispatch_mode",
        "copy_strategy",
        "uses_fp16",
        "has_no_threads",
        "batch",
    ):
        assert getattr(one.plan, name) == getattr(other.plan, name), name
    assert [*map(id, other.plan.watched)] == [*map(id, other.plan.outputs)][
        len(other.plan.outputs) - len(other.plan.watched) :
    ]
    for name in ("constants", "mode", "unmeasured", "unmeasured_seconds"):
        assert getattr(one, name) == getattr(other, name), name


def assert_round_trip(engine: Engine, executor: Executor, state: State | None = None) -> TunedPlan:
    """Assert that an executor's plan round-trips; return the plan that was read."""
    answer = answer_of(engine, executor)
    content = encode(answer)
    plan = executor.plan
    ends = plan.inputs, plan.outputs[: len(plan.outputs) - len(plan.watched)]
    again = decode(content, ends, load)
    assert encode(again) == content
    assert_same_answers(answer, again)
    assert [*again.plan.inputs, *again.plan.outputs][: len(ends[0])] == [*ends[0]]
    assert {*ends[1]} <= {*again.plan.outputs}  # the identical tensors of the request
    packed = {segment.digest for buffer in answer.constants for segment in buffer.segments}
    in_arena = {digest_of(each.values) for each in plan.memory.arena_constants}
    assert {digest for digest, _ in contents_of(content)[0]} == packed | in_arena
    taken = load_constants(
        planner_of(engine).weights, engine.device.queue, again.constants, _CacheSource({})
    )
    with Executor(engine.device, Programs(engine.device), again.plan, taken, state=state) as other:
        if state is None:
            assert same_outputs(executor, other)
    return again


@slow
@pytest.mark.parametrize("name", _OF_EACH)
def test_networks_round_trip(engine: Engine, name: str) -> None:
    graph = _OF_EACH[name].make()
    schedule = selection_of(engine, graph).schedule
    with planner_of(engine)._executor(schedule, ONE_BY_ONE, 1) as executor:
        assert_round_trip(engine, executor)


@slow
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("form", DISPATCH_MODES)
def test_dispatch_modes_and_batches_round_trip(device: DeviceInfo, form: str, batch: int) -> None:
    engine = Engine(Options(device.index, tune="off"))
    if form == PERSISTENT and not engine.device.proven & ORDERS:
        pytest.skip(f"{device.name} does not order memory between work-groups")
    schedule = selection_of(engine, conv_pool(), batch=batch).schedule
    for each in (schedule, schedule.specialised()):
        with planner_of(engine)._executor(each, form, batch) as executor:
            again = assert_round_trip(engine, executor)
            assert (again.plan.dispatch_mode, again.plan.batch) == (executor.dispatch_mode, batch)
            kinds = {launch.is_specialised for step in again.plan.steps for launch in step.launches}
            assert kinds == {each is not schedule}
    engine.close()


@slow
def test_graph_without_constants_round_trips(engine: Engine) -> None:
    x, y = t((3, 5), "float32"), t((3, 5), "float32")
    schedule = fallback_schedule(graph_of([op("ADD", [x, x], [y])], [x], [y]))
    with planner_of(engine)._executor(schedule, ONE_BY_ONE, 1) as executor:
        assert assert_round_trip(engine, executor).constants == ()


@slow
def test_arena_constants_and_requirements_round_trip(engine: Engine) -> None:
    x, total, index = t((4, 3), "int32"), t((4, 3), "int32"), t((2,), "int32")
    fixed = const(np.arange(12, dtype=np.int32).reshape(4, 3))
    rows = t((2, 3), "int32")
    nodes = [op("ADD", [fixed, x], [total]), op("GATHER", [total, index], [rows], {"axis": 0})]
    schedule = fallback_schedule(graph_of(nodes, [x, index], [rows]))
    with planner_of(engine)._executor(schedule, ONE_BY_ONE, 1) as executor:
        again = assert_round_trip(engine, executor)
        (stored,) = again.plan.memory.arena_constants
        assert stored.values.tobytes() == np.arange(12, dtype=np.int32).tobytes()
        ((step, need),) = again.plan.requirements()
        assert (step.op, need.tensor) == ("GATHER", again.plan.inputs[1])
        assert need.broken_by(np.array([1, 4], np.int32)) == 4


@slow
def test_state_round_trips(engine: Engine) -> None:
    old, new = (t((4, 3), "int32", name=name) for name in ("old", "new"))
    x = t((4, 3), "int32")
    graph = with_carry(graph_of([op("ADD", [old, x], [new])], [old, x], [new]), {"new": "old"})
    state = State(engine.device, has_arena=True)
    state.add(persistent_tensors(graph))
    planner, schedule = planner_of(engine), fallback_schedule(graph)
    own = engine.device, planner._kernels, schedule
    with planned_executor(
        *own, weights=planner.weights, state=state, region=state.region
    ) as executor:
        again = assert_round_trip(engine, executor, state)
    assert again.plan.memory.region == state.region
    assert [tensor.state_name for tensor in again.plan.inputs].count("old") == 1


@pytest.fixture
def written(engine: Engine) -> tuple[bytes, tuple[Sequence[Tensor], Sequence[Tensor]]]:
    """Return a plan as bytes, and its inputs and outputs."""
    schedule = selection_of(engine, conv_pool()).schedule
    with planner_of(engine)._executor(schedule, ONE_BY_ONE, 1) as executor:
        content = encode(answer_of(engine, executor))
        return content, (executor.plan.inputs, executor.plan.outputs)


@slow
@pytest.mark.parametrize("end", ["inputs", "outputs"])
@pytest.mark.parametrize("kind", ["fewer", "more", "shape", "type"])
def test_other_inputs_or_outputs_are_refused(
    written: tuple[bytes, tuple[Sequence[Tensor], Sequence[Tensor]]], end: str, kind: str
) -> None:
    content, both = written
    ends = [[*tensors] for tensors in both]
    own = ends[end == "outputs"]
    (tensor,) = own
    if kind == "fewer":
        own.clear()
    elif kind == "more":
        own.append(t(tensor.shape, tensor.dtype))
    else:
        shape = (*tensor.shape[:-1], tensor.shape[-1] + 1) if kind == "shape" else tensor.shape
        own[0] = t(shape, "int8" if kind == "type" else tensor.dtype)
    with pytest.raises(UnreadablePlan):
        decode(content, (ends[0], ends[1]), load)


@slow
def test_invalid_bytes_are_refused(
    written: tuple[bytes, tuple[Sequence[Tensor], Sequence[Tensor]]],
) -> None:
    content, ends = written
    rng = np.random.default_rng(3)
    bad = [b"", b"{}", content[:-3], content[3:], content[: len(content) // 2]]
    bad += [zlib.compress(each) for each in (b"", b"7", b"[]", b"{}", b"\xff", b"[" * 100_000)]
    for each in bad:
        with pytest.raises(UnreadablePlan):
            decode(each, ends, load)
    for _ in range(100):
        flipped = bytearray(content)
        flipped[rng.integers(len(content))] ^= 1 << rng.integers(8)
        with contextlib.suppress(zlib.error):  # padding bits have no meaning
            if zlib.decompress(flipped) == zlib.decompress(content):
                continue
        with pytest.raises(UnreadablePlan):
            decode(bytes(flipped), ends, load)


OTHER_VALUES: list[Any] = [None, -1, 7, 1e300, 2**70, "text", "", [], [1], {}, {"a": 1}, True]


def places_of(value: Any, most: int) -> Iterator[tuple[Any, ...]]:
    """Yield the paths to nested values, for long lists to the first ones."""
    yield ()
    inside: Any = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        inside = [*enumerate(value)][:most]
    for key, each in inside:
        yield from ((key, *rest) for rest in places_of(each, most))


@slow
def test_mutated_plan_is_read_or_refused(
    written: tuple[bytes, tuple[Sequence[Tensor], Sequence[Tensor]]],
) -> None:
    content, ends = written
    text = zlib.decompress(content)
    places = [*places_of(json.loads(text), 3)][1:]
    assert len(places) > 50
    refused = 0
    for number, place in enumerate(places):
        for more in range(3):
            body = json.loads(text)
            holder = body
            for key in place[:-1]:
                holder = holder[key]
            holder[place[-1]] = OTHER_VALUES[(number + 5 * more) % len(OTHER_VALUES)]
            try:
                decode(zlib.compress(json.dumps(body).encode()), ends, load)
            except (UnreadablePlan, MissingContent):
                refused += 1
    assert refused > len(places)
    missing = json.loads(text)
    for key in [*missing]:
        rest = {name: value for name, value in missing.items() if name != key}
        with pytest.raises(UnreadablePlan):
            decode(zlib.compress(json.dumps(rest).encode()), ends, load)


@slow
def test_requirements_are_known_without_decoding(
    engine: Engine, written: tuple[bytes, tuple[Sequence[Tensor], Sequence[Tensor]]]
) -> None:
    content, ends = written
    answer = decode(content, ends, load)
    contents, programs = contents_of(content)
    segments = [segment for buffer in answer.constants for segment in buffer.segments]
    assert contents == [(segment.digest, segment.size_bytes) for segment in segments]
    used = {call.program for call in answer.plan.calls if call.program.is_binary}
    assert {*programs} == {(program.file, program.digest) for program in used}
    assert contents_of(b"[[1]]") == ([], [])
