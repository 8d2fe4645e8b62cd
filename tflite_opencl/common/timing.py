# SPDX-License-Identifier: Apache-2.0
"""Time anything callable: warm-up, then timed runs. It neither knows what runs nor prints."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Times:
    """What the timed runs took, by the wall clock."""

    average_ms: float  # total_ms over the number of runs, as label_image prints it
    min_ms: float  # fastest run
    median_ms: float  # middle run
    total_ms: float  # the whole loop
    cpu_load: float  # CPU time of all threads of this process over wall time: 1.98 cores


def measure(run: Callable[[], object], count: int, warmup: int) -> Times:
    """Call `run` `warmup` times untimed, then `count` times timed.

    Raises: ValueError: `count` is not positive.
    """
    if count < 1:
        raise ValueError(f"count {count}: at least one run must be timed")
    for _ in range(warmup):
        run()

    runs_s = []
    cpu_start_s = time.process_time()
    start_s = last_s = time.perf_counter()
    for _ in range(count):
        run()
        now_s = time.perf_counter()
        runs_s.append(now_s - last_s)
        last_s = now_s
    cpu_s = time.process_time() - cpu_start_s
    total_s = last_s - start_s

    return Times(
        average_ms=total_s * 1e3 / count,
        min_ms=min(runs_s) * 1e3,
        median_ms=statistics.median(runs_s) * 1e3,
        total_ms=total_s * 1e3,
        cpu_load=cpu_s / total_s if total_s else 0.0,
    )
