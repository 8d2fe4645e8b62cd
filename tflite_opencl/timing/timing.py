# SPDX-License-Identifier: Apache-2.0
"""Times callables: warm-up, then timed runs, alternating with other contenders.

Neither knows what runs nor prints.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from delegate.inspect import children_cpu_seconds
from tflite_opencl.console import interrupts
from tflite_opencl.timing import drm

T = TypeVar("T")

# Runtimes' threads spin for a while after a run, waiting for the next one. With as many threads as
# cores they would slow the next contender: each block of runs waits until they have gone to sleep.
SETTLE_S = 0.012
LEAST_RUNS = 10  # for reproducible statistics
ENOUGH_S = 3.0  # of fewer runs


def are_enough(runs: int, seconds: float) -> bool:
    """Whether this many runs with this total time suffice for a comparison."""
    return runs >= LEAST_RUNS or seconds >= ENOUGH_S


def total_cpu_seconds() -> float:
    """Return the CPU time of this process, and of the children that execute plans for it.

    A child's time is lost when it ends.
    """
    return time.process_time() + children_cpu_seconds()


def cores(cpu_s: float, wall_s: float) -> float:
    """Return the average number of busy cores; 0 if no time passed.

    At most the number this process may use: per-thread clocks and the wall clock differ.
    """
    return min(max(0.0, cpu_s) / wall_s, float(len(os.sched_getaffinity(0)))) if wall_s > 0 else 0.0


@dataclass(frozen=True)
class Times:
    """Statistics of the timed runs, by the wall clock."""

    average_ms: float  # total_ms over the number of runs, as label_image prints it
    min_ms: float  # fastest run
    median_ms: float  # middle run
    total_ms: float  # the whole loop
    cpu_load: float  # CPU time, as of total_cpu_seconds, over wall time: 1.98 cores
    runs: int = 1
    gpu_load: float | None = None  # busy time of GPU engines over wall time; None: unknown

    @property
    def are_enough(self) -> bool:
        """Whether there are enough runs for a comparison."""
        return are_enough(self.runs, self.total_ms / 1e3)


class Load:
    """This process's processor use during a measurement."""

    def __init__(self) -> None:
        self._cpu_s, self._gpu_s = total_cpu_seconds(), drm.usage().busy_s

    def until_now(self) -> tuple[float, float | None]:
        """Return the seconds of CPU cores and of GPU engines since its creation."""
        gpu_s = drm.usage().busy_s
        used = None if gpu_s is None else gpu_s - (self._gpu_s or 0.0)
        return max(0.0, total_cpu_seconds() - self._cpu_s), used


class Stopwatch:
    """Timed runs whose times are available at any moment, also after Ctrl-C."""

    def __init__(self) -> None:
        self._runs_s: list[float] = []
        self._total_s = self._cpu_s = 0.0
        self._gpu_s: float | None = None

    @property
    def count(self) -> int:
        """Number of finished timed runs."""
        return len(self._runs_s)

    @property
    def runs_ms(self) -> tuple[float, ...]:
        """The time of each finished run."""
        return tuple(seconds * 1e3 for seconds in self._runs_s)

    @property
    def times(self) -> Times:
        """The statistics of the finished runs, at least one."""
        return Times(
            average_ms=self._total_s * 1e3 / self.count,
            min_ms=min(self._runs_s) * 1e3,
            median_ms=statistics.median(self._runs_s) * 1e3,
            total_ms=self._total_s * 1e3,
            cpu_load=cores(self._cpu_s, self._total_s),
            runs=self.count,
            gpu_load=self._gpu_s and self._gpu_s / (self._total_s or 1.0),
        )

    def measure(self, run: Callable[[], object], count: int, warmup: int) -> None:
        """Call `run` `warmup` times untimed, then `count` times timed.

        Raises: ValueError: `count` is not positive. KeyboardInterrupt: Ctrl-C, even if `run`
            calls C code that drops it.
        """
        if count < 1:
            raise ValueError(f"count {count}: at least one run must be timed")
        for _ in range(warmup):
            run()
            interrupts.check()
        self._measure(run, lambda done, seconds: done == count)

    def measure_for(self, run: Callable[[], object], least_s: float, most_s: float) -> None:
        """Call `run` timed until its statistics are stable: for a minimum of time and of runs.

        A slow model is run LEAST_RUNS times if that takes no more than `most_s`.
        Raises: as `measure`.
        """

        def is_over(done: int, seconds: float) -> bool:
            return done > 0 and seconds >= (least_s if done >= LEAST_RUNS else most_s)

        self._measure(run, is_over)

    def _measure(self, run: Callable[[], object], is_over: Callable[[int, float], bool]) -> None:
        load = Load()
        start_s = last_s = time.perf_counter()
        try:
            while not is_over(self.count, last_s - start_s):
                run()
                interrupts.check()
                now_s = time.perf_counter()
                self._runs_s.append(now_s - last_s)
                last_s = now_s
        finally:
            self._cpu_s, self._gpu_s = load.until_now()
            self._total_s = last_s - start_s


def measure(run: Callable[[], object], count: int, warmup: int) -> Times:
    """Return the times of `count` runs after `warmup` others. Raises as Stopwatch.measure."""
    stopwatch = Stopwatch()
    stopwatch.measure(run, count, warmup)
    return stopwatch.times


def turns(contenders: Sequence[T], rounds: int) -> Iterator[tuple[int, T]]:
    """Yield each round's number and the contender to time next.

    A temporary slow-down then affects all of them. Every other round is reversed, so
    that no contender always follows the same one.
    """
    for number in range(rounds):
        for contender in contenders[:: -1 if number % 2 else 1]:
            yield number, contender
