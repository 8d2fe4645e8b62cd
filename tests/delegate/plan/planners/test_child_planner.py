# SPDX-License-Identifier: Apache-2.0
"""Plans made by a child process: when they are reused, what invalidates them, and deaths."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from delegate import DeviceError, DeviceInfo, Model, Options, ops
from delegate import engine as start_engine
from delegate.engine import Engine, open_engine, start_early
from delegate.errors import KilledChild, TooLarge, Unsupported
from delegate.graph.partition import partition_of
from delegate.guard import cache, helper_child
from delegate.guard.children import environment, helper
from delegate.guard.children.child import ChildExit
from delegate.guard.children.helper import Response
from delegate.guard.children.records import Records
from delegate.guard.children.trials import BUILD, EXECUTOR, RUN, Trial
from delegate.guard.probing.probe import examine
from delegate.inspect import Graph, read_device_profile, write_model
from delegate.plan.contents import FOLDER
from delegate.plan.lowering import compiler
from delegate.plan.planners import child_planner
from delegate.plan.planners.child_planner import ChildPlanner
from delegate.plan.planners.planner import Planner
from delegate.plan.record import PartitionPlan
from delegate.plan.tuning.agreement import same_outputs
from delegate.plan.tuning.chooser import Chooser
from delegate.run.programs import Programs
from delegate.target import Rules
from tests.support.model import const, graph_of, op, t
from tests.support.nets import conv_pool, net
from tests.support.process import ROOT
from tests.support.tiers import slow

pytestmark = pytest.mark.usefixtures("own_cache")

CHAIN = net([("ADD", [0, 0], 1), ("ADD", [1, 0], 2)])
CALLS = ["registers", "verdicts", "partition"]


def recording_ask(calls: list[str]) -> Callable[..., Response]:
    """Return a `helper.ask` that also records planning requests."""
    ask = helper.ask

    def recorded(word: str, *more: Any, **options: Any) -> Response:
        if word == "plan":
            calls.append(more[3])
        return ask(word, *more, **options)

    return recorded


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the planning requests to child processes."""
    calls: list[str] = []
    monkeypatch.setattr(helper, "ask", recording_ask(calls))
    return calls


def planner_in(engine: Engine) -> ChildPlanner:
    assert isinstance(engine._planning, ChildPlanner)
    return engine._planning


def records_of(engine: Engine) -> Records:
    return planner_in(engine)._records


def start(device: DeviceInfo, graph: Graph, batch: int = 1, **options: Any) -> PartitionPlan:
    """Start a graph in a new context; return its plan, after a comparison of its outputs."""
    engine = open_engine(Options(device.index, **{"tune": "off", "own_context": True} | options))
    target = engine.target(Rules())
    assert all(verdict.is_taken for verdict in engine.verdicts(graph, target))
    partition = partition_of(graph, range(len(graph.nodes)))
    apart = Options(device.index, tune="off", passes=(), alternative="plain")
    with (
        engine.executor(partition, target, batch) as executor,
        Engine(apart).executor(partition, target, batch) as other,
    ):
        assert same_outputs(executor, other)
    engine.close()
    return executor.plan


@slow
@pytest.mark.parametrize("tune", ["off", "full"])
@pytest.mark.parametrize("graph", [CHAIN, conv_pool()], ids=["chain", "conv_pool"])
def test_later_start_needs_no_child_and_no_planning(
    device: DeviceInfo,
    monkeypatch: pytest.MonkeyPatch,
    requests: list[str],
    graph: Graph,
    tune: str,
) -> None:
    first = start(device, graph, tune=tune)
    assert requests == CALLS

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("it was planned before")

    engine = open_engine(Options(device.index, tune=tune, own_context=True))
    with monkeypatch.context() as patch:
        patch.setattr(helper, "ask", forbidden)
        patch.setattr(ops, "lower", forbidden)
        patch.setattr(Chooser, "choose", forbidden)
        for name in ("verdicts", "rewritten", "compile_partition"):
            patch.setattr(compiler, name, forbidden)
        patch.setattr(Planner, "__init__", forbidden)
        target = engine.target(Rules())
        assert all(verdict.is_taken for verdict in engine.verdicts(graph, target))
        with engine.executor(partition_of(graph, range(2)), target) as executor:
            same = executor.plan
    assert [step.alternative for step in same.steps] == [s.alternative for s in first.steps]
    assert (same.calls, same.ints, same.dispatch_mode) == (
        first.calls,
        first.ints,
        first.dispatch_mode,
    )
    start(device, graph, tune=tune)
    assert requests == CALLS


