# SPDX-License-Identifier: Apache-2.0
"""Specialised kernels: equal results, and when they are built and used."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from delegate import DeviceError, DeviceInfo, Options, ops
from delegate.engine import Engine
from delegate.graph.partition import partition_of
from delegate.inspect import Node
from delegate.launch import Alternative, Launch
from delegate.plan.record import ONE_BY_ONE, PERSISTENT
from delegate.plan.sources import defines_of
from delegate.plan.tuning import dispatch
from delegate.plan.tuning.agreement import are_same
from delegate.plan.tuning.bench import DeviceBench
from delegate.plan.tuning.chooser import Chooser
from delegate.run.executor import Executor
from delegate.target import Rules
from tests.support.cases import integers
from tests.support.model import const, op, t
from tests.support.nets import net
from tests.support.nodes import valid_nodes
from tests.support.process import ROOT
from tests.support.schedules import launches_of, planner_of
from tests.support.tiers import slow

CHAIN = net([("ADD", [0, 0], 1), ("ADD", [1, 0], 2)])
NODES = valid_nodes("uint8")


@pytest.mark.usefixtures("one_context")
@pytest.mark.parametrize("op", NODES)
def test_specialised_kernels_have_equal_results(device: DeviceInfo, op: str) -> None:
    engine = Engine(Options(device.index, tune="off"))
    first = ops.lower(NODES[op], engine.target(Rules()))[0]
    both = [first.specialised(), first]
    assert planner_of(engine)._bench.are_correct(NODES[op], both, lambda *_: None) == [True, True]


def test_integers_become_literals_and_offsets_stay() -> None:
    params = {"size": 7, "least": -(2**31), "zero": -5}
    tensor = CHAIN.nodes[0].outputs[0]
    launch = Launch("add", "add_quant8", 1, 1, {**params, "output": tensor}, (), (tensor,))
    loaded = {"SIZE": "(params[0])", "LEAST": "(params[1])", "ZERO": "(params[2])"}
    own = {"USES_ADD_QUANT8": "1", "OUTPUT": "(params[3])"}
    assert defines_of(launch) == loaded | own
    literal = {"SIZE": "(7)", "LEAST": "(-2147483647 - 1)", "ZERO": "(-5)"}
    assert defines_of(Alternative("", (launch,)).specialised().launches[0]) == literal | own


def test_progress_names_slow_specialised_kernel() -> None:
    launches = (SimpleNamespace(is_specialised=True),) * 31
    schedule: Any = SimpleNamespace(launches=launches)
    assert dispatch._words(schedule, PERSISTENT) == (
        "may take 20 s: compiling all launches as one kernel, specialised"
    )
    assert dispatch._words(schedule, ONE_BY_ONE) == f"launches {ONE_BY_ONE}, specialised"


@pytest.fixture
def stored_choices(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the store of choices, initially empty."""
    choices: dict[str, str] = {}
    store = SimpleNamespace(
        look_up=lambda table, key: choices.get(key),
        save=lambda table, entries: choices.update(entries),
    )
    monkeypatch.setattr("delegate.plan.planners.planner.Store", lambda identity: store)
    return choices


def start(device: DeviceInfo, tune: str = "quick", seconds: float | None = None) -> Executor:
    """Open the device and create an executor, as a new process does."""
    # Profiling, for separate launches.
    engine = Engine(Options(device.index, tune=tune, profiling=True))
    if seconds is not None:
        planner_of(engine).chooser.seconds_left = seconds
    return engine.executor(partition_of(CHAIN, range(2)), engine.target(Rules()))


def is_literal(executor: Executor) -> bool:
    (answer,) = {launch.is_specialised for launch in launches_of(executor)}
    assert executor.dispatch_mode == ONE_BY_ONE
    return answer


