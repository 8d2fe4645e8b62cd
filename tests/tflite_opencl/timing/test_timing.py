# SPDX-License-Identifier: Apache-2.0
"""Timed runs, with a fake clock."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from tflite_opencl.console import interrupts
from tflite_opencl.timing.timing import Stopwatch, Times, are_enough, measure, turns


class Clock:
    """A wall clock and a CPU clock that only runs advance."""

    def __init__(self) -> None:
        self.wall_s = 100.0
        self.cpu_s = 5.0

    def runs(self, steps: Iterator[tuple[float, float]]) -> Callable[[], None]:
        def run() -> None:
            wall_s, cpu_s = next(steps)
            self.wall_s += wall_s
            self.cpu_s += cpu_s

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", lambda: clock.wall_s)
    monkeypatch.setattr(time, "process_time", lambda: clock.cpu_s)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    return clock


def test_only_timed_runs_count(clock: Clock) -> None:
    warmup = [(64.0, 64.0), (32.0, 32.0)]
    timed = [(0.5, 1.0), (0.25, 0.5), (2.0, 4.0), (1.25, 2.5)]
    steps = iter([*warmup, *timed])
    times = measure(clock.runs(steps), count=4, warmup=2)
    assert times == Times(
        average_ms=1000.0, min_ms=250.0, median_ms=875.0, total_ms=4000.0, cpu_load=2.0, runs=4
    )
    assert next(steps, None) is None


def test_single_run(clock: Clock) -> None:
    times = measure(clock.runs(iter([(0.125, 0.0)])), count=1, warmup=0)
    assert times == Times(125.0, 125.0, 125.0, 125.0, 0.0)


def test_load_without_elapsed_time(clock: Clock) -> None:
    assert measure(clock.runs(iter([(0.0, 0.0)])), count=1, warmup=0).cpu_load == 0.0


def test_load_is_limited_by_cores(clock: Clock) -> None:
    """All clock ticks of the processors may fall into a short run."""
    assert measure(clock.runs(iter([(0.125, 0.5)])), count=1, warmup=0).cpu_load == 2.0


@pytest.mark.parametrize(
    ("runs", "seconds", "is_enough"), [(9, 0.5, False), (10, 0.5, True), (1, 3.0, True)]
)
def test_number_of_warm_up_runs(runs: int, seconds: float, is_enough: bool) -> None:
    assert are_enough(runs, seconds) is is_enough


def test_real_clocks_distinguish_sleeping_from_spinning() -> None:
    times = measure(lambda: time.sleep(0.02), count=3, warmup=0)
    assert times.total_ms >= 60.0
    assert times.min_ms >= 20.0
    assert times.cpu_load < 0.9


@pytest.mark.parametrize("count", [0, -1])
def test_zero_runs_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match="at least one run"):
        measure(lambda: None, count, warmup=0)


def test_exception_of_run_propagates() -> None:
    def run() -> None:
        raise RuntimeError("device lost")

    with pytest.raises(RuntimeError, match="device lost"):
        measure(run, count=1, warmup=1)


def test_swallowed_ctrl_c_ends_after_the_run(clock: Clock) -> None:
    steps = clock.runs(iter([(0.5, 1.0), (0.25, 0.5), (2.0, 4.0)]))
    calls = 0

    def run() -> None:
        nonlocal calls
        calls += 1
        steps()
        if calls == 3:
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    stopwatch = Stopwatch()
    with interrupts.remembered(), pytest.raises(KeyboardInterrupt):
        stopwatch.measure(run, count=9, warmup=0)
    assert (calls, stopwatch.count) == (3, 2)
    assert stopwatch.times.average_ms == 375.0


def test_every_other_round_is_reversed() -> None:
    assert list(turns("ab", 3)) == [(0, "a"), (0, "b"), (1, "b"), (1, "a"), (2, "a"), (2, "b")]


def test_times_of_runs(clock: Clock) -> None:
    stopwatch = Stopwatch()
    stopwatch.measure(clock.runs(iter([(1.0, 0.0), (0.25, 0.0), (0.5, 0.0)])), 2, 1)
    assert stopwatch.runs_ms == (250.0, 500.0)


@pytest.mark.parametrize(
    ("seconds", "runs"),
    [(0.25, 10), (0.03125, 32), (0.5, 6), (9.0, 1)],
    ids=["often enough", "long enough", "a slow model", "a very slow one"],
)
def test_runs_for_stable_figure(clock: Clock, seconds: float, runs: int) -> None:
    stopwatch = Stopwatch()
    stopwatch.measure_for(clock.runs(iter([(seconds, 0.0)] * 99)), 1.0, 3.0)
    assert (stopwatch.count, stopwatch.times.runs) == (runs, runs)
