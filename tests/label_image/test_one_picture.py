# SPDX-License-Identifier: Apache-2.0
"""A first start: when results are shown, when it tunes, and what Ctrl-C and errors cost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from delegate import Options, Verdict
from label_image import timed_paths
from label_image.judgement import Judgement
from label_image.one_picture import OnePicture
from label_image.run_result import Outputs, RunResult
from tests.support.compare import RUNTIME
from tests.support.without_tflite import needs_tflite
from tflite_opencl.console import interrupts
from tflite_opencl.console.errors import DelegateFailed
from tflite_opencl.harness.job import Delegation, Job
from tflite_opencl.timing.timing import Times

TIMES = Times(average_ms=2.0, min_ms=2.0, median_ms=2.0, total_ms=2.0, cpu_load=1.0)
NODES = (Verdict(0, "CONV_2D", None),)
TAKEN = Delegation("GPU", "rusticl", "24.3", NODES, ((0,),), tuning_left=9)
RIGHT, WRONG = (np.array([value], np.uint8) for value in (5, 9))
OPENCL = RunResult(9.0, delegation=TAKEN, outputs=(RIGHT,), times=TIMES)
ON_CPU = RunResult(1.0, outputs=(RIGHT,), times=TIMES)
TUNED = replace(
    OPENCL, delegation=replace(TAKEN, tuning_left=0), load_ms=99.0, outputs=(RIGHT.copy(),)
)
JOB = Job("m.tflite", np.zeros(1, np.uint8), True, opencl=Options(tune="quick"), reference=True)


@dataclass
class Ran:
    """The verdict, the steps in order, and the outputs that were shown."""

    judgement: Judgement
    steps: list[str] = field(default_factory=list)
    shown: list[Outputs] = field(default_factory=list)


@pytest.fixture(autouse=True)
def _ctrl_c() -> Iterator[None]:
    with interrupts.remembered():
        yield


def ran_with(*results: RunResult | BaseException, is_watched: bool = True) -> Ran:
    """Run one picture; `results`: of OpenCL's runs, one after the other."""
    pending, steps, shown = [*results], list[str](), list[Outputs]()
    graph: Any = SimpleNamespace(nodes=(), outputs=(SimpleNamespace(dtype="uint8", name=""),))

    def run(job: Job, *_: object) -> RunResult:
        if job.opencl is None:
            steps.append(job.cpu_kernels)
            return ON_CPU
        steps.append(job.opencl.tune)
        result = pending.pop(0)
        if isinstance(result, KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        if isinstance(result, BaseException):
            raise result
        return result

    class One(OnePicture):
        def __init__(self) -> None:
            self._job, self._width = JOB, 80
            self._settings: Any = SimpleNamespace(table_flag="--compare")
            self._prepared: Any = SimpleNamespace(
                is_watched=is_watched, tunes_after=is_watched, kernels="XNNPACK", runtime=RUNTIME,
                graph=graph,
            )  # fmt: skip

        def _result(self, outputs: Outputs) -> Any:
            return SimpleNamespace(scene=SimpleNamespace(rows=None), outputs=outputs)

        def show(self, result: Any) -> None:
            steps.append("show")
            shown.append(result.outputs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timed_paths, "run", run)
        return Ran(One().run_paths(), steps, shown)


def test_results_come_first_and_tuned_times_last() -> None:
    ran = ran_with(OPENCL, TUNED)
    assert ran.steps == ["quick", "show", "auto", "judge", "full"]
    results = ran.judgement.results
    assert (results.gpu, results.untuned, ran.judgement.failure) == (TUNED, OPENCL, "")


def test_unwatched_they_come_once_they_are_compared() -> None:
    ran = ran_with(OPENCL, is_watched=False)
    assert ran.steps == ["quick", "auto", "judge", "show"]
    assert (ran.judgement.results.gpu, ran.judgement.results.untuned) == (OPENCL, None)


def test_what_is_tuned_runs_once() -> None:
    ran = ran_with(TUNED)
    assert ran.judgement.results.untuned is None
    assert ran.steps == ["quick", "show", "auto", "judge"]


def test_ctrl_c_ends_the_tuning_and_nothing_else() -> None:
    results = ran_with(OPENCL, KeyboardInterrupt()).judgement.results
    assert (results.gpu, results.untuned) == (OPENCL, None)
    interrupts.check()


def test_ctrl_c_in_the_comparison_of_outputs_leaves_the_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def distances(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("label_image.judgement.distances_between", distances)
    judgement = ran_with(TUNED).judgement
    assert (judgement.answer, judgement.failure) == (TUNED.outputs, "")
    assert judgement.results.is_interrupted


def test_an_error_of_the_tuning_leaves_the_results() -> None:
    judgement = ran_with(OPENCL, DelegateFailed("no memory")).judgement
    assert (judgement.results.gpu, judgement.failure) == (OPENCL, "")


def test_tuned_kernels_that_compute_wrongly_are_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ran = ran_with(OPENCL, replace(TUNED, outputs=(WRONG,)))
    assert ran.judgement.answer is ON_CPU.outputs
    assert "4 quanta" in ran.judgement.failure
    assert ran.shown == [OPENCL.outputs, ON_CPU.outputs]
    assert caplog.messages == [ran.judgement.failure, "the results are the CPU's"]


@needs_tflite
def test_a_device_that_fails_shows_the_cpu_s_results_once() -> None:
    ran = ran_with(DelegateFailed("lost"), ON_CPU)
    assert ran.steps == ["quick", "auto", "show"]
    assert (ran.judgement.results.gpu, ran.judgement.failure) == (None, "lost")
