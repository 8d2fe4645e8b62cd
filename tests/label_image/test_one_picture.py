# SPDX-License-Identifier: Apache-2.0
"""A first start: when results are shown, when it tunes, and what Ctrl-C and errors cost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from delegate import Options, Verdict
from label_image.judgement import Judgement
from label_image.one_picture import OnePicture
from label_image.path import Outputs, Path
from label_image.paths import Paths
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
OPENCL = Path(9.0, delegation=TAKEN, outputs=(RIGHT,), times=TIMES)
ON_CPU = Path(1.0, outputs=(RIGHT,), times=TIMES)
TUNED = replace(
    OPENCL, delegation=replace(TAKEN, tuning_left=0), load_ms=99.0, outputs=(RIGHT.copy(),)
)
JOB = Job("m.tflite", np.zeros(1, np.uint8), True, opencl=Options(tune="quick"), reference=True)


class Runs:
    """What OpenCL's runs give, one after the other, and what was done in which order."""

    def __init__(self, *given: Path | BaseException) -> None:
        self.given = [*given]
        self.done: list[str] = []
        self.shown: list[Outputs] = []

    def run(self, job: Job, is_beside: bool = False) -> Path:
        if job.opencl is None:
            self.done.append(job.cpu_kernels)
            return ON_CPU
        self.done.append(job.opencl.tune)
        found = self.given.pop(0)
        if isinstance(found, KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        if isinstance(found, BaseException):
            raise found
        return found


@pytest.fixture(autouse=True)
def _ctrl_c() -> Iterator[None]:
    with interrupts.remembered():
        yield


def answered(runs: Runs, is_watched: bool = True) -> Judgement:
    output = SimpleNamespace(dtype="uint8")
    graph: Any = SimpleNamespace(nodes=(), outputs=(output,))
    paths = Paths(JOB, RUNTIME, graph)
    paths.run = runs.run  # type: ignore[method-assign]

    class One(OnePicture):
        def __init__(self) -> None:
            self.paths = paths
            self._prepared: Any = SimpleNamespace(
                is_watched=is_watched, tunes_after=is_watched, kernels="XNNPACK"
            )
            self._width = 80

        def _result(self, outputs: Outputs) -> Any:
            return SimpleNamespace(scene=SimpleNamespace(rows=None), outputs=outputs)

        def show(self, result: Any) -> None:
            runs.done.append("show")
            runs.shown.append(result.outputs)

    One().answer()
    return paths.judgement


def test_results_come_first_and_tuned_times_last() -> None:
    runs = Runs(OPENCL, TUNED)
    outcome = answered(runs)
    assert runs.done == ["quick", "show", "auto", "judge", "full"]
    assert (outcome.gpu, outcome.untuned, outcome.failure) == (TUNED, OPENCL, "")


def test_unwatched_they_come_once_they_are_compared() -> None:
    runs = Runs(OPENCL)
    outcome = answered(runs, is_watched=False)
    assert runs.done == ["quick", "auto", "judge", "show"]
    assert (outcome.gpu, outcome.untuned) == (OPENCL, None)


def test_what_is_tuned_runs_once() -> None:
    runs = Runs(TUNED)
    assert answered(runs).untuned is None
    assert runs.done == ["quick", "show", "auto", "judge"]


def test_ctrl_c_ends_the_tuning_and_nothing_else() -> None:
    outcome = answered(Runs(OPENCL, KeyboardInterrupt()))
    assert (outcome.gpu, outcome.untuned) == (OPENCL, None)
    interrupts.check()


def test_an_error_of_the_tuning_leaves_the_results() -> None:
    outcome = answered(Runs(OPENCL, DelegateFailed("no memory")))
    assert (outcome.gpu, outcome.failure) == (OPENCL, "")


def test_tuned_kernels_that_compute_wrongly_are_an_error() -> None:
    runs = Runs(OPENCL, replace(TUNED, outputs=(WRONG,)))
    outcome = answered(runs)
    assert outcome.answer is ON_CPU.outputs
    assert "4 quanta" in outcome.failure
    assert runs.shown == [OPENCL.outputs, ON_CPU.outputs]


@needs_tflite
def test_a_device_that_fails_shows_the_cpu_s_results_once() -> None:
    runs = Runs(DelegateFailed("lost"), ON_CPU)
    outcome = answered(runs)
    assert runs.done == ["quick", "auto", "show"]
    assert (outcome.gpu, outcome.failure) == (None, "lost")
