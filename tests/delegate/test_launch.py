# SPDX-License-Identifier: Apache-2.0
"""An alternative with a temporary tensor, compared and combined with one without."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from delegate import DeviceError, DeviceInfo, Model, Options, ops
from delegate.engine import Engine
from delegate.host.tflite.library import installed_rules
from delegate.inspect import Node, write_model
from delegate.isa import ORDERS
from delegate.launch import Alternative, is_temporary, temporary
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.dispatch.planned import planned_executor
from delegate.plan.record import DISPATCH_MODES, ONE_BY_ONE
from delegate.plan.tuning.agreement import outputs_of, random_inputs
from delegate.plan.tuning.bench import DeviceBench
from delegate.run.executor import Executor
from delegate.target import Target
from tests.support.compare import interpreter, invoke
from tests.support.nets import assert_equal_outputs, delegate_for, net
from tests.support.schedules import executor_of, selection_of
from tests.support.tiers import slow

NAME = "with a temporary"
# MAXIMUM is idempotent, so its kernel may run twice.
GRAPH = net([("ADD", [0, 0], 1), ("MAXIMUM", [1, 1], 2), ("ADD", [2, 0], 3)])
LOWER = ops.lower


def with_temporary(node: Node, target: Target) -> Alternative:
    """Return launches that compute MAXIMUM into a temporary, and then from it."""
    (result,) = node.outputs
    between = temporary("between", result.shape, result.dtype)
    between = replace(between, quantization=result.quantization)
    assert is_temporary(between)
    assert not is_temporary(result)
    *_, first = LOWER(replace(node, outputs=(between,)), target)
    *_, second = LOWER(replace(node, inputs=(between, between)), target)
    return Alternative(NAME, (*first.launches, *second.launches))


@pytest.fixture(autouse=True)
def _two_ways(no_choices: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def lower(node: Node, target: Target) -> tuple[Alternative, ...]:
        alternatives = LOWER(node, target)
        return (
            (with_temporary(node, target), *alternatives) if node.op == "MAXIMUM" else alternatives
        )

    monkeypatch.setattr(ops, "lower", lower)


def taken(executor: Executor) -> list[str]:
    return [step.alternative for step in executor.plan.steps]


def wrong(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if "wrongly" in message]


@slow
@pytest.mark.device
@pytest.mark.usefixtures("one_context")
@pytest.mark.parametrize("batch", [1, 3])
def test_tuning_compares_only_outputs(
    device: DeviceInfo, caplog: pytest.LogCaptureFixture, batch: int
) -> None:
    # Alternatives, dispatch modes, generic and specialised kernels are compared and timed.
    engine = Engine(Options(device.index, tune="full"))
    with caplog.at_level(logging.WARNING, "delegate"):
        measured = executor_of(engine, GRAPH, batch=batch)
    assert wrong(caplog) == []
    (node,) = [step for step in measured.plan.steps if step.op == "MAXIMUM"]
    assert node.names[0] == NAME
    assert len(node.names) > 1
    first, plain = (
        executor_of(Engine(Options(device.index, tune="off", alternative=name)), GRAPH, batch=batch)
        for name in (NAME, "plain")
    )
    assert (taken(first)[1], taken(plain)[1]) == (NAME, "plain")
    inputs = random_inputs(plain)
    (expected,) = outputs_of(plain, inputs)
    for executor in (measured, first):
        (result,) = outputs_of(executor, inputs)
        assert result.tobytes() == expected.tobytes()


@pytest.mark.device
@pytest.mark.usefixtures("one_context")
@pytest.mark.parametrize("form", DISPATCH_MODES)
@pytest.mark.parametrize("is_literal", [False, True], ids=["loaded", "literal"])
def test_every_dispatch_mode_runs_temporaries(
    device: DeviceInfo, form: str, is_literal: bool
) -> None:
    engine = Engine(Options(device.index, tune="off", alternative=NAME))
    loaded = executor_of(engine, GRAPH)
    schedule = selection_of(engine, GRAPH).schedule
    schedule = schedule.specialised() if is_literal else schedule
    executor = planned_executor(engine.device, Kernels(engine.device), schedule, dispatch_mode=form)
    if form == ONE_BY_ONE or engine.device.proven & ORDERS:
        assert executor.dispatch_mode == form
    inputs = random_inputs(loaded)
    (found,), (expected,) = outputs_of(executor, inputs), outputs_of(loaded, inputs)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.device
@pytest.mark.usefixtures("one_context")
@pytest.mark.parametrize("fault", [None, 0, 1])
def test_specialised_kernel_is_compared_by_its_temporary(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, fault: int | None
) -> None:
    engine = Engine(Options(device.index, tune="off"))
    launches = (
        with_temporary(GRAPH.nodes[1], engine.target(installed_rules())).specialised().launches
    )
    bench = DeviceBench(engine.device, Kernels(engine.device))
    real, seen = outputs_of, []

    def other(executor: Executor, inputs: Sequence[Any]) -> Any:
        result = real(executor, inputs)
        (step,) = executor.plan.steps
        launch = step.launches[0]
        seen.append([is_temporary(tensor) for tensor in executor.plan.outputs])
        if fault is not None and launch.is_specialised and step.writes == launches[fault].writes:
            result[0][0] ^= 1
        return result

    monkeypatch.setattr("delegate.plan.tuning.bench.outputs_of", other)
    if fault is None:
        assert bench.warm_up_within(launches, 60)
        assert seen == [[True], [True], [False], [False]]
    else:
        with pytest.raises(DeviceError, match="computes wrongly"):
            bench.warm_up_within(launches, 60)
    assert bench.fastest([Alternative("", launches)] * 2, 1, 1, is_fused=False)


@pytest.mark.device
@pytest.mark.usefixtures("one_context")
def test_single_nodes_have_no_temporary_outputs(device: DeviceInfo) -> None:
    model = write_model(GRAPH)
    delegates = [
        delegate_for(model, device, profiling=True, alternative=name) for name in (NAME, "plain")
    ]
    values = np.random.default_rng(2).integers(0, 256, (1, 3, 3, 2)).astype(np.uint8)
    runs, parts = [], []
    for delegate in delegates:
        ours = interpreter(model, delegate)
        runs.append(delegate.step_through(lambda ours=ours: invoke(ours, [values])))
        (alone,) = [delegate.isolated({0: values, **each.values}) for each in runs[-1][:1]]
        assert [[*each.values] for each in alone] == [[*each.values] for each in runs[-1]]
        parts += delegate.timed_runs(lambda ours=ours: invoke(ours, [values]))
    assert [len(each.launches) for each in runs[0]] == [1, 2, 1]
    assert [len(each.launches) for each in runs[1]] == [1, 1, 1]
    for ours, theirs in zip(*runs, strict=True):
        assert ours.inputs == theirs.inputs
        assert [*ours.values] == [*theirs.values]
        for index, value in ours.values.items():
            assert value.tobytes() == theirs.values[index].tobytes()
    # The temporary lives while both kernels of the node run.
    size = values.nbytes
    assert parts[0].live_bytes == (2 * size, 3 * size, 3 * size, 3 * size)
    assert parts[1].live_bytes == (2 * size, 3 * size, 3 * size)


@pytest.mark.device
@pytest.mark.usefixtures("one_context")
def test_interpreters_and_models_run_at_any_size(device: DeviceInfo) -> None:
    model = write_model(GRAPH)
    ours = interpreter(model, delegate_for(model, device, alternative=NAME))
    reference = interpreter(model)
    rng = np.random.default_rng(2)
    for size in ((1, 3, 3, 2), (1, 5, 4, 2), (1, 3, 3, 2)):
        values = rng.integers(0, 256, size).astype(np.uint8)
        for interp in (ours, reference):
            interp.resize_tensor_input(0, size)
            interp.allocate_tensors()
        assert_equal_outputs(invoke(ours, [values]), invoke(reference, [values]))
    pictures = rng.integers(0, 256, (5, 3, 3, 2)).astype(np.uint8)
    expected = np.concatenate([invoke(reference, [picture[None]])[0] for picture in pictures])
    with Model(model, device.index, batch=2, tune="off", alternative=NAME) as many:
        under_way = [many.run_async(pictures[at : at + 2]) for at in (0, 2, 4)]
        results = [run.result()[0] for run in under_way]
    assert np.concatenate(results).tobytes() == expected.tobytes()