@slow
@pytest.mark.parametrize("alpha", [(1, 1, 1), (1, 1, 8), (5, 3, 8)], ids=str)
def test_miscompiled_specialised_kernel_is_detected(
    device: DeviceInfo, alpha: tuple[int, ...]
) -> None:
    # In a child: llvmpipe of Mesa 22.3 miscompiles each of these, and may corrupt memory.
    shape = (1, 5, 3, 8)
    alphas = const(integers(alpha, "int8"), 0.2447, 0)
    leak = op("PRELU", [t(shape, "int8", 0.016, 49), alphas], [t(shape, "int8", 0.0174, 0)])
    code = (
        "import pickle, sys\n"
        "from tests.delegate.plan.tuning.test_dispatch_literals import is_detected\n"
        "sys.exit(not is_detected(*pickle.load(sys.stdin.buffer)))"
    )
    # With optimisation, as for users: without it the child only crashes.
    optimised = {name: value for name, value in os.environ.items() if name != "GALLIVM_PERF"}
    ran = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps((device.index, leak)),
        env={**optimised, "PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )
    assert ran.returncode <= 0  # or it crashed, which is a detection, too


def is_detected(device: int, node: Node) -> bool:
    """Whether a start judges a node's specialised kernel correctly."""
    engine = Engine(Options(device, tune="off"))
    bench, loaded = planner_of(engine)._bench, ops.lower(node, engine.target(Rules()))[-1]
    outputs = [bench._outputs(each) for each in (loaded, loaded.specialised())]
    try:
        return bench.warm_up_within(loaded.specialised().launches, 60.0) == are_same(*outputs)
    except DeviceError:
        return not are_same(*outputs)


@pytest.mark.parametrize("is_faster", [False, True])
def test_faster_kernel_is_used_and_remembered(
    device: DeviceInfo,
    monkeypatch: pytest.MonkeyPatch,
    stored_choices: dict[str, str],
    is_faster: bool,
) -> None:
    repeat = Executor.repeat

    def told(self: Executor, count: int, wait: bool = False) -> float:
        repeat(self, count, wait)
        literal = any(launch.is_specialised for launch in launches_of(self))
        return 1.0 if literal == is_faster else 2.0

    with monkeypatch.context() as patch:
        patch.setattr(Executor, "repeat", told)
        assert is_literal(start(device, "full")) == is_faster
    assert stored_choices

    def never(self: Chooser, repeat: object) -> str:
        raise AssertionError

    monkeypatch.setattr(Chooser, "fastest", never)
    for tune in ("full", "quick"):
        assert is_literal(start(device, tune)) == is_faster
    assert not is_literal(start(device, "off"))


def test_specialised_kernels_are_built_while_time_remains(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, stored_choices: dict[str, str]
) -> None:
    requests: list[int] = []

    def some(self: DeviceBench, launches: tuple[Launch, ...], seconds: float) -> bool:
        requests.append(len(launches))
        return len(requests) > 1  # the first start has no time for all

    monkeypatch.setattr(DeviceBench, "warm_up_within", some)
    monkeypatch.setattr(Chooser, "fastest", lambda self, repeat: [*repeat][-1])
    assert not is_literal(start(device, seconds=0.0))
    assert requests == []
    assert not is_literal(start(device, seconds=9.0))
    assert (requests, bool(stored_choices)) == ([2], True)
    assert not is_literal(start(device, seconds=0.0))
    assert requests == [2]
    assert is_literal(start(device, seconds=9.0))
    assert requests == [2, 2]
    assert is_literal(start(device, seconds=0.0))
    assert requests == [2, 2]


def test_built_kernels_need_no_time(device: DeviceInfo) -> None:
    engine = Engine(Options(device.index, tune="off"))
    add = ops.lower(CHAIN.nodes[0], engine.target(Rules()))[0].specialised()
    assert not planner_of(engine)._bench.warm_up_within(add.launches, 0.0)
    assert planner_of(engine)._bench.warm_up_within(add.launches, 60.0)


def test_build_error_leaves_generic_kernel(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, stored_choices: dict[str, str]
) -> None:
    def broken(launch: Launch, is_argument: bool) -> dict[str, str]:
        return defines_of(launch, is_argument) | ({"arena": "0"} if launch.is_specialised else {})

    monkeypatch.setattr("delegate.plan.sources.defines_of", broken)
    assert not is_literal(start(device, "full"))
    assert "generic" in stored_choices.values()