OTHERS: dict[str, tuple[Graph, dict[str, Any], list[str]]] = {
    "batch": (conv_pool(), {"batch": 2}, ["partition"]),
    "model": (net([("ADD", [0, 0], 1)]), {}, ["verdicts", "partition"]),
    "passes": (conv_pool(), {"passes": ()}, CALLS),
    "alternative": (conv_pool(), {"alternative": "plain"}, CALLS),
    "profiling": (conv_pool(), {"profiling": True}, CALLS),
    "precision": (conv_pool(), {"precision": "fp16"}, CALLS),
    "device profile": (conv_pool(), {"device_profile": "v3d"}, CALLS),
    "fewer instructions": (conv_pool(), {"exclude_isa": ["all"]}, CALLS),
    "patience": (conv_pool(), {"tune": "full"}, CALLS),
    "measuring": (conv_pool(), {"tune": "quick"}, CALLS),
    "nothing": (conv_pool(), {}, []),
}


@slow
@pytest.mark.parametrize("what", OTHERS)
def test_plan_depends_on_model_shapes_options_and_device(
    device: DeviceInfo, requests: list[str], what: str
) -> None:
    graph, options, expected = OTHERS[what]
    start(device, conv_pool())
    requests.clear()
    start(device, graph, **options)
    assert requests == expected
    start(device, graph, **options)
    start(device, conv_pool())
    assert requests == expected


@slow
def test_plan_depends_on_weights_and_rules(device: DeviceInfo, requests: list[str]) -> None:
    graph = conv_pool()
    start(device, graph)
    requests.clear()
    conv, pool = graph.nodes
    source, weights, bias = conv.inputs
    assert weights is not None
    assert weights.data is not None
    other = weights.data.copy()
    other[-1, -1, -1, -1] ^= 1
    changed = replace(conv, inputs=(source, replace(weights, data=other), bias))
    start(device, graph_of([changed, pool]))
    assert requests == ["verdicts", "partition"]
    requests.clear()
    engine = open_engine(Options(device.index, tune="off"))
    target = replace(engine.target(Rules()), rules=Rules(reverses_first_axis=True))
    engine.verdicts(graph, target)
    assert requests == ["verdicts"]


@slow
def test_fully_tuned_plan_serves_quick_starts(device: DeviceInfo, requests: list[str]) -> None:
    for tune, expected in (("quick", CALLS), ("full", ["partition"]), ("quick", []), ("full", [])):
        start(device, conv_pool(), tune=tune)
        assert requests == expected
        requests.clear()


def files(folder: str) -> list[Path]:
    return sorted((cache.cache_folder() / folder).glob("[!.]*"))


def cut(paths: list[Path]) -> None:
    for path in paths:
        path.write_bytes(path.read_bytes()[:-3])


def flipped(paths: list[Path]) -> None:
    for path in paths:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(content)


def swapped(paths: list[Path]) -> None:
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, [*contents[1:], contents[0]], strict=True):
        path.write_bytes(content)


def unlink(paths: list[Path]) -> None:
    for path in paths:
        path.unlink()


def emptied(paths: list[Path]) -> None:
    for path in paths:
        path.write_bytes(b"")


def folders(paths: list[Path]) -> None:
    for path in paths:
        path.unlink()
        path.mkdir()


def of_others(paths: list[Path]) -> None:
    for path in paths:
        path.chmod(0o666)


CHANGES = [cut, flipped, swapped, unlink, emptied, folders, of_others]


