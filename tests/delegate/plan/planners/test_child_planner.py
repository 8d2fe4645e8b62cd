# SPDX-License-Identifier: Apache-2.0
"""Plans by a child: a later start needs none, what makes one void, what a death costs."""

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


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what children are asked to plan."""
    asked: list[str] = []
    ask = helper.ask

    def noted(word: str, *more: Any, **options: Any) -> Response:
        if word == "plan":
            asked.append(more[3])
        return ask(word, *more, **options)

    monkeypatch.setattr(helper, "ask", noted)
    return asked


def planner_in(engine: Engine) -> ChildPlanner:
    assert isinstance(engine._planning, ChildPlanner)
    return engine._planning


def records_of(engine: Engine) -> Records:
    return planner_in(engine)._records


def started(device: DeviceInfo, graph: Graph, batch: int = 1, **options: Any) -> PartitionPlan:
    """Start a graph in a context of its own; return its plan, which gives what the nodes give."""
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
def test_a_later_start_asks_no_child_and_does_nothing_that_planning_does(
    device: DeviceInfo,
    monkeypatch: pytest.MonkeyPatch,
    requests: list[str],
    graph: Graph,
    tune: str,
) -> None:
    first = started(device, graph, tune=tune)
    assert requests == CALLS

    def never(*_: object, **__: object) -> None:
        raise AssertionError("it was planned before")

    engine = open_engine(Options(device.index, tune=tune, own_context=True))
    with monkeypatch.context() as patch:
        patch.setattr(helper, "ask", never)
        patch.setattr(ops, "lower", never)
        patch.setattr(Chooser, "choose", never)
        for name in ("verdicts", "rewritten", "compile_partition"):
            patch.setattr(compiler, name, never)
        patch.setattr(Planner, "__init__", never)
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
    started(device, graph, tune=tune)
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
def test_a_plan_is_of_a_model_its_shapes_options_and_device(
    device: DeviceInfo, requests: list[str], what: str
) -> None:
    graph, options, asked = OTHERS[what]
    started(device, conv_pool())
    requests.clear()
    started(device, graph, **options)
    assert requests == asked
    started(device, graph, **options)
    started(device, conv_pool())
    assert requests == asked


@slow
def test_other_weights_and_other_rules_are_another_model(
    device: DeviceInfo, requests: list[str]
) -> None:
    graph = conv_pool()
    started(device, graph)
    requests.clear()
    conv, pool = graph.nodes
    source, weights, bias = conv.inputs
    assert weights is not None
    assert weights.data is not None
    other = weights.data.copy()
    other[-1, -1, -1, -1] ^= 1
    changed = replace(conv, inputs=(source, replace(weights, data=other), bias))
    started(device, graph_of([changed, pool]))
    assert requests == ["verdicts", "partition"]
    requests.clear()
    engine = open_engine(Options(device.index, tune="off"))
    target = replace(engine.target(Rules()), rules=Rules(reverses_first_axis=True))
    engine.verdicts(graph, target)
    assert requests == ["verdicts"]


@slow
def test_a_plan_of_all_measurements_is_taken_by_who_waits_less(
    device: DeviceInfo, requests: list[str]
) -> None:
    for tune, asked in (("quick", CALLS), ("full", ["partition"]), ("quick", []), ("full", [])):
        started(device, conv_pool(), tune=tune)
        assert requests == asked
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


def gone(paths: list[Path]) -> None:
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


CHANGES = [cut, flipped, swapped, gone, emptied, folders, of_others]


@slow
@pytest.mark.parametrize("change", CHANGES)
def test_a_damaged_plan_is_not_used_and_made_again(
    device: DeviceInfo, requests: list[str], change: Callable[[list[Path]], None]
) -> None:
    graph = conv_pool()
    started(device, graph)
    assert len(files("plans")) == len(CALLS)
    change(files("plans"))
    requests.clear()
    started(device, graph)
    assert requests == CALLS
    started(device, graph)
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
def test_foreign_words_are_no_plan(device: DeviceInfo, requests: list[str], content: bytes) -> None:
    graph = conv_pool()
    started(device, graph)
    for path in files("plans"):
        assert cache.store(f"plans/{path.name}", content)
    requests.clear()
    started(device, graph)
    assert requests == CALLS
    requests.clear()
    started(device, graph)
    assert requests == []


@slow
def test_a_plan_of_other_tensors_is_none(
    device: DeviceInfo, requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    path_of = ChildPlanner._path

    def noted(self: ChildPlanner, name: str, call: str, *more: Any) -> Any:
        if call == "partition":
            names.append(path_of(self, name))
        return answer(self, name, call, *more)

    answer = ChildPlanner._answer
    monkeypatch.setattr(ChildPlanner, "_answer", noted)
    graph = conv_pool()
    for each in (CHAIN, graph):
        started(device, each)
    requests.clear()
    content = cache.load(names[0])
    assert content is not None
    cache.store(names[1], content)
    started(device, graph)
    assert requests == ["partition"]


@slow
@pytest.mark.parametrize("change", CHANGES)
def test_damaged_constants_are_made_again(
    device: DeviceInfo, requests: list[str], change: Callable[[list[Path]], None]
) -> None:
    graphs = conv_pool(), product(-127)  # of two files, to be swapped
    for graph in graphs:
        started(device, graph)
    assert len(files(FOLDER)) > 1
    change(files(FOLDER))
    requests.clear()
    for graph in graphs:
        started(device, graph)
    assert requests == ["partition"] * 2
    for graph in graphs:
        started(device, graph)
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
    plan = started(device, conv_pool())
    of_binaries = any(call.program.is_binary for call in plan.calls)
    change(files("programs"))
    requests.clear()
    if has_new_child:
        helper._close()
    # An older one has the programs in memory, and only a fresh one builds them again.
    asked = ["partition"] * (1 if has_new_child else 2) if of_binaries else []
    for _ in range(2):
        started(device, conv_pool())
        assert requests == asked


@slow
def test_two_processes_at_once_plan_once(device: DeviceInfo, tmp_path: Path) -> None:
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
    told = [json.loads(each.communicate(timeout=300)[0].splitlines()[-1]) for each in both]
    assert sorted([*told[0], *told[1]]) == sorted(CALLS)


def requests_of_a_start(device: int) -> str:
    """Start a graph, and return in JSON what a child was asked to plan for it."""
    asked: list[str] = []
    ask = helper.ask

    def noted(word: str, *more: Any, **options: Any) -> Response:
        if word == "plan":
            asked.append(more[3])
        return ask(word, *more, **options)

    helper.ask = noted
    start_engine.is_on = True
    with Model(write_model(conv_pool()), device, tune="off") as model:
        model.run(np.zeros(model.input_details[0].shape, np.uint8))
    return json.dumps(asked)


def product(least: int) -> Graph:
    """Return float rows times int8 weights, the first of which is `least`."""
    values = np.random.default_rng(3).integers(-127, 128, (64, 64)).astype(np.int8)
    values[0, 0] = least
    rows, result = t((2, 64), "float32"), t((2, 64), "float32")
    names = {"fused_activation_function": "NONE", "asymmetric_quantize_inputs": True}
    node = op("FULLY_CONNECTED", [rows, const(values, 0.01, 0)], [result], names, 9)
    return graph_of([node], [rows], [result])


@slow
def test_what_does_not_lower_is_refused_again_without_a_child(
    device: DeviceInfo, requests: list[str]
) -> None:
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
    """Return a child's performer that answers in this process."""
    tell = SimpleNamespace(tell=lambda *_, **__: None)
    performer = helper_child._RequestHandler(tell)  # type: ignore[arg-type]

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
def test_errors_cross_and_those_that_may_pass_are_not_kept(
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
        with pytest.raises(raised, match=f"^{error}$") as told:
            partition()
        assert type(told.value) is raised
    if is_kept:
        with pytest.raises(raised, match=f"^{error}$"):
            partition()
    else:
        partition()


def test_this_process_builds_nothing_that_no_child_planned(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whose self-tests are no concern here.
    engine = open_engine(Options(device.index, own_context=True))
    target = engine.target(Rules())

    def dies(*request: object, step_seconds: float = 0) -> Response:
        raise InterruptedError

    monkeypatch.setattr(helper, "ask", dies)
    made: list[object] = []
    monkeypatch.setattr(Programs, "_built", lambda self, program, *more: made.append(program))
    monkeypatch.setattr(cl, "Buffer", lambda *more: made.append(more))
    with pytest.raises(InterruptedError):
        engine.verdicts(CHAIN, target)
    with pytest.raises(InterruptedError):
        engine.executor(partition_of(CHAIN, range(2)), target)
    assert made == []


@slow
def test_without_a_cache_folder_it_works_as_well(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, requests: list[str]
) -> None:
    proof = examine(device)
    monkeypatch.setattr("delegate.guard.probing.opening.examine", lambda info, profile: proof)
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, "/proc/none")
    for _ in range(2):
        plan = started(device, conv_pool())
        assert plan.memory.constant_bytes > 0
        assert not any(call.program.is_binary for call in plan.calls)
    assert requests == CALLS * 2


def test_a_cache_that_becomes_full_costs_no_start(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, requests: list[str]
) -> None:
    cache.cache_folder().chmod(0o500)
    try:
        if os.access(cache.cache_folder(), os.W_OK):
            pytest.skip("nothing is read-only for this user")
        for _ in range(2):
            started(device, conv_pool())
    finally:
        cache.cache_folder().chmod(0o700)
    assert requests == CALLS * 2


@slow
def test_under_low_limits_it_is_planned_again(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, requests: list[str]
) -> None:
    started(device, conv_pool())
    requests.clear()
    with monkeypatch.context() as low:
        low.setattr(environment, "shortages", lambda: "8 open files (ulimit -n)")
        started(device, conv_pool())
    assert requests == CALLS
    started(device, conv_pool())
    assert requests == CALLS


@slow
def test_a_child_that_was_not_asked_for_long_ends_itself(
    device: DeviceInfo, requests: list[str]
) -> None:
    started(device, CHAIN)
    assert helper._helper is not None
    assert helper._helper.wait(120) == 0
    started(device, CHAIN, batch=2)
    assert requests == [*CALLS, "partition"]


def scripted(monkeypatch: pytest.MonkeyPatch, *heard: Response) -> list[Any]:
    """Let children say that to the first plans they are asked for; return all requests."""
    asked: list[Any] = []
    answers, ask = iter(heard), helper.ask

    def answer(word: str, *more: Any, step_seconds: int | None = None) -> Response:
        if word != "plan":
            return ask(word, *more, step_seconds=step_seconds)
        asked.append(more)
        return next(answers, None) or ask(word, *more, step_seconds=step_seconds)

    monkeypatch.setattr(helper, "ask", answer)
    return asked


def answered(payload: bytes) -> Response:
    said = {"error": "", "seconds_left": 0.0, "elsewhere": {}}
    return Response(is_answered=True, answer=said, payload=payload)


@slow
@pytest.mark.parametrize(
    "payload", [b"[[], null]\n[]", b"[[], null]\nno plan", b"[[], null]\n[[1]]"]
)
def test_a_child_that_answers_nonsense_is_an_error(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, payload: bytes
) -> None:
    engine = open_engine(Options(device.index, tune="off"))
    target = engine.target(Rules())
    asked = scripted(monkeypatch, *[answered(payload)] * 4)
    with pytest.raises(DeviceError, match="what a child process planned is lost"):
        engine.verdicts(CHAIN, target)
    with pytest.raises(DeviceError, match="what a child process planned is lost"):
        engine.executor(partition_of(CHAIN, range(2)), target)
    assert len(asked) == 4  # a fresh child was asked again
    engine.executor(partition_of(CHAIN, range(2)), target).close()


def test_a_device_that_ends_all_children_is_given_up(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(Options(device.index, own_context=True))
    asked = scripted(monkeypatch, *[Response(exit=ChildExit(-6))] * 3)
    with pytest.raises(
        DeviceError, match="a child process that tried the device died with SIGABRT"
    ):
        engine.target(Rules())
    assert len(asked) == 3
    assert not engine.device.context.failures


def test_what_two_children_die_of_is_left_out_and_a_fresh_one_goes_on(
    device: DeviceInfo,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    graph = conv_pool()
    plan = started(device, graph)
    program = plan.calls[0].program
    ran = Trial(RUN, program.file, program.digest, plan.calls[0].kernel, (1, 1))
    built = Trial(BUILD, program.file, program.digest)
    for path in files("plans"):
        path.unlink()
    monkeypatch.setattr(child_planner, "_warned", set())
    engine = open_engine(Options(device.index, tune="off"))
    target = engine.target(Rules())
    before = [*records_of(engine).left_out]  # self-tests that end this driver
    died = [Response(trying=[Trial.of(EXECUTOR, 1), ran], exit=ChildExit(-6)) for _ in range(2)]
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "delegate"):
        asked = scripted(patch, *died)
        verdicts = engine.verdicts(graph, target)
    assert [[*left_out] for _, left_out, *_ in asked] == [before, before, [*before, built]]
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
    # The next start finds that plan, and says once that it is without something.
    caplog.clear()

    def never(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(child_planner, "_warned", set())  # as in another process
    monkeypatch.setattr(helper, "ask", never)
    for _ in range(2):
        again = open_engine(Options(device.index, tune="off"))
        assert again.verdicts(graph, target) == verdicts
        again.close()
    assert [m for m in caplog.messages if "are left out" in m] == [
        "kernels are left out on this device, because child processes died of them before: "
        "`tflite-opencl info --bans` says which"
    ]


@slow
def test_what_is_left_out_of_one_start_alone_is_planned_again_by_the_next(
    device: DeviceInfo, requests: list[str]
) -> None:
    graph = conv_pool()
    plan = started(device, graph)
    program = plan.calls[0].program
    engine = open_engine(Options(device.index, tune="off", own_context=True))
    records_of(engine).left_out[Trial(BUILD, program.file, program.digest)] = "it died"
    requests.clear()
    target = engine.target(Rules())
    verdicts = engine.verdicts(graph, target)
    assert requests == CALLS[:2]
    assert [each.is_taken for each in verdicts][1:] == [True] * (len(verdicts) - 1)
    if verdicts[0].is_taken:  # it cost an alternative
        with engine.executor(partition_of(graph, range(2)), target) as executor:
            assert program not in [call.program for call in executor.plan.calls]
    else:  # or the node
        assert "it died" in str(verdicts[0].reason)
        assert verdicts[0].is_lost
    requests.clear()
    assert started(device, graph).calls == plan.calls
    assert requests == []


def test_an_executor_that_killed_a_child_is_not_made(
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
def test_what_a_compiler_is_asked_is_asked_in_a_child_too(
    device: DeviceInfo, requests: list[str]
) -> None:
    profile = read_device_profile("v3d")  # of a GPU, whose compiler is asked for its registers
    options = Options(device.index, tune="off", device_profile=profile)
    for _ in range(2):
        assert open_engine(options).target(Rules()).registers
        assert requests == ["registers"]


@slow
def test_a_model_and_its_batches(device: DeviceInfo, requests: list[str]) -> None:
    model = write_model(CHAIN)
    for asked in ({*CALLS}, set()):
        with Model(model, device.index, batch=3) as opened:
            pictures = np.full(opened.input_details[0].shape, 130, np.uint8)
            (out,) = opened.run(pictures)
            runs = [opened.run_async(pictures) for _ in range(2)]  # of two slots
            for (later,) in (run.result() for run in runs):
                assert np.array_equal(later, out)
        assert set(np.unique(out)) == {134}
        assert {*requests} == asked
        requests.clear()
    Model(model, device.index, in_child_first=False, batch=2).close()
    assert requests == []


@pytest.mark.parametrize("is_known", [True, False])
def test_a_child_is_started_early_where_a_first_start_needs_it(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    monkeypatch.setattr(start_engine, "has_stores", lambda: is_known)
    helper._close()
    start_early()
    assert (helper._helper is None) == is_known


def test_who_asks_for_it_gets_it(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Options().in_child_first
    for is_on, wanted, kind in (
        (True, True, ChildPlanner),
        (True, False, Planner),
        (False, True, Planner),
    ):
        monkeypatch.setattr(start_engine, "is_on", is_on)
        engine = open_engine(Options(device.index, in_child_first=wanted))
        assert type(engine._planning) is kind
