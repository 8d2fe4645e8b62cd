# SPDX-License-Identifier: Apache-2.0
"""How far a run of cases is, in words."""

from __future__ import annotations

from collections import Counter


class Tally:
    """Counts cases that are done, and estimates what the others take."""

    def __init__(self, total: int, now_s: float) -> None:
        """`total`: all cases; `now_s`: the time by any clock, as everywhere here."""
        self._total = total
        self._begun_s = now_s
        self._known = 0  # done before this run
        self._counts: Counter[str] = Counter()
        self._last = ""

    @property
    def counts(self) -> str:
        """Give "Pass 118, Fail 2"."""
        return ", ".join(f"{status} {count}" for status, count in self._counts.items())

    def add(self, status: str, name: str, is_known: bool = False) -> None:
        """Count a case; `is_known`: it was done in an earlier run, and took no time in this one."""
        self._counts[status] += 1
        self._known += is_known
        self._last = name

    def line(self, now_s: float) -> str:
        """Return how many are done, what they were, and how long the others will take."""
        done = self._counts.total()
        here, seconds = done - self._known, now_s - self._begun_s
        head = f"{done} of {self._total} cases in {_duration(seconds)}"
        if not here:
            return f"{head}: the first one is not done yet"
        left = _duration(seconds / here * (self._total - done))
        return f"{head}, about {left} left: {self.counts}; last {self._last}"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