@slow
@pytest.mark.parametrize("change", CHANGES)
def test_damaged_plan_is_made_again(
    device: DeviceInfo, requests: list[str], change: Callable[[list[Path]], None]
) -> None:
    graph = conv_pool()
    start(device, graph)
    assert len(files("plans")) == len(CALLS)
    change(files("plans"))
    requests.clear()
    start(device, graph)
    assert requests == CALLS
    start(device, graph)
    assert requests == CALLS


FOREIGN = [
    b"",
    b"[[], null]",
    b"[[], null]\n",
    b"[[], null]\n[]",
    b"[[], null]\n[[1]]",
    b'[[], null]\n[[1, "ADD", 2, false], 7]',
    b'[[], null]\n{"1": 7}',
    b"[[], null]\n\xff\xfe",
    b"{}\n7",
    b"[]\n7",
    b"7\n7",
    b"\xff\n7",
]


@slow
@pytest.mark.parametrize("content", FOREIGN)
def test_foreign_content_is_no_plan(
    device: DeviceInfo, requests: list[str], content: bytes
) -> None:
    graph = conv_pool()
    start(device, graph)
    for path in files("plans"):
        assert cache.store(f"plans/{path.name}", content)
    requests.clear()
    start(device, graph)
    assert requests == CALLS
    requests.clear()
    start(device, graph)
    assert requests == []


