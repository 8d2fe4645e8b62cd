# SPDX-License-Identifier: Apache-2.0
"""Batching of requests, and failing or hanging devices."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from delegate import DeviceError
from tests.support.service import LIMITS, Doubling
from tflite_opencl.console.errors import RunError
from tflite_opencl.serve.tensors import Arrays
from tflite_opencl.serve.worker import BatchScheduler, Busy, Unavailable


class Gate:
    """Blocks runs until it is open."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Semaphore(0), threading.Event()

    def __call__(self, pictures: int) -> None:
        self.entered.release()
        assert self.opened.wait(30)


@pytest.fixture
def gate() -> Iterator[Gate]:
    new_gate = Gate()
    yield new_gate
    new_gate.opened.set()


def one(value: float, pictures: int = 1) -> tuple[Arrays, int]:
    return [np.full((pictures, 3), value, np.float32)], pictures


def failing(pictures: int) -> None:
    raise DeviceError("clFinish: CL_OUT_OF_RESOURCES")


def test_waiting_requests_are_batched(gate: Gate) -> None:
    runner = Doubling(gate)
    worker = BatchScheduler(runner, LIMITS)
    first = worker.submit(*one(0))
    assert gate.entered.acquire(timeout=30)
    futures = [worker.submit(*one(n, pictures)) for n, pictures in ((1, 1), (2, 2), (3, 1), (4, 3))]
    gate.opened.set()
    for number, future in enumerate([first, *futures]):
        (array,) = future.result(30).arrays
        assert (array == 2 * number).all()
    assert [len(future.result().arrays[0]) for future in futures] == [1, 2, 1, 3]
    assert runner.runs == [1, 4, 3]
    worker.close()
    assert runner.closed.is_set()


def test_no_batching_without_gain(gate: Gate) -> None:
    runner = Doubling(gate, sizes=(1,))
    worker = BatchScheduler(runner, LIMITS)
    futures = [worker.submit(*one(n)) for n in range(3)]
    gate.opened.set()
    assert [future.result(30).arrays[0][0, 0] for future in futures] == [0, 2, 4]
    assert runner.runs == [1, 1, 1]
    worker.close()


def test_request_waits_for_others_up_to_delay() -> None:
    runner = Doubling()
    worker = BatchScheduler(runner, replace(LIMITS, delay=30.0))
    futures = [worker.submit(*one(n)) for n in range(LIMITS.pictures)]  # as many as a batch
    for future in futures:
        future.result(20)
    assert runner.runs == [LIMITS.pictures]
    worker.close()


def test_queue_is_limited(gate: Gate) -> None:
    worker = BatchScheduler(Doubling(gate), replace(LIMITS, queue=2))
    futures = [worker.submit(*one(0))]
    assert gate.entered.acquire(timeout=30)
    futures += [worker.submit(*one(0)) for _ in range(2)]
    with pytest.raises(Busy):
        worker.submit(*one(0))
    assert worker.waiting == 2
    gate.opened.set()
    for future in futures:
        future.result(30)
    worker.close()


def test_cancelled_request_does_not_run(gate: Gate) -> None:
    runner = Doubling(gate, sizes=(1,))
    worker = BatchScheduler(runner, LIMITS)
    first, gone, last = (worker.submit(*one(n)) for n in range(3))
    assert gate.entered.acquire(timeout=30)
    assert gone.cancel()
    assert not first.cancel()  # it is running
    gate.opened.set()
    last.result(30)
    assert runner.runs == [1, 1]
    worker.close()


def test_failed_device_without_fallback() -> None:
    worker = BatchScheduler(Doubling(failing), LIMITS)
    with pytest.raises(Unavailable, match="CL_OUT_OF_RESOURCES"):
        worker.submit(*one(0)).result(30)
    with pytest.raises(Unavailable, match="CL_OUT_OF_RESOURCES"):
        worker.submit(*one(0))
    assert worker.runner is None
    worker.close()


def test_cpu_takes_over_requests_of_failed_device() -> None:
    broken, cpu = Doubling(failing), Doubling()
    worker = BatchScheduler(broken, LIMITS, lambda: cpu)
    assert worker.submit(*one(3)).result(30).arrays[0][0, 0] == 6
    assert worker.runner is cpu
    assert "CL_OUT_OF_RESOURCES" in worker.failure
    assert broken.closed.wait(30)
    worker.close()


