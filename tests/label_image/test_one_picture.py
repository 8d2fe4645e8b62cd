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
from label_image import one_picture
from label_image.classify import PathRun
from label_image.ran import Ran
from tflite_opencl.common import interrupts
from tflite_opencl.common.errors import DelegateFailed
from tflite_opencl.common.job import Delegation, Job
from tflite_opencl.common.timing import Times

TIMES = Times(average_ms=2.0, min_ms=2.0, median_ms=2.0, total_ms=2.0, cpu_load=1.0)
NODES = (Verdict(0, "CONV_2D", None),)
TAKEN = Delegation("GPU", "rusticl", "24.3", NODES, ((0,),), tuning_left=9)
RIGHT, WRONG = (np.array([value], np.uint8) for value in (5, 9))
OPENCL = PathRun(TIMES, 9.0, (RIGHT,), TAKEN)
ON_CPU = PathRun(TIMES, 1.0, (RIGHT,))
TUNED = replace(OPENCL, delegation=replace(TAKEN, tuning_left=0), load_ms=99.0)
JOB = Job("m.tflite", np.zeros(1, np.uint8), opencl=Options(tune="quick"), reference=True)


class Runs:
    """What OpenCL's runs give, one after the other, and what was done in which order."""

    def __init__(self, *given: PathRun | BaseException) -> None:
        self.given = [*given]
        self.done: list[str] = []
        self.shown: list[PathRun] = []

    def run(self, _: object, job: Job) -> PathRun:
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

    def show(self, _: object, result: PathRun, picture: None) -> None:
        self.done.append("show")
        self.shown.append(result)


@pytest.fixture(autouse=True)
def _ctrl_c() -> Iterator[None]:
    with interrupts.remembered():
        yield


def answered(monkeypatch: pytest.MonkeyPatch, runs: Runs, is_watched: bool = True) -> Ran:
    output = SimpleNamespace(dtype="uint8")
    prepared: Any = SimpleNamespace(
        is_watched=is_watched,
        tunes_after=is_watched,
        graph=SimpleNamespace(nodes=(), outputs=(output,)),
        kernels="XNNPACK",
    )
    monkeypatch.setattr(one_picture, "_run", runs.run)
    monkeypatch.setattr(one_picture, "_show", runs.show)

    class Result(SimpleNamespace):
        scene = None

        def __eq__(self, other: object) -> bool:
            return bool(self.run is other)

    monkeypatch.setattr(one_picture, "_result", lambda _, run, picture: Result(run=run))
    return one_picture._answered(prepared, JOB, None, 80)


def test_results_come_first_and_tuned_times_last(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(OPENCL, TUNED)
    outcome = answered(monkeypatch, runs)
    assert runs.done == ["quick", "show", "auto", "reference", "full"]
    assert (outcome.gpu, outcome.untuned, outcome.failure) == (TUNED, OPENCL, "")


def test_unwatched_they_come_once_they_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(OPENCL)
    outcome = answered(monkeypatch, runs, is_watched=False)
    assert runs.done == ["quick", "auto", "reference", "show"]
    assert (outcome.gpu, outcome.untuned) == (OPENCL, None)


def test_what_is_tuned_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(TUNED)
    assert answered(monkeypatch, runs).untuned is None
    assert runs.done == ["quick", "show", "auto", "reference"]


def test_ctrl_c_ends_the_tuning_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = answered(monkeypatch, Runs(OPENCL, KeyboardInterrupt()))
    assert (outcome.gpu, outcome.untuned) == (OPENCL, None)
    interrupts.check()


def test_an_error_of_the_tuning_leaves_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = answered(monkeypatch, Runs(OPENCL, DelegateFailed("no memory")))
    assert (outcome.gpu, outcome.failure) == (OPENCL, "")


def test_tuned_kernels_that_compute_wrongly_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(OPENCL, replace(TUNED, outputs=(WRONG,)))
    outcome = answered(monkeypatch, runs)
    assert outcome.run is ON_CPU
    assert "4 quanta" in outcome.failure
    assert runs.shown == [OPENCL, ON_CPU]


def test_a_device_that_fails_shows_the_cpu_s_results_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(DelegateFailed("lost"), ON_CPU)
    outcome = answered(monkeypatch, runs)
    assert runs.done == ["quick", "auto", "show"]
    assert (outcome.gpu, outcome.failure) == (None, "lost")
