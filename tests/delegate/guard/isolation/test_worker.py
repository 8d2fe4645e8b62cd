# SPDX-License-Identifier: Apache-2.0
"""Children that die, hang, stop or lack memory in a run: it fails, and the next one is right."""

from __future__ import annotations

import logging
import os
import re
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegate import DelegateError, DeviceError, DeviceInfo, Model, OpenCLDelegate
from delegate.errors import NotRestarted
from delegate.inspect import write_model
from tests.attacks.faults import NO_COMPILER, Fault, build_library
from tests.delegate.model.test_model_state import running_sum
from tests.support.compare import inputs_for, interpreter, invoke
from tests.support.isolated import is_alive, worker_of
from tests.support.nets import THREE_PARTITIONS, assert_equal_outputs, conv_pool, delegate_for
from tests.support.tiers import slow
from tests.support.variables import SHAPE, counter_model

LIMIT_SECONDS = 30  # for a start on a busy machine; less than 2 on an idle one
INPUTS = inputs_for(conv_pool())[0]


def opened(device: DeviceInfo, **options: Any) -> Model:
    return Model(conv_pool(), device.index, tune="off", isolate=True, **options)


def child_of(thing: Model | OpenCLDelegate) -> int:
    child = worker_of(thing)._child
    assert child is not None
    return child._process.pid


def run_until_it_fails(model: Model) -> None:
    """Run until an error: a driver's thread, or a limit, ends a child a moment later."""
    for _ in range(100_000):
        model.run(INPUTS)


def starve(child: int) -> None:
    resource.prlimit(child, resource.RLIMIT_CPU, (0, 0))


ENDS: dict[str, tuple[Callable[[int], object], str]] = {
    "killed": (lambda child: os.kill(child, signal.SIGKILL), "died with SIGKILL"),
    "stopped": (lambda child: os.kill(child, signal.SIGSTOP), "gave no answer within 1 s"),
    "starved": (starve, "died with SIG(KILL|XCPU)"),
}


@pytest.mark.parametrize("end", ENDS)
def test_next_run_has_new_child(device: DeviceInfo, end: str) -> None:
    hit, words = ENDS[end]
    with opened(device, run_timeout=1) as model:
        wanted = model.run(INPUTS)
        for _ in range(2):
            first = child_of(model)
            hit(first)
            with pytest.raises(DeviceError, match=f"the process that executes the plan {words}"):
                run_until_it_fails(model)
            begun = time.monotonic()
            assert_equal_outputs(model.run(INPUTS), wanted)
            assert time.monotonic() - begun < LIMIT_SECONDS
            assert child_of(model) != first
            assert not is_alive(first)


KINDS = {
    "thread": "died with SIGABRT",
    "abort": "died with SIGABRT",
    "crash": "died with SIGSEGV",
    "hang": "gave no answer within 2 s",
    "error": "CL_INVALID_COMMAND_QUEUE",
}