def test_failure_of_fallback_is_reported() -> None:
    def none() -> Doubling:
        raise RunError("no TFLite")

    worker = BatchScheduler(Doubling(failing), LIMITS, none)
    with pytest.raises(Unavailable, match="nor does the CPU run it: no TFLite"):
        worker.submit(*one(3)).result(30)
    worker.close()


class Once:
    """Fails in the first run; later runs wait until `opened`."""

    def __init__(self, gate: Gate) -> None:
        self.runs, self._gate = 0, gate

    def __call__(self, pictures: int) -> None:
        self.runs += 1
        if self.runs == 1:
            failing(pictures)
        self._gate(pictures)


def test_cpu_answers_until_device_recovers(gate: Gate) -> None:
    device, cpu = Doubling(Once(gate)), Doubling()
    worker = BatchScheduler(device, LIMITS, lambda: cpu)
    assert worker.submit(*one(3, 2)).result(30).arrays[0].tolist() == [[6, 6, 6]] * 2
    assert gate.entered.acquire(timeout=30)  # it is repeated with as many pictures
    assert device.runs == [2, 2]
    assert worker.submit(*one(4)).result(30).arrays[0][0, 0] == 8
    assert (worker.runner, cpu.runs) == (cpu, [2, 1])
    assert "CL_OUT_OF_RESOURCES" in worker.failure
    gate.opened.set()
    deadline = time.monotonic() + 30
    while worker.runner is not device:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert worker.failure == ""
    assert worker.submit(*one(5)).result(30).arrays[0][0, 0] == 10
    assert cpu.runs == [2, 1]
    worker.close()
    assert device.closed.is_set()
    assert cpu.closed.is_set()


def test_run_is_repeated_without_fallback(gate: Gate) -> None:
    gate.opened.set()
    device = Doubling(Once(gate))
    worker = BatchScheduler(device, LIMITS)
    assert worker.submit(*one(3)).result(30).arrays[0][0, 0] == 6
    assert (device.runs, worker.failure) == ([1, 1, 1], "")  # the second one with zeros
    worker.close()


@pytest.mark.parametrize("falls_back", [False, True])
def test_invalid_values_do_not_remove_device(falls_back: bool) -> None:
    class Picky(Doubling):
        def run(self, arrays: Arrays, pictures: int) -> Arrays:
            if (arrays[0] < 0).any():
                raise (RunError if self.device == "CPU" else DeviceError)("an index of -1")
            return super().run(arrays, pictures)

    device, cpu = Picky(), Picky()
    cpu.device = "CPU"
    worker = BatchScheduler(device, LIMITS, (lambda: cpu) if falls_back else None)
    for _ in range(5):
        with pytest.raises(RunError, match="an index of -1"):
            worker.submit(*one(-1)).result(30)
        assert worker.submit(*one(3)).result(30).arrays[0][0, 0] == 6
        deadline = time.monotonic() + 30
        while worker.runner is not device:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    worker.close()


def test_invalid_request_does_not_affect_its_batch(gate: Gate) -> None:
    class Picky(Doubling):
        def run(self, arrays: Arrays, pictures: int) -> Arrays:
            if (arrays[0] < 0).any():
                raise RunError("Failed to invoke tflite!")
            return super().run(arrays, pictures)

    runner = Picky(gate)
    worker = BatchScheduler(runner, LIMITS)
    futures = [worker.submit(*one(n)) for n in (1, 2, -1, 3)]
    gate.opened.set()
    assert [futures[n].result(30).arrays[0][0, 0] for n in (0, 1, 3)] == [2, 4, 6]
    with pytest.raises(RunError, match="Failed to invoke"):
        futures[2].result(30)
    assert worker.failure == ""
    worker.close()


def test_close_answers_waiting_requests(gate: Gate) -> None:
    worker = BatchScheduler(Doubling(gate, sizes=(1,)), LIMITS)
    futures = [worker.submit(*one(n)) for n in range(3)]
    threading.Timer(0.1, gate.opened.set).start()
    worker.close()
    assert all(future.done() for future in futures)
    with pytest.raises(Unavailable, match="being ended"):
        worker.submit(*one(0))