@slow
def test_plan_of_other_tensors_is_not_used(
    device: DeviceInfo, requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    path_of = ChildPlanner._path

    def recorded(self: ChildPlanner, name: str, call: str, *more: Any) -> Any:
        if call == "partition":
            names.append(path_of(self, name))
        return answer(self, name, call, *more)

    answer = ChildPlanner._answer
    monkeypatch.setattr(ChildPlanner, "_answer", recorded)
    graph = conv_pool()
    for each in (CHAIN, graph):
        start(device, each)
    requests.clear()
    content = cache.load(names[0])
    assert content is not None
    cache.store(names[1], content)
    start(device, graph)
    assert requests == ["partition"]


@slow
@pytest.mark.parametrize("change", CHANGES)
def test_damaged_constants_are_made_again(
    device: DeviceInfo, requests: list[str], change: Callable[[list[Path]], None]
) -> None:
    graphs = conv_pool(), product(-127)  # two files, which can be swapped
    for graph in graphs:
        start(device, graph)
    assert len(files(FOLDER)) > 1
    change(files(FOLDER))
    requests.clear()
    for graph in graphs:
        start(device, graph)
    assert requests == ["partition"] * 2
    for graph in graphs:
        start(device, graph)
    assert requests == ["partition"] * 2


@slow
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("has_new_child", [False, True])
def test_damaged_binaries_are_made_again(
    device: DeviceInfo,
    requests: list[str],
    change: Callable[[list[Path]], None],
    has_new_child: bool,
) -> None:
    plan = start(device, conv_pool())
    of_binaries = any(call.program.is_binary for call in plan.calls)
    change(files("programs"))
    requests.clear()
    if has_new_child:
        helper._close()
    # The old child has the programs in memory; only a new one builds them again.
    expected = ["partition"] * (1 if has_new_child else 2) if of_binaries else []
    for _ in range(2):
        start(device, conv_pool())
        assert requests == expected


@slow
def test_concurrent_processes_plan_once(device: DeviceInfo, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from tests.delegate.plan.planners.test_child_planner import requests_of_a_start\n"
        "print(requests_of_a_start(int(sys.argv[1])))"
    )
    command = [sys.executable, "-c", code, str(device.index)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    both = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    requests = [json.loads(each.communicate(timeout=300)[0].splitlines()[-1]) for each in both]
    assert sorted([*requests[0], *requests[1]]) == sorted(CALLS)


def requests_of_a_start(device: int) -> str:
    """Start a graph, and return its planning requests as JSON."""
    calls: list[str] = []
    helper.ask = recording_ask(calls)
    start_engine.is_on = True
    with Model(write_model(conv_pool()), device, tune="off") as model:
        model.run(np.zeros(model.input_details[0].shape, np.uint8))
    return json.dumps(calls)


def product(least: int) -> Graph:
    """Return a hybrid FULLY_CONNECTED whose first weight is `least`."""
    values = np.random.default_rng(3).integers(-127, 128, (64, 64)).astype(np.int8)
    values[0, 0] = least
    rows, result = t((2, 64), "float32"), t((2, 64), "float32")
    names = {"fused_activation_function": "NONE", "asymmetric_quantize_inputs": True}
    node = op("FULLY_CONNECTED", [rows, const(values, 0.01, 0)], [result], names, 9)
    return graph_of([node], [rows], [result])


@slow
def test_refusal_is_cached(device: DeviceInfo, requests: list[str]) -> None:
    good, bad = product(-127), product(-128)
    for again in (False, True):
        engine = open_engine(Options(device.index, tune="off"))
        target = engine.target(Rules())
        assert engine.verdicts(good, target)[0].is_taken
        (verdict,) = engine.verdicts(bad, target)
        assert not verdict.is_taken
        assert "a weight of -128" in str(verdict.reason)
        engine.executor(partition_of(good, [0]), target).close()
        with pytest.raises(Unsupported, match="a weight of -128"):
            engine.executor(partition_of(bad, [0]), target)
        assert bool(requests) != again
        requests.clear()


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> Iterator[helper_child._RequestHandler]:
    """Return a request handler that answers in this process instead of a child."""
    events = SimpleNamespace(send=lambda *_, **__: None)
    performer = helper_child._RequestHandler(events)  # type: ignore[arg-type]

    def ask(word: str, *arguments: Any, step_seconds: int | None = None) -> Response:
        answer = getattr(performer, word)(*arguments)
        return Response(is_answered=True, answer=answer, payload=answer.pop("payload"))

    monkeypatch.setattr(helper, "ask", ask)
    yield performer
    if performer._planner is not None:
        performer._planner.device.close()


@pytest.mark.parametrize(
    ("error", "raised", "is_kept"),
    [
        (Unsupported("no such sum"), Unsupported, True),
        (TooLarge("no room"), TooLarge, False),
        (KilledChild("it died"), KilledChild, False),
        (DeviceError("out of order"), DeviceError, False),
    ],
)
def test_errors_cross_processes_and_temporary_ones_are_not_cached(
    device: DeviceInfo,
    monkeypatch: pytest.MonkeyPatch,
    inline: helper_child._RequestHandler,
    error: Exception,
    raised: type[Exception],
    is_kept: bool,
) -> None:
    def fails(*_: object) -> None:
        raise error

    def partition() -> None:
        engine = open_engine(Options(device.index, tune="off"))
        engine.executor(partition_of(CHAIN, range(2)), engine.target(Rules())).close()

    with monkeypatch.context() as patch:
        patch.setattr(Planner, "partition", fails)
        with pytest.raises(raised, match=f"^{error}$") as caught:
            partition()
        assert type(caught.value) is raised
    if is_kept:
        with pytest.raises(raised, match=f"^{error}$"):
            partition()
    else:
        partition()


def test_this_process_builds_nothing_unplanned(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Self-tests come first.
    engine = open_engine(Options(device.index, own_context=True))
    target = engine.target(Rules())

    def dies(*request: object, step_seconds: float = 0) -> Response:
        raise InterruptedError

    monkeypatch.setattr(helper, "ask", dies)
    created: list[object] = []
    monkeypatch.setattr(Programs, "_built", lambda self, program, *more: created.append(program))
    monkeypatch.setattr(cl, "Buffer", lambda *more: created.append(more))
    with pytest.raises(InterruptedError):
        engine.verdicts(CHAIN, target)
    with pytest.raises(InterruptedError):
        engine.executor(partition_of(CHAIN, range(2)), target)
    assert created == []


@slow
def test_works_without_cache_folder(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, requests: list[str]
) -> None:
    proof = examine(device)
    monkeypatch.setattr("delegate.guard.probing.opening.examine", lambda info, *about: proof)
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, "/proc/none")
    for _ in range(2):
        plan = start(device, conv_pool())
        assert plan.memory.constant_bytes > 0
        assert not any(call.program.is_binary for call in plan.calls)
    assert requests == CALLS * 2


def test_read_only_cache(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, requests: list[str]
) -> None:
    cache.cache_folder().chmod(0o500)
    try:
        if os.access(cache.cache_folder(), os.W_OK):
            pytest.skip("nothing is read-only for this user")
        for _ in range(2):
            start(device, conv_pool())
    finally:
        cache.cache_folder().chmod(0o700)
    assert requests == CALLS * 2


@slow
def test_low_limits_ignore_cached_plan(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, requests: list[str]
) -> None:
    start(device, conv_pool())
    requests.clear()
    with monkeypatch.context() as low:
        low.setattr(environment, "shortages", lambda: "8 open files (ulimit -n)")
        start(device, conv_pool())
    assert requests == CALLS
    start(device, conv_pool())
    assert requests == CALLS


@slow
def test_idle_child_ends_itself(device: DeviceInfo, requests: list[str]) -> None:
    start(device, CHAIN)
    assert helper._helper is not None
    assert helper._helper.wait(120) == 0
    start(device, CHAIN, batch=2)
    assert requests == [*CALLS, "partition"]


def scripted(monkeypatch: pytest.MonkeyPatch, *heard: Response) -> list[Any]:
    """Return these responses to the first planning requests; collect all requests."""
    requests: list[Any] = []
    answers, ask = iter(heard), helper.ask

    def answer(word: str, *more: Any, step_seconds: int | None = None) -> Response:
        if word != "plan":
            return ask(word, *more, step_seconds=step_seconds)
        requests.append(more)
        return next(answers, None) or ask(word, *more, step_seconds=step_seconds)

    monkeypatch.setattr(helper, "ask", answer)
    return requests


def answered(payload: bytes) -> Response:
    output = {"error": "", "seconds_left": 0.0, "elsewhere": {}}
    return Response(is_answered=True, answer=output, payload=payload)


@slow
@pytest.mark.parametrize(
    "payload", [b"[[], null]\n[]", b"[[], null]\nno plan", b"[[], null]\n[[1]]"]
)
def test_invalid_answer_of_child_is_an_error(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, payload: bytes
) -> None:
    engine = open_engine(Options(device.index, tune="off"))
    target = engine.target(Rules())
    requests = scripted(monkeypatch, *[answered(payload)] * 4)
    with pytest.raises(DeviceError, match="what a child process planned is lost"):
        engine.verdicts(CHAIN, target)
    with pytest.raises(DeviceError, match="what a child process planned is lost"):
        engine.executor(partition_of(CHAIN, range(2)), target)
    assert len(requests) == 4  # each request was repeated to a new child
    engine.executor(partition_of(CHAIN, range(2)), target).close()


def test_device_that_kills_all_children_is_given_up(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(Options(device.index, own_context=True))
    requests = scripted(monkeypatch, *[Response(exit=ChildExit(-6))] * 3)
    with pytest.raises(
        DeviceError, match="a child process that tried the device died with SIGABRT"
    ):
        engine.target(Rules())
    assert len(requests) == 3
    assert not engine.device.context.failures


def test_trial_that_kills_two_children_is_left_out(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    graph = conv_pool()
    plan = start(device, graph)
    program = plan.calls[0].program
    ran = Trial(RUN, program.file, program.digest, plan.calls[0].kernel, (1, 1))
    built = Trial(BUILD, program.file, program.digest)
    for path in files("plans"):
        path.unlink()
    monkeypatch.setattr(child_planner, "_warned", set())
    engine = open_engine(Options(device.index, tune="off"))
    target = engine.target(Rules())
    before = [*records_of(engine).left_out]  # self-tests that crash this driver
    died = [Response(trying=[Trial.of(EXECUTOR, 1), ran], exit=ChildExit(-6)) for _ in range(2)]
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "delegate"):
        requests = scripted(patch, *died)
        verdicts = engine.verdicts(graph, target)
    assert [[*left_out] for _, left_out, *_ in requests] == [before, before, [*before, built]]
    first, second = caplog.messages
    assert first.endswith("another one tries it again")
    assert f"as it tried to {ran.blamed.words}" in first
    assert "as another one did: it is left out for a week" in second
    assert Records(engine.device.identity).left_out.keys() == {*before, built}
    if verdicts[0].is_taken:
        partition = partition_of(graph, range(2))
        with engine.executor(partition, target) as executor:
            assert program not in [call.program for call in executor.plan.calls]
    else:
        assert verdicts[0].is_lost
        assert "died with SIGABRT" in str(verdicts[0].reason)
    # The next start uses that plan, and warns once that something is left out.
    caplog.clear()

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(child_planner, "_warned", set())  # as in a new process
    monkeypatch.setattr(helper, "ask", forbidden)
    for _ in range(2):
        again = open_engine(Options(device.index, tune="off"))
        assert again.verdicts(graph, target) == verdicts
        again.close()
    assert [m for m in caplog.messages if "are left out" in m] == [
        "kernels are left out on this device, because child processes died of them before: "
        "`tflite-opencl info --bans` says which"
    ]


@slow
def test_plan_without_banned_trial_is_not_kept(device: DeviceInfo, requests: list[str]) -> None:
    graph = conv_pool()
    plan = start(device, graph)
    program = plan.calls[0].program
    engine = open_engine(Options(device.index, tune="off", own_context=True))
    records_of(engine).left_out[Trial(BUILD, program.file, program.digest)] = "it died"
    requests.clear()
    target = engine.target(Rules())
    verdicts = engine.verdicts(graph, target)
    assert requests == CALLS[:2]
    assert [each.is_taken for each in verdicts][1:] == [True] * (len(verdicts) - 1)
    if verdicts[0].is_taken:  # it lost an alternative
        with engine.executor(partition_of(graph, range(2)), target) as executor:
            assert program not in [call.program for call in executor.plan.calls]
    else:  # or itself
        assert "it died" in str(verdicts[0].reason)
        assert verdicts[0].is_lost
    requests.clear()
    assert start(device, graph).calls == plan.calls
    assert requests == []


def test_executor_that_killed_a_child_is_not_created(
    device: DeviceInfo, inline: helper_child._RequestHandler
) -> None:
    engine = open_engine(Options(device.index, tune="off"))
    target, partition = engine.target(Rules()), partition_of(CHAIN, range(2))
    engine.executor(partition, target).close()
    assert inline._planner is not None
    done = inline._planner.trials._done
    left_out = {trial: "it died" for trial in done if trial.kind == EXECUTOR}
    assert left_out
    records_of(engine).left_out.update(left_out)
    with pytest.raises(KilledChild, match="it died"):
        engine.executor(partition, target)


@slow
def test_registers_are_probed_in_child(device: DeviceInfo, requests: list[str]) -> None:
    profile = read_device_profile("v3d")  # of a GPU, whose registers are probed
    options = Options(device.index, tune="off", device_profile=profile)
    for _ in range(2):
        assert open_engine(options).target(Rules()).registers
        assert requests == ["registers"]


@slow
def test_model_with_batches(device: DeviceInfo, requests: list[str]) -> None:
    model = write_model(CHAIN)
    for expected in ({*CALLS}, set()):
        with Model(model, device.index, batch=3) as opened:
            pictures = np.full(opened.input_details[0].shape, 130, np.uint8)
            (out,) = opened.run(pictures)
            runs = [opened.run_async(pictures) for _ in range(2)]  # in two slots
            for (later,) in (run.result() for run in runs):
                assert np.array_equal(later, out)
        assert set(np.unique(out)) == {134}
        assert {*requests} == expected
        requests.clear()
    Model(model, device.index, in_child_first=False, batch=2).close()
    assert requests == []


@pytest.mark.parametrize("is_known", [True, False])
def test_child_is_started_early_for_first_start(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    monkeypatch.setattr(start_engine, "has_stores", lambda: is_known)
    helper._close()
    start_early()
    assert (helper._helper is None) == is_known


def test_in_child_first_selects_planner(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Options().in_child_first
    for is_on, wanted, kind in (
        (True, True, ChildPlanner),
        (True, False, Planner),
        (False, True, Planner),
    ):
        monkeypatch.setattr(start_engine, "is_on", is_on)
        engine = open_engine(Options(device.index, in_child_first=wanted))
        assert type(engine._planning) is kind
