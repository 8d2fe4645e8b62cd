# SPDX-License-Identifier: Apache-2.0
"""Progress of a run on stderr: a bar on a terminal, otherwise lines."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

from tflite_opencl.console import bars

LINE_SECONDS = 10.0  # between two lines


class Tally:
    """Counts finished cases, and estimates the remaining time."""

    def __init__(self, total: int, now_s: float) -> None:
        """`total`: all cases; `now_s`: the current time of any clock, as everywhere here."""
        self._total, self._begun_s = total, now_s
        self._known = 0  # finished before this run
        self._counts: Counter[str] = Counter()
        self._last = ""

    @property
    def part(self) -> float:
        """The finished fraction, 0 to 1."""
        return self._counts.total() / self._total

    def add(self, status: str, name: str, is_known: bool = False) -> None:
        """Count a case; `is_known`: finished in an earlier run, so it took no time in this one."""
        self._counts[status] += 1
        self._known += is_known
        self._last = name

    def rest(self, now_s: float) -> str:
        """Return the remaining time, and counts by result."""
        done = self._counts.total()
        if done == self._known:
            return "the first one is not done yet"
        left_s = (now_s - self._begun_s) / (done - self._known) * (self._total - done)
        counts = ", ".join(f"{status} {count}" for status, count in self._counts.items())
        return f"about {_duration(left_s)} left: {counts}; last {self._last}"

    def line(self, now_s: float) -> str:
        """Return the number of finished cases, and `rest`, on a line."""
        done, rest = self._counts.total(), self.rest(now_s)
        mark = ":" if done == self._known else ","
        return f"{done} of {self._total} cases in {_duration(now_s - self._begun_s)}{mark} {rest}"


@contextlib.contextmanager
def told(tally: Tally, say: Callable[[str], None], is_quiet: bool) -> Iterator[Callable[[], None]]:
    """Display a tally inside the context; yields a function to call after changes.

    `say` prints a line.
    """
    is_over = threading.Event()

    def tell_lines() -> None:
        while not is_over.wait(LINE_SECONDS):
            say(tally.line(time.monotonic()))

    teller = threading.Thread(target=tell_lines, daemon=True)  # a case may hang
    if not sys.stderr.isatty() and not is_quiet:
        teller.start()
    try:
        with bars.parts() as show:
            show(0.0, "opening the delegate")
            yield lambda: show(tally.part, tally.rest(time.monotonic()))
    finally:
        is_over.set()
        if teller.is_alive():
            teller.join()


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