@slow
@pytest.mark.parametrize("kind", KINDS)
def test_driver_failure_in_run(
    device: DeviceInfo, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = build_library(tmp_path)
    if library is None:
        pytest.skip(NO_COMPILER)
    gate, once = tmp_path / "gate", str(tmp_path / "once")
    fault = Fault(
        "clEnqueueNDRangeKernel", 50, kind, True, "", status=-36, once=once, until=str(gate)
    )
    for name, value in {**fault.environment, "LD_PRELOAD": str(library)}.items():
        monkeypatch.setenv(name, value)
    with opened(device, run_timeout=2) as model:
        wanted = model.run(INPUTS)
        for _ in range(50):
            assert_equal_outputs(model.run(INPUTS), wanted)
        gate.touch()
        with pytest.raises(DeviceError, match=KINDS[kind]):
            run_until_it_fails(model)
        begun = time.monotonic()
        assert_equal_outputs(model.run(INPUTS), wanted)
        assert time.monotonic() - begun < LIMIT_SECONDS
        assert worker_of(model).number == 2


@slow
def test_tflite_takes_over_after_three_deaths(
    device: DeviceInfo, caplog: pytest.LogCaptureFixture
) -> None:
    model, inputs = write_model(THREE_PARTITIONS), inputs_for(THREE_PARTITIONS)[0]
    delegate = delegate_for(model, device, isolate=True)
    ours, wanted = interpreter(model, delegate), invoke(interpreter(model), inputs)
    for _ in range(3):
        assert_equal_outputs(invoke(ours, inputs), wanted)
        os.kill(child_of(delegate), signal.SIGKILL)
        with pytest.raises(RuntimeError):
            invoke(ours, inputs)
        assert "died with SIGKILL" in str(delegate.failure)
    with caplog.at_level(logging.WARNING, "delegate"):
        for _ in range(2):
            assert_equal_outputs(invoke(ours, inputs), wanted)
    assert not worker_of(delegate)._child
    message = "ended 3 times within 60 s"
    assert {re.search(message, str(each.reason)) is not None for each in delegate.verdicts} == {
        True,
        False,  # about nodes left to the CPU before
    }
    later = interpreter(model, delegate)
    assert_equal_outputs(invoke(later, inputs), wanted)


@slow
def test_deaths_are_reported_once(device: DeviceInfo, caplog: pytest.LogCaptureFixture) -> None:
    with opened(device) as model, caplog.at_level(logging.WARNING, "delegate"):
        for _ in range(3):
            model.run(INPUTS)
            os.kill(child_of(model), signal.SIGKILL)
            with pytest.raises(DeviceError, match="SIGKILL"):
                model.run(INPUTS)
        for _ in range(2):
            with pytest.raises(NotRestarted, match="ended 3 times within 60 s, so no other one"):
                model.run(INPUTS)
    assert [record.getMessage().count("no other one") for record in caplog.records] == [1]


@slow
def test_state_of_model_is_lost(device: DeviceInfo) -> None:
    pictures = inputs_for(running_sum())[0][:1]
    carried: dict[str, Any] = {"carry": {"new": "old"}, "tune": "off", "isolate": True}
    with Model(running_sum(), device.index, **carried) as model:
        first = model.run(pictures)
        state = model.state()
        os.kill(child_of(model), signal.SIGKILL)
        with pytest.raises(DeviceError, match="SIGKILL"):
            model.run(pictures)
        for lost in (lambda: model.run(pictures), model.state):
            with pytest.raises(
                DeviceError, match=r"the state is lost, as a run failed .*: reset it"
            ):
                lost()
        model.reset()
        assert_equal_outputs(model.run(pictures), first)
        second = model.run(pictures)
        os.kill(child_of(model), signal.SIGKILL)
        with pytest.raises(DeviceError, match="SIGKILL"):
            model.run(pictures)
        model.set_state(state)
        assert_equal_outputs(model.run(pictures), second)


@slow
def test_state_of_interpreter_is_lost(device: DeviceInfo) -> None:
    model = counter_model()
    delegate = delegate_for(model, device, (), isolate=True)
    ours, x = interpreter(model, delegate), [np.ones(SHAPE, np.float32)]
    first = invoke(ours, x)
    os.kill(child_of(delegate), signal.SIGKILL)
    for words in ("SIGKILL", "the state is lost"):
        with pytest.raises(RuntimeError):
            invoke(ours, x)
        assert words in str(delegate.failure)
    assert_equal_outputs(invoke(interpreter(model, delegate), x), first)


@slow
def test_pending_runs_end_with_child(device: DeviceInfo) -> None:
    with opened(device) as model:
        wanted = model.run(INPUTS)
        runs = [model.run_async(INPUTS), model.run_async(INPUTS)]
        os.kill(child_of(model), signal.SIGKILL)
        for run in runs:
            with pytest.raises(DeviceError, match="the process that executes the plan"):
                run.result()
        assert_equal_outputs(model.run_async(INPUTS).result(), wanted)


@slow
def test_hanging_child_can_be_closed_by_another_thread(device: DeviceInfo) -> None:
    model = opened(device)
    model.run(INPUTS)
    os.kill(child_of(model), signal.SIGSTOP)
    ended: list[BaseException] = []

    def run() -> None:
        try:
            model.run(INPUTS)
        except DelegateError as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.5)
    worker_of(model).close()
    thread.join(10)
    model.close()
    assert [str(each) for each in ended] == ["the device was closed"]


@slow
def test_objects_can_be_collected_in_any_order(device: DeviceInfo) -> None:
    model = opened(device)
    worker_of(model)._stop()  # as if the worker were collected before the model
    model.close()
    with pytest.raises(DeviceError, match="closed"):
        model.run(INPUTS)


@slow
def test_ctrl_c_in_run(device: DeviceInfo) -> None:
    with opened(device) as model:
        wanted = model.run(INPUTS)
        os.kill(child_of(model), signal.SIGSTOP)
        timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            model.run(INPUTS)
        assert_equal_outputs(model.run(INPUTS), wanted)
