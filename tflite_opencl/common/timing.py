# SPDX-License-Identifier: Apache-2.0
"""Time anything callable: warm-up, then timed runs. It neither knows what runs nor prints."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from tflite_opencl.common import interrupts


@dataclass(frozen=True)
class Times:
    """What the timed runs took, by the wall clock."""

    average_ms: float  # total_ms over the number of runs, as label_image prints it
    min_ms: float  # fastest run
    median_ms: float  # middle run
    total_ms: float  # the whole loop
    cpu_load: float  # CPU time of all threads of this process over wall time: 1.98 cores


class Stopwatch:
    """Timed runs, of which the times are known at any moment, also where Ctrl-C ends them."""

    def __init__(self) -> None:
        self._runs_s: list[float] = []
        self._total_s = self._cpu_s = 0.0

    @property
    def count(self) -> int:
        """Count the timed runs that have ended."""
        return len(self._runs_s)

    @property
    def times(self) -> Times:
        """Give the times of these runs, of which there is at least one."""
        return Times(
            average_ms=self._total_s * 1e3 / self.count,
            min_ms=min(self._runs_s) * 1e3,
            median_ms=statistics.median(self._runs_s) * 1e3,
            total_ms=self._total_s * 1e3,
            cpu_load=self._cpu_s / self._total_s if self._total_s else 0.0,
        )

    def measure(self, run: Callable[[], object], count: int, warmup: int) -> None:
        """Call `run` `warmup` times untimed, then `count` times timed.

        Raises: ValueError: `count` is not positive. KeyboardInterrupt: Ctrl-C, also where `run`
            calls C code that drops it.
        """
        if count < 1:
            raise ValueError(f"count {count}: at least one run must be timed")
        for _ in range(warmup):
            run()
            interrupts.check()

        cpu_start_s = time.process_time()
        start_s = last_s = time.perf_counter()
        try:
            for _ in range(count):
                run()
                interrupts.check()
                now_s = time.perf_counter()
                self._runs_s.append(now_s - last_s)
                last_s = now_s
        finally:
            self._cpu_s = time.process_time() - cpu_start_s
            self._total_s = last_s - start_s


def measure(run: Callable[[], object], count: int, warmup: int) -> Times:
    """Return the times of `count` runs after `warmup` others. Raises as Stopwatch.measure."""
    stopwatch = Stopwatch()
    stopwatch.measure(run, count, warmup)
    return stopwatch.times
