# SPDX-License-Identifier: Apache-2.0
"""Many pictures on several devices: the rows of one device, and devices that fail or lie."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import count
from typing import Any, cast

import numpy as np
import pytest

from delegate import DeviceError, DeviceInfo, Options, list_devices
from delegate.run.executor import Executor
from label_image.compare import Outcome
from label_image.decoder import Format
from label_image.decoders import Batches, DecodedBatch, runs_in_order
from label_image.path import BatchRun, SpreadPath
from label_image.run_result import BatchResult
from label_image.series import Series
from tests.label_image.test_series import (
    PARTLY,
    SAME,
    SIZE,
    expected,
    got,
    messages,
    opened,
    outcomes_of,
    paths,
    pooling_model,
)
from tests.support.tiers import slow
from tests.support.without_tflite import needs_tflite
from tflite_opencl.harness.job import Job

__all__ = ["paths"]  # a fixture
pytestmark = pytest.mark.device


@pytest.fixture(scope="module")
def both() -> str:
    """Return what means two devices of this machine."""
    devices = list_devices()
    if len(devices) < 2:
        pytest.skip("there are no two devices")
    return f"{devices[0].index},{devices[1].index}"


def series(
    selector: str,
    batch: int | None = 2,
    compares: bool = True,
    compares_all: bool = True,
    **options: Any,
) -> AbstractContextManager[Series]:
    opencl = Options(selector, tune="off", **options)
    nothing = np.zeros(SIZE, np.uint8)
    job = Job(pooling_model(), nothing, batch=batch, opencl=opencl, reference=compares)
    return opened(job, compares_all)


@slow
@pytest.mark.parametrize("batch", [None, 2, 8])
@pytest.mark.parametrize("compares", [False, True])
def test_pictures_come_in_order_and_each_is_some_device_s(
    both: str, paths: list[str], batch: int | None, compares: bool
) -> None:
    with series(both, batch, compares) as run:
        outcomes = outcomes_of(run, paths * 3)
        assert [outcome.path for outcome in outcomes] == paths * 3
        assert got(outcomes) == expected(paths) * 3
        assert run.judgement.results.gpu is not None
        assert [portion.device for portion in run.judgement.results.gpu.portions] == list(
            list_devices()[:2]
        )
        assert sum(portion.pictures for portion in run.judgement.results.gpu.portions) == 21
        assert run.judgement.results.gpu.pictures == run.judgement.totals.classified == 21
        assert run.judgement.results.gpu.seconds > 0
        assert run.judgement.results.gpu.batch == (batch or 1)
        assert (run.judgement.failure, run.judgement.totals.wrong) == ("", 0)
        assert run.judgement.totals.distances == (SAME if compares else None)
        assert (run.judgement.results.cpu is not None) == compares
        assert run.judgement.results.gpu.delegation is not None
        assert run.judgement.results.gpu.delegation.device == " + ".join(
            info.name for info in list_devices()[:2]
        )


class Liar:
    """Makes some devices wrong by 4 quanta, or the one that gives the batch of number `first`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int, first: int = 0) -> None:
        self.devices: list[DeviceInfo] = []
        honest = SpreadPath._result
        batches = count()

        def lie(path: SpreadPath, piece: Any) -> BatchResult:
            result, device = honest(path, piece), piece.device
            if next(batches) >= first and device not in self.devices and len(self.devices) < most:
                self.devices.append(device)
            if device in self.devices:
                for outputs in result.outputs:
                    outputs[0][0, 1] ^= 4
            return result

        monkeypatch.setattr(SpreadPath, "_result", lie)


