# SPDX-License-Identifier: Apache-2.0
"""Engines that begin in a child: what they repeat, what a death costs, what is remembered."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from delegate import DeviceError, DeviceInfo, Model, Options, cache, ops
from delegate.errors import GivenUp, KilledChild
from delegate.graph.partition import partition_of
from delegate.inspect import Graph, read_device_profile, write_model
from delegate.launch import Alternative
from delegate.runtime.bench import DeviceBench
from delegate.runtime.kernels import Kernels
from delegate.sandbox import helper
from delegate.sandbox.channel import Channel
from delegate.sandbox.child import Ended
from delegate.sandbox.helper import Heard
from delegate.sandbox.records import Records
from delegate.sandbox.trials import BINARY, BUILD, DONE, RUN, Free, Told, Trial
from delegate.start import helper_child, rehearsal
from delegate.start.engine import Engine
from delegate.start.probe import examine
from delegate.start.rehearsal import Repeated, open_engine, start_early
from delegate.target import Rules
from tests.support.deal import any_driver
from tests.support.nets import conv_pool, net

pytestmark = [any_driver, pytest.mark.usefixtures("own_cache")]

CHAIN = net([("ADD", [0, 0], 1), ("ADD", [1, 0], 2)])


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the calls that children are asked for."""
    asked: list[str] = []
    ask = helper.ask

    def noted(word: str, *more: Any, **options: int) -> Heard:
        if word == "engine":
            asked.append(more[1][0])
        return ask(word, *more, **options)

    monkeypatch.setattr(helper, "ask", noted)
    return asked


def records_of(engine: Engine) -> Records:
    assert isinstance(engine.trials, Repeated)
    return engine.trials.records


def run_of(engine: Engine, graph: Graph = CHAIN, batch: int = 1) -> list[int]:
    """Return the values that the graph gives of 130, each once."""
    target = engine.target(Rules())
    assert all(verdict.is_taken for verdict in engine.verdicts(graph, target))
    executor = engine.executor(partition_of(graph, range(len(graph.nodes))), target, batch)
    out = np.zeros(batch * 18, np.uint8)
    executor.run([np.full(batch * 18, 130, np.uint8)], [out])
    executor.close()
    return sorted(set(out.tolist()))


def test_a_child_does_it_first_and_later_starts_need_none(
    device: DeviceInfo, requests: list[str]
) -> None:
    assert run_of(open_engine(Options(device.index, tune="full"))) == [134]
    assert set(requests) == {"verdicts", "executor"}
    del requests[:]
    assert run_of(open_engine(Options(device.index, tune="full"))) == [134]
    assert requests == []
    # Other sizes are something new.
    assert run_of(open_engine(Options(device.index, tune="full")), batch=2) == [134]
    assert requests


def test_this_process_builds_nothing_that_no_child_built(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whose self-tests are no concern here.
    engine = open_engine(Options(device.index, own_context=True))

    def dies(*request: object, step_seconds: float = 0) -> Heard:
        raise InterruptedError

    monkeypatch.setattr(helper, "ask", dies)
    compiled: list[str] = []
    monkeypatch.setattr(Kernels, "_compile", lambda self, program, file: compiled.append(file))
    with pytest.raises(InterruptedError):
        engine.verdicts(CHAIN, engine.target(Rules()))
    partition = partition_of(CHAIN, range(2))
    with pytest.raises(InterruptedError):
        engine.executor(partition, engine.target(Rules()))
    assert compiled == []


def test_without_a_cache_folder_it_works_as_well(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, requests: list[str]
) -> None:
    proof = examine(device)
    monkeypatch.setattr("delegate.start.opening.examine", lambda info, profile: proof)
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, "/proc/none")
    for _ in range(2):
        assert run_of(open_engine(Options(device.index))) == [134]
    assert requests.count("executor") == 2


