# SPDX-License-Identifier: Apache-2.0
"""Executors of partitions: dispatch modes, excluded instructions and remembered choices."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from delegate import DeviceInfo, Options
from delegate.engine import Engine
from delegate.isa import ORDERS
from delegate.launch import Schedule
from delegate.plan.record import DISPATCH_MODES, FUSED, ONE_BY_ONE, PERSISTENT
from delegate.plan.tuning import bench
from delegate.plan.tuning.chooser import Choice, Chooser
from delegate.plan.tuning.dispatch import DispatchChooser, Selection
from delegate.plan.tuning.tune import Tuner
from delegate.run.executor import Executor
from delegate.target import Rules
from tests.support.model import graph_of, op, t
from tests.support.nets import conv_pool, net
from tests.support.schedules import executor_of, planner_of, selection_of
from tests.support.tiers import slow

pytestmark = pytest.mark.usefixtures("no_choices")

CHAIN = net([("ADD", [0, 0], 1), ("ADD", [1, 0], 2)])


def offers(engine: Engine, form: str) -> bool:
    return form in (ONE_BY_ONE, PERSISTENT if engine.device.proven & ORDERS else FUSED)


@slow
@pytest.mark.parametrize("fastest", DISPATCH_MODES)
def test_fastest_dispatch_mode_is_used(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, fastest: str
) -> None:
    engine = Engine(Options(device.index, tune="full"))
    if not offers(engine, fastest):
        pytest.skip(f"{device.name} has another form than {fastest}")
    repeat = Executor.repeat

    def told(self: Executor, count: int, wait: bool = False) -> float:
        repeat(self, count, wait)
        return 1.0 if self.dispatch_mode == fastest else 2.0

    monkeypatch.setattr(Executor, "repeat", told)
    executor = executor_of(engine, CHAIN)
    assert executor.dispatch_mode == fastest
    values = np.full(18, 130, np.uint8)
    out = np.zeros(18, np.uint8)
    executor.run([values], [out])  # the other modes' memory was freed, not this one's
    assert set(out.tolist()) == {134}


@pytest.mark.parametrize("fastest", [ONE_BY_ONE, PERSISTENT])
def test_persistent_launch_is_measured_before_nodes(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, fastest: str
) -> None:
    engine = Engine(Options(device.index, tune="quick"))
    planner_of(engine).chooser.seconds_left = 1e3
    choose, repeat = Tuner.choose, Executor.repeat

    def spent(self: Tuner, *args: object, **options: object) -> object:
        self._chooser.seconds_left = 0.0
        return choose(self, *args, **options)  # type: ignore[arg-type]

    def told(self: Executor, count: int, wait: bool = False) -> float:
        repeat(self, count, wait)
        return 1.0 if self.dispatch_mode == fastest else 2.0

    monkeypatch.setattr(Tuner, "choose", spent)
    monkeypatch.setattr(Executor, "repeat", told)
    assert executor_of(engine, CHAIN).dispatch_mode == (
        fastest if offers(engine, fastest) else ONE_BY_ONE
    )
    again = Engine(Options(device.index, tune="quick"))  # the next start has no time at all
    planner_of(again).chooser._recorded = {**planner_of(engine).chooser._recorded}
    planner_of(again).chooser.seconds_left = 0.0
    assert executor_of(again, CHAIN).dispatch_mode == (
        fastest if offers(again, fastest) else ONE_BY_ONE
    )


@pytest.mark.parametrize("tune", ["quick", "full"])
def test_full_tuning_measures_long_program_launch_by_launch(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, tune: str
) -> None:
    monkeypatch.setattr("delegate.plan.tuning.dispatch._MANY_LAUNCHES", 1)
    created: list[str] = []
    make = DispatchChooser._make_executors

    def told(self: DispatchChooser, forms: dict[str, Any], *others: Any) -> dict[str, Executor]:
        created.extend(form for _, form in forms.values())
        return make(self, forms, *others)

    monkeypatch.setattr(DispatchChooser, "_make_executors", told)
    engine = Engine(Options(device.index, tune=tune))
    planner_of(engine).chooser.seconds_left = 1e3
    form = executor_of(engine, CHAIN).dispatch_mode
    if offers(engine, PERSISTENT) and tune == "quick":
        assert (form, created) == (PERSISTENT, [])
    else:
        assert ONE_BY_ONE in created


@pytest.mark.parametrize("tune", ["quick", "full"])
def test_full_tuning_measures_program_without_passes(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, tune: str
) -> None:
    chosen: list[str] = []
    choose = Tuner.choose

    def told(self: Tuner, node: Any, *others: Any, **options: Any) -> Any:
        chosen.append(node.op)
        return choose(self, node, *others, **options)

    monkeypatch.setattr(Tuner, "choose", told)
    x, product = t((2, 128), "int8", 0.05, 3), t((2, 128), "int8", 0.05, 3)
    share = t((2, 128), "int8", 1 / 256, -128)
    graph = graph_of([op("LOGISTIC", [x], [share]), op("MUL", [x, share], [product])])
    executor_of(Engine(Options(device.index, tune=tune)), graph)
    assert "pointwise" in chosen
    assert {*chosen} - {"pointwise"} == ({"LOGISTIC", "MUL"} if tune == "full" else set())


def test_profiling_and_off_use_separate_launches(device: DeviceInfo) -> None:
    for engine in (
        Engine(Options(device.index, profiling=True)),
        Engine(Options(device.index, tune="off")),
    ):
        assert executor_of(engine, CHAIN).dispatch_mode == ONE_BY_ONE


def test_choice_among_some_dispatch_modes_is_not_reused_for_all(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[str] = []

    def take(self: object, choice: Choice, measure: object) -> str | None:
        modes.append(choice.key)
        return choice.default

    monkeypatch.setattr(Chooser, "choose", take)
    signatures = set()
    for profiling in (False, True):
        engine = Engine(Options(device.index, profiling=profiling))
        schedule = selection_of(engine, CHAIN).schedule
        modes.clear()
        planner_of(engine)._dispatch_chooser("").fastest([schedule, schedule], 1)
        signatures.add(modes[0])
    assert len(signatures) == 2


def test_lowering_ignores_excluded_instructions(device: DeviceInfo) -> None:
    proven = Engine(Options(device.index, tune="full")).target(Rules()).isa
    assert Engine(Options(device.index, exclude_isa=["all"])).target(Rules()).isa == frozenset()
    for isa in proven:
        assert Engine(Options(device.index, exclude_isa=[isa])).target(Rules()).isa == proven - {
            isa
        }


def test_exclude_all_instructions(device: DeviceInfo) -> None:
    engine = Engine(Options(device.index, exclude_isa=["all"]))
    assert engine.target(Rules()).vector_width <= 8
    assert "-DOWN_BUILTINS" not in planner_of(engine)._kernels.programs.options("add")


def test_sibling_engine_runs_concurrently(device: DeviceInfo) -> None:
    engine = Engine(Options(device.index, tune="off"))
    one = executor_of(engine, CHAIN, batch=2)
    two = engine.sibling(one)
    low, high = np.full(36, 120, np.uint8), np.full(36, 130, np.uint8)
    outputs = [np.zeros(36, np.uint8) for _ in range(2)]
    one.submit([low], outputs[:1])
    two.submit([high], outputs[1:])
    two.copy_strategy.wait()
    one.copy_strategy.wait()
    assert [set(each.tolist()) for each in outputs] == [{104}, {134}]
    one.close()
    two.run([low], outputs[:1])
    assert set(outputs[0].tolist()) == {104}


@slow
def test_wrong_alternative_is_detected_on_device(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine(Options(device.index, tune="full"))
    outputs = bench.outputs_of

    def wrong(executor: Executor, inputs: list[np.ndarray]) -> list[np.ndarray]:  # type: ignore[type-arg]
        result = outputs(executor, inputs)
        if executor.plan.steps[0].alternative != "plain":
            result[0][0] ^= 1
        return result

    monkeypatch.setattr(bench, "outputs_of", wrong)
    with caplog.at_level(logging.WARNING, "delegate"):
        executor = executor_of(engine, conv_pool())
    assert {step.alternative for step in executor.plan.steps} == {"plain"}
    assert "computes wrongly on this device and is not used" in caplog.text


def test_wrong_dispatch_mode_is_not_used(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine(Options(device.index, tune="full"))

    def only_the_first(found: list[object], expected: object, *more: object) -> list[bool]:
        return [
            number == len(found) - 1 for number in range(len(found))
        ]  # tried from last to first

    def noted(self: DispatchChooser, schedules: Sequence[Schedule], *more: Any) -> Selection:
        counts.append(len(schedules))
        return fastest(self, schedules, *more)

    counts: list[int] = []
    fastest = DispatchChooser.fastest
    monkeypatch.setattr(DispatchChooser, "fastest", noted)
    monkeypatch.setattr("delegate.plan.tuning.dispatch.right_of", only_the_first)
    with caplog.at_level(logging.WARNING, "delegate"):
        assert executor_of(engine, CHAIN).dispatch_mode == ONE_BY_ONE
    (count,) = counts  # a device may have another program as a persistent launch
    modes = [form for form in DISPATCH_MODES if offers(engine, form)] * count
    # rusticl 25.0 copies wrong bytes by "direct", which is a warning the first time.
    assert [line for line in caplog.messages if "copies wrong bytes" not in line] == [
        f"2 nodes: '{form}' computes wrongly on this device and is not used"
        for form in [*reversed(modes[1:]), "specialised"]
    ]


def test_choices_are_saved_once_per_partition(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[bool] = []
    save = Chooser.save

    def counted(self: Chooser) -> None:
        saved.append(bool(self._unsaved))
        save(self)

    monkeypatch.setattr(Chooser, "save", counted)
    monkeypatch.setattr(
        "delegate.plan.tuning.chooser._UNSAVED_SECONDS", float("inf")
    )  # a slow machine saves more often
    engine = Engine(Options(device.index, tune="full"))
    executor_of(engine, CHAIN)
    executor_of(engine, CHAIN)
    assert saved == [True, False]


def test_start_without_time_uses_expected_fastest(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delegate.plan.tuning.chooser.QUICK_SECONDS", 0.0)
    monkeypatch.setattr("delegate.plan.tuning.chooser.LEAST_SECONDS", 0.0)
    for tune, is_one in (("quick", True), ("off", False)):
        engine = Engine(Options(device.index, tune=tune))
        expected = PERSISTENT if is_one and offers(engine, PERSISTENT) else ONE_BY_ONE
        assert executor_of(engine, CHAIN).dispatch_mode == expected