def test_pictures_of_a_wrong_device_go_to_the_other(
    both: str,
    paths: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    liar = Liar(monkeypatch, 1)
    with series(both) as run:
        assert got(outcomes_of(run, paths)) == expected(paths)
        assert (run.judgement.failure, run.judgement.totals.wrong) == ("", 0)
        assert run.judgement.totals.distances == SAME
        assert run.judgement.results.gpu is not None
        (lied,) = liar.devices
        portions = run.judgement.results.gpu.portions
        (other,) = (portion for portion in portions if not portion.failure)
        assert [other.device] == [info for info in list_devices()[:2] if info != lied]
        assert other.pictures == 7
    assert messages(caplog, logging.ERROR) == []
    assert messages(caplog, logging.WARNING) == [
        f"device {lied.index} ({lied.name}) is left out, and the others take its pictures: it "
        "computes wrongly: its outputs are up to 4 quanta from TFLite's reference kernels"
    ]


@slow
def test_uncompared_pictures_of_a_wrong_device_are_a_failure(
    both: str, paths: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    liar = Liar(monkeypatch, 1, first=50)  # pictures 100 and 101, of which 101 is compared
    with series(both, compares_all=False) as run:
        assert got(outcomes_of(run, paths * 30)) == expected(paths) * 30
        (lied,) = liar.devices
        assert run.judgement.totals.wrong == 0  # the other device ran what was wrong again
        assert run.judgement.failure == (
            f"{lied.name} computes wrongly: its outputs are up to 4 quanta from TFLite's reference "
            "kernels; 92 pictures before were not compared"
        )
    assert messages(caplog, logging.ERROR) == ["92 pictures before were not compared"]


def test_when_all_compute_wrongly_it_is_as_with_one_device(
    both: str,
    paths: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    liar = Liar(monkeypatch, 2)
    with series(both) as run:
        assert got(outcomes_of(run, paths)) == expected(paths)
        assert run.judgement.totals.wrong == 7
        assert run.judgement.failure == (
            f"{liar.devices[1].name} computes wrongly: its outputs are up to 4 quanta from "
            "TFLite's reference kernels, in 7 of 7 pictures"
        )
    assert messages(caplog, logging.WARNING)[1:] == ["the results of such pictures are the CPU's"]


def fail(monkeypatch: pytest.MonkeyPatch, is_to_fail: Callable[[Executor], bool]) -> None:
    honest = Executor._checked

    def checked(self: Executor, inputs: Any, outputs: Any) -> Any:
        if is_to_fail(self):
            raise DeviceError("running: CL_DEVICE_NOT_AVAILABLE")
        return honest(self, inputs, outputs)

    monkeypatch.setattr(Executor, "_checked", checked)


@slow
@pytest.mark.parametrize("compares", [False, True])
def test_pictures_of_a_failed_device_go_to_the_other(
    both: str,
    paths: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    compares: bool,
) -> None:
    lost: list[object] = []

    def is_to_fail(executor: Executor) -> bool:
        lost.append(executor._device)
        return executor._device is lost[0]  # the first that is to run

    with series(both, compares=compares) as run:
        fail(monkeypatch, is_to_fail)
        assert got(outcomes_of(run, paths)) == expected(paths)
        assert run.judgement.failure == ""
        assert run.judgement.results.gpu is not None
        failures = [portion.failure for portion in run.judgement.results.gpu.portions]
        assert sorted(failures) == ["", "running: CL_DEVICE_NOT_AVAILABLE"]
    (line,) = messages(caplog, logging.WARNING)
    assert line.endswith("the others take its pictures: running: CL_DEVICE_NOT_AVAILABLE")


@slow
def test_when_all_fail_the_cpu_runs_the_rest_as_with_one_device(
    both: str,
    paths: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with series(both, compares=False) as run:
        outcomes = run.outcomes(paths * 10, Format(SIZE, "uint8"))
        done = [next(outcomes)]
        fail(monkeypatch, lambda _: True)
        done += outcomes
        assert got(done) == expected(paths) * 10
        assert run.judgement.results.gpu is None
        assert run.judgement.failure == "running: CL_DEVICE_NOT_AVAILABLE"
    assert messages(caplog, logging.ERROR) == ["running: CL_DEVICE_NOT_AVAILABLE"]
    assert messages(caplog, logging.WARNING)[1:] == ["the CPU runs the model instead"]


@needs_tflite
def test_when_none_can_be_opened_it_is_as_with_one_device(
    both: str, paths: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_room(*arguments: Any) -> None:
        raise DeviceError("allocating 9 KiB: CL_OUT_OF_RESOURCES")

    monkeypatch.setattr(Executor, "_upload", no_room)
    with series(both) as run:
        assert got(outcomes_of(run, paths)) == expected(paths)
        assert run.judgement.failure == "allocating 9 KiB: CL_OUT_OF_RESOURCES"
    assert messages(caplog, logging.ERROR) == ["allocating 9 KiB: CL_OUT_OF_RESOURCES"]
    assert messages(caplog, logging.WARNING) == ["the CPU runs the model instead"]


@needs_tflite
def test_a_model_that_is_not_taken_whole_runs_on_one_device(
    both: str, paths: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with series(both, **PARTLY) as run:
        assert got(outcomes_of(run, paths)) == expected(paths)
        assert run.judgement.results.gpu is not None
        assert run.judgement.results.gpu.delegation is not None
        assert run.judgement.results.gpu.delegation.device == list_devices()[0].name
        assert (
            run.judgement.results.gpu.delegation.delegated,
            run.judgement.results.gpu.portions,
        ) == (1, ())
    assert messages(caplog, logging.WARNING) == [
        "--batch: OpenCL runs the pictures one by one through TFLite, on one device: "
        "--exclude_ops leaves nodes to the CPU"
    ]


def test_leaving_in_the_middle_ends_the_threads(both: str, paths: list[str]) -> None:
    before = set(threading.enumerate())
    with series(both, compares=False) as run:
        outcomes = run.outcomes(paths * 50, Format(SIZE, "uint8"))
        next(outcomes)
        outcomes.close()
    assert set(threading.enumerate()) <= before


def test_memory_is_that_of_a_few_batches(both: str) -> None:
    with series(both, 4, compares=False) as run:
        path = run._paths.gpu
        assert isinstance(path, SpreadPath)
        assert path.ahead == 6


# --- which batches are yielded when


class FakeRun(BatchRun):
    def __init__(self, number: int) -> None:
        super().__init__(lambda: BatchResult((), 0.0, 0.0))
        self.number, self.has_outputs, self.is_cancelled = number, False, False

    @property
    def is_done(self) -> bool:
        return self.has_outputs

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeBatches:
    """Gives so many batches, then tells what the script says ends next."""

    def __init__(self, count: int, script: Iterator[Any], runs: list[FakeRun]) -> None:
        self._pending, self._script, self._runs = count, script, runs
        self.is_at_end = False
        self.freed = 0

    def next(self) -> DecodedBatch | None:
        if self._pending:
            self._pending -= 1
            return DecodedBatch([Outcome("a")], np.zeros((1, 1)), 1)
        if not self.is_at_end:
            self.is_at_end = True
        else:
            self._runs[next(self._script)].has_outputs = True
        return None

    def wake(self) -> None:
        raise AssertionError("nothing runs in a thread here")

    def free(self, batch: DecodedBatch) -> None:
        self.freed += 1


def started(runs: list[FakeRun]) -> Callable[..., FakeRun]:
    def start(pixels: Any, listen: Callable[[], object]) -> FakeRun:
        runs.append(FakeRun(len(runs)))
        return runs[-1]

    return start


@pytest.mark.parametrize(
    ("together", "ends", "yielded"),
    [
        (0, [0, 2, 1], [(0, 1), (1, 3), (2, 3)]),
        (0, [2, 1, 0], [(0, 3), (1, 3), (2, 3)]),
        (2, [0, 1, 2], [(0, 3), (1, 3), (2, 3)]),
    ],
)
def test_batches_are_yielded_in_order(
    together: int, ends: list[int], yielded: list[tuple[int, int]]
) -> None:
    """`yielded`: the number of a batch, and how many had outputs then."""
    runs: list[FakeRun] = []
    given = FakeBatches(3, iter(ends), runs)
    steps = [
        (runs.index(cast(FakeRun, run)), sum(each.is_done for each in runs))
        for _, run in runs_in_order(cast(Batches, given), started(runs), lambda: together)
    ]
    assert steps == yielded
    assert given.freed == 3


def test_queued_batches_are_cancelled_when_the_reader_stops() -> None:
    runs: list[FakeRun] = []
    given = FakeBatches(3, iter([0]), runs)
    yielded = runs_in_order(cast(Batches, given), started(runs), lambda: 0)
    next(yielded)
    yielded.close()
    assert [run.is_cancelled for run in runs] == [False, True, True]