def test_a_binary_that_is_gone_is_made_again(device: DeviceInfo, requests: list[str]) -> None:
    run_of(open_engine(Options(device.index, tune="off")))
    # Of one that the driver keeps as well, no binary may have been kept.
    kept = {*Records(open_engine(Options(device.index)).device.identity).done.values()}
    del requests[:]
    for path in cache.cache_folder().glob("programs/*"):
        path.unlink()
    assert run_of(open_engine(Options(device.index, tune="off", own_context=True))) == [134]
    assert ("executor" in requests) == ("binary" in kept)


def test_a_child_that_was_not_asked_for_long_ends_itself(
    device: DeviceInfo, requests: list[str]
) -> None:
    run_of(open_engine(Options(device.index, tune="off")))
    assert helper._helper is not None
    assert helper._helper.wait(120) == 0
    assert run_of(open_engine(Options(device.index, tune="off")), batch=2) == [134]


def scripted(monkeypatch: pytest.MonkeyPatch, *heard: Callable[[], Heard]) -> list[Any]:
    """Let children answer so, in turn; return what they are asked."""
    asked: list[Any] = []
    answers = iter(heard)

    def answer(*request: object, step_seconds: int | None = None) -> Heard:
        asked.append(request)
        return next(answers)()

    monkeypatch.setattr(helper, "ask", answer)
    return asked


