# SPDX-License-Identifier: Apache-2.0
"""Children that die, hang, stop or starve in a run: that run fails, and the next one is right."""

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
from tests.support.nets import (
    THREE_PARTITIONS,
    assert_equal_outputs,
    conv_pool,
    delegate_for,
)
from tests.support.tiers import slow
from tests.support.variables import SHAPE, counter_model

LIMIT_SECONDS = 30  # of a start on a busy machine; on an idle one it takes less than 2
GIVEN = inputs_for(conv_pool())[0]


def opened(device: DeviceInfo, **options: Any) -> Model:
    return Model(conv_pool(), device.index, tune="off", isolate=True, **options)


def child_of(thing: Model | OpenCLDelegate) -> int:
    child = worker_of(thing)._child
    assert child is not None
    return child._process.pid


def run_until_it_fails(model: Model) -> None:
    """Run again and again: a driver's thread, or a limit, ends a child a moment later."""
    for _ in range(100_000):
        model.run(GIVEN)


def starve(child: int) -> None:
    resource.prlimit(child, resource.RLIMIT_CPU, (0, 0))


ENDS: dict[str, tuple[Callable[[int], object], str]] = {
    "killed": (lambda child: os.kill(child, signal.SIGKILL), "died with SIGKILL"),
    "stopped": (lambda child: os.kill(child, signal.SIGSTOP), "gave no answer within 1 s"),
    "starved": (starve, "died with SIG(KILL|XCPU)"),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_next_run_has_another_child(device: DeviceInfo, end: str) -> None:
    hit, words = ENDS[end]
    with opened(device, run_timeout=1) as model:
        wanted = model.run(GIVEN)
        for _ in range(2):
            first = child_of(model)
            hit(first)
            with pytest.raises(DeviceError, match=f"the process that executes the plan {words}"):
                run_until_it_fails(model)
            begun = time.monotonic()
            assert_equal_outputs(model.run(GIVEN), wanted)
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
def test_a_driver_that_fails_in_a_run(
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
        wanted = model.run(GIVEN)
        for _ in range(50):
            assert_equal_outputs(model.run(GIVEN), wanted)
        gate.touch()
        with pytest.raises(DeviceError, match=KINDS[kind]):
            run_until_it_fails(model)
        begun = time.monotonic()
        assert_equal_outputs(model.run(GIVEN), wanted)
        assert time.monotonic() - begun < LIMIT_SECONDS
        assert worker_of(model).number == 2


@slow
def test_tflite_goes_on_after_three_deaths(
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
    told = "ended 3 times within 60 s"
    assert {re.search(told, str(each.reason)) is not None for each in delegate.verdicts} == {
        True,
        False,  # of nodes that were left to the CPU before
    }
    later = interpreter(model, delegate)
    assert_equal_outputs(invoke(later, inputs), wanted)


@slow
def test_the_user_is_told_once(device: DeviceInfo, caplog: pytest.LogCaptureFixture) -> None:
    with opened(device) as model, caplog.at_level(logging.WARNING, "delegate"):
        for _ in range(3):
            model.run(GIVEN)
            os.kill(child_of(model), signal.SIGKILL)
            with pytest.raises(DeviceError, match="SIGKILL"):
                model.run(GIVEN)
        for _ in range(2):
            with pytest.raises(NotRestarted, match="ended 3 times within 60 s, so no other one"):
                model.run(GIVEN)
    assert [record.getMessage().count("no other one") for record in caplog.records] == [1]


@slow
def test_what_a_model_carried_is_lost(device: DeviceInfo) -> None:
    pictures = inputs_for(running_sum())[0][:1]
    carried: dict[str, Any] = {"carry": {"new": "old"}, "tune": "off", "isolate": True}
    with Model(running_sum(), device.index, **carried) as model:
        first = model.run(pictures)
        kept = model.state()
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
        model.set_state(kept)
        assert_equal_outputs(model.run(pictures), second)


@slow
def test_what_an_interpreter_kept_is_lost(device: DeviceInfo) -> None:
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
def test_runs_under_way_end_with_the_child(device: DeviceInfo) -> None:
    with opened(device) as model:
        wanted = model.run(GIVEN)
        runs = [model.run_async(GIVEN), model.run_async(GIVEN)]
        os.kill(child_of(model), signal.SIGKILL)
        for run in runs:
            with pytest.raises(DeviceError, match="the process that executes the plan"):
                run.result()
        assert_equal_outputs(model.run_async(GIVEN).result(), wanted)


@slow
def test_one_that_hangs_is_closed_by_another_thread(device: DeviceInfo) -> None:
    model = opened(device)
    model.run(GIVEN)
    os.kill(child_of(model), signal.SIGSTOP)
    ended: list[BaseException] = []

    def run() -> None:
        try:
            model.run(GIVEN)
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
def test_garbage_is_collected_in_any_order(device: DeviceInfo) -> None:
    model = opened(device)
    worker_of(model)._stop()  # as where the worker is found before the model
    model.close()
    with pytest.raises(DeviceError, match="closed"):
        model.run(GIVEN)


@slow
def test_ctrl_c_in_a_run(device: DeviceInfo) -> None:
    with opened(device) as model:
        wanted = model.run(GIVEN)
        os.kill(child_of(model), signal.SIGSTOP)
        timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            model.run(GIVEN)
        assert_equal_outputs(model.run(GIVEN), wanted)