def test_a_child_that_tries_nothing_is_no_endless_loop(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(Options(device.index))
    scripted(monkeypatch, *[lambda: Heard(is_answered=True, answer=({}, 0.0, {}))] * 5)
    with pytest.raises(DeviceError, match=r"^no child process tries to "):
        run_of(engine)


def test_what_is_looked_up_is_asked_for_once_and_done_as_the_child_did_it(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = open_engine(Options(device.index, tune="off")).trials
    made, ran = Trial(BUILD, "add", "a1"), Trial(RUN, "add", "a1", "add", (1, 1))
    asked = scripted(
        monkeypatch,
        lambda: Heard(found={made: BINARY}, trying=[ran], ended=Ended(-6)),
        lambda: Heard(found={made: BINARY, ran: DONE}, is_answered=True, answer=({}, 0.0, {})),
        lambda: Heard(is_answered=True, answer=({}, 0.0, {})),
    )
    looks: list[list[bool]] = []

    def look() -> int:
        looks.append([trials.awaits(trial) for trial in (made, ran)])
        return len(looks)

    assert trials.settled(("verdicts", 1), look) == 2
    assert looks == [[True, True], [False, False]]
    assert [request[2] for request in asked] == [("verdicts", 1)] * 2
    with trials.of(made) as under_way:
        assert under_way.how == BINARY
    assert not trials.is_due(ran)
    assert trials.settled(("verdicts", 2), look) == 3
    # What no look has found is asked for in its place; nobody has to catch what that gives up.
    gone = Trial(BUILD, "add", "b2")
    for _ in range(2):
        with pytest.raises(GivenUp, match=r"^no child process tries to build add.cl"):
            trials.is_due(gone)
    assert len(asked) == 3


def test_a_device_that_is_given_up_is_no_kernel_s_fault(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(Options(device.index, own_context=True))
    trials, launch = engine.trials, ops.lower(CHAIN.nodes[0], engine.target(Rules()))[0].launches[0]
    scripted(monkeypatch, *[lambda: Heard(ended=Ended(-6))] * 3)
    monkeypatch.setattr(trials, "awaits", lambda trial: False)
    with pytest.raises(GivenUp, match="a child process that tried the device died with SIGABRT"):
        engine._kernels.check([launch])
    assert not engine.device.context.failures


def test_what_killed_a_child_costs_an_alternative_then_a_node(
    device: DeviceInfo, caplog: pytest.LogCaptureFixture
) -> None:
    graph = conv_pool()
    engine = open_engine(Options(device.index, tune="off"))
    target = engine.target(Rules())
    partition = partition_of(graph, range(len(graph.nodes)))
    first = engine.executor(partition, target)
    step = first.program.steps[0]
    names = [step.alternative.name]
    records_of(engine).left_out.update(
        {
            engine._kernels.trial(RUN, launch).blamed: "it died"
            for launch in step.alternative.launches
        }
    )
    with caplog.at_level(logging.WARNING, "delegate"):
        verdicts = engine.verdicts(graph, target)
    assert [each.is_taken for each in verdicts][1:] == [True] * (len(verdicts) - 1)
    if len(step.names) > 1:
        assert verdicts[0].is_taken
        second = engine.executor(partition, target).program.steps[0].alternative.name
        assert second not in names
    else:
        assert verdicts[0].reason is not None
        assert "it died" in verdicts[0].reason
        assert [each.is_lost for each in verdicts] == [True] + [False] * (len(verdicts) - 1)


def test_an_executor_that_killed_a_child_is_not_made(device: DeviceInfo) -> None:
    engine = open_engine(Options(device.index, tune="off"))
    target, partition = engine.target(Rules()), partition_of(CHAIN, range(2))
    trial = engine.executor(partition, target).trial
    records_of(engine).left_out[trial] = "it died"
    with pytest.raises(KilledChild, match="it died"):
        engine.executor(partition, target)


def test_what_a_compiler_is_asked_is_asked_in_a_child_too(
    device: DeviceInfo, requests: list[str]
) -> None:
    profile = read_device_profile("v3d")  # of a GPU, whose compiler is asked for its registers
    options = Options(device.index, tune="off", device_profile=profile)
    engine = open_engine(options)
    assert engine.target(Rules()).registers
    assert requests == ["target"]
    assert open_engine(options).target(Rules()).registers
    assert requests == ["target"]


def test_a_model_and_its_batches(device: DeviceInfo, requests: list[str]) -> None:
    model = write_model(CHAIN)
    with Model(model, device.index, batch=3) as opened:
        pictures = np.full(opened.input_details[0].shape, 130, np.uint8)
        (out,) = opened.run(pictures)
        runs = [opened.run_async(pictures) for _ in range(2)]  # of two slots
        for (later,) in (run.result() for run in runs):
            assert np.array_equal(later, out)
    assert set(np.unique(out)) == {134}
    assert set(requests) == {"verdicts", "executor"}
    del requests[:]
    Model(model, device.index, in_child_first=False, batch=2).close()
    assert requests == []


@pytest.mark.parametrize("is_known", [True, False])
def test_a_first_start_compiles_from_both_ends(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    begun: list[object] = []
    monkeypatch.setattr(helper, "go_ahead", lambda *request, **environment: begun.append(request))
    monkeypatch.setattr(rehearsal, "has_stores", lambda: is_known)
    monkeypatch.setattr(rehearsal.os, "sched_getaffinity", lambda process: {0, 1})
    options = Options(device.index, device_profile=None)
    open_engine(options, lambda: [CHAIN])
    assert begun == ([] if is_known else [("ahead", options, [CHAIN])])
    monkeypatch.setattr(rehearsal.os, "sched_getaffinity", lambda process: {0})
    open_engine(options, lambda: [CHAIN])
    open_engine(options)
    assert len(begun) <= 1


@pytest.mark.parametrize("is_known", [True, False])
def test_later_graphs_of_a_file_are_compiled_beside_the_first(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    told: list[str] = []
    monkeypatch.setattr(helper, "go_ahead", lambda word, *more, **environment: told.append(word))
    monkeypatch.setattr(helper, "await_ahead", lambda seconds: told.append("await"))
    monkeypatch.setattr(helper, "stop_ahead", lambda: told.append("stop"))
    monkeypatch.setattr(rehearsal, "has_stores", lambda: is_known)
    monkeypatch.setattr(rehearsal.os, "sched_getaffinity", lambda process: {0, 1})
    graphs = [replace(CHAIN, subgraph=number) for number in range(2)]
    engine = open_engine(Options(device.index), lambda: graphs)
    engine.chooser.seconds_left = 0
    target = engine.target(Rules())
    begun = [] if is_known else ["ahead"]
    assert told == begun
    for graph in graphs:
        engine.verdicts(graph, target)
        engine.executor(partition_of(graph, range(len(graph.nodes))), target).close()
    # What is compiled there already was the first graph's, too.
    assert told == [*begun, *(["stop"] if begun else ["stop"] * 2)]
    assert run_of(engine) == [134]


def test_who_compiles_several_graphs_makes_what_the_first_child_will(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    compiled = Kernels._compiled

    def noted(self: Kernels, file: str, source: str) -> Any:
        built.append(source)
        return compiled(self, file, source)

    if device.platform == "rusticl":
        pytest.skip(
            "it is taken for a CPU that knows its processor's instructions, and may end a process"
        )
    options = Options(device.index, own_context=True)  # in which nothing was built
    monkeypatch.setattr(Kernels, "_compiled", noted)
    performer = helper_child._Performer(helper_child._Teller(Channel(0, 1)))
    performer.ahead(replace(options, exclude_ops=["ADD"]), [CHAIN] * 2)
    assert built == []
    performer.ahead(options, [CHAIN] * 2)
    assert not list(cache.cache_folder().glob("programs/add*"))
    ahead = {*built}
    assert bool(ahead) == (device.type == "cpu")
    built.clear()
    told = Told({}, {}, lambda **_: None)
    engine = Engine(options, lambda *_: told)
    engine.chooser.go_on({}, 0.0)
    target = engine.target(Rules())
    engine.verdicts(CHAIN, target)
    engine.executor(partition_of(CHAIN, range(2)), target).close()
    assert {*built} >= ahead


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("is_known", [True, False])
def test_children_are_started_early_where_a_first_start_needs_them(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, is_known: bool, cores: int
) -> None:
    monkeypatch.setattr(rehearsal, "has_stores", lambda: is_known)
    monkeypatch.setattr(rehearsal.os, "sched_getaffinity", lambda process: {*range(cores)})
    helper._close()
    start_early()
    assert (helper._helper is None, helper._ahead is None) == (is_known, is_known or cores < 2)
    early = helper._ahead
    open_engine(Options(device.index), lambda: [CHAIN])
    assert is_known or helper._ahead is early
    assert early is None or not early.is_new
    helper.stop_ahead()


def test_who_works_ahead_runs_the_last_node_first(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    warm_up = DeviceBench.warm_up

    def noted(self: DeviceBench, alternative: Alternative) -> None:
        warm_up(self, alternative)
        ran.append(alternative.launches[0].file.split("_2d")[0])

    monkeypatch.setattr(DeviceBench, "warm_up", noted)
    performer = helper_child._Performer(helper_child._Teller(Channel(0, 1)))
    performer.ahead(Options(device.index), [conv_pool()])
    assert ran == (["pool", "conv"] if device.type == "cpu" else [])
    assert not list(cache.cache_folder().glob("programs/*"))


def test_who_works_ahead_ends_by_itself_or_at_once(device: DeviceInfo) -> None:
    helper.go_ahead("ahead", Options(device.index, exclude_isa=["all"]), [CHAIN])
    assert helper._ahead is not None
    assert helper._ahead.wait(120) == 0
    helper.go_ahead("ahead", Options(device.index), [CHAIN])
    awaited = helper._ahead
    helper.await_ahead(120)
    assert helper._ahead is None
    assert awaited.wait(0) == 0
    helper.go_ahead("ahead", Options(device.index), [CHAIN])
    child = helper._ahead
    helper.stop_ahead()
    assert child.wait(5) is not None
    assert helper._ahead is None


def test_who_asks_for_it_gets_it(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Options().in_child_first
    for is_on, wanted, kind in ((True, True, Repeated), (True, False, Free), (False, True, Free)):
        monkeypatch.setattr(rehearsal, "is_on", is_on)
        assert type(open_engine(Options(device.index, in_child_first=wanted)).trials) is kind
