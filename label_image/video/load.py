# SPDX-License-Identifier: Apache-2.0
"""Latency and load statistics of frames, in constant memory."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass, field
from pathlib import Path

from tflite_opencl.timing.timing import Load

_TASKS = Path("/proc/self/task")
_OF_FFMPEG = "av:"  # prefix of its threads' names
_STEP = 1.02  # ratio of adjacent latency bins: the precision of quantiles
_LEAST_MS = 0.01


class ThreadTimes:
    """The CPU time of FFmpeg's own threads, including threads that have ended."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}  # by thread

    def look(self) -> float:
        """Return the seconds so far; an ended thread counts up to the previous call."""
        with contextlib.suppress(OSError):
            for task in _TASKS.iterdir():
                with contextlib.suppress(OSError, ValueError):  # it has just ended
                    if (task / "comm").read_text().startswith(_OF_FFMPEG):
                        spent = (task / "schedstat").read_text().split()[0]
                        self._seconds[task.name] = int(spent) / 1e9
        return sum(self._seconds.values())


class Latencies:
    """A histogram of latencies in milliseconds, with bins 2 % apart."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}  # a thousand bins span eight decades
        self.count = 0

    def add(self, spent_ms: float) -> None:
        place = math.ceil(math.log(max(spent_ms, _LEAST_MS) / _LEAST_MS, _STEP))
        self._counts[place] = self._counts.get(place, 0) + 1
        self.count += 1

    def quantile(self, part: float) -> float | None:
        """Return this quantile of the latencies; None: there are none."""
        left = math.ceil(part * self.count)
        for place in sorted(self._counts):
            left -= self._counts[place]
            if left <= 0:
                return _LEAST_MS * _STEP**place
        return None


@dataclass(slots=True)
class Parts:
    """Counters and times of frames, since the start or in a span."""

    decoded: int = 0
    classified: int = 0
    dropped: int = 0
    damaged: int = 0
    decoding_s: float = 0.0  # CPU seconds
    preparing_s: float = 0.0
    showing_s: float = 0.0  # drawing, encoding and writing
    latencies: Latencies = field(default_factory=Latencies)


@dataclass(frozen=True, slots=True)
class Loads:
    """Average processor load; 1 is one fully busy processor."""

    decoding: float
    preparing: float
    inference: float  # and everything not listed
    showing: float
    gpu: float | None  # None: no driver reports it


class Span:
    """A time span, starting at its construction."""

    def __init__(self, before: Parts) -> None:
        """`before`: the counters at the start."""
        self._before = (before.decoding_s, before.preparing_s, before.showing_s)
        self._counts = (before.decoded, before.classified, before.dropped)
        self._load, self._begin_s = Load(), time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._begin_s

    def counts(self, now: Parts) -> tuple[int, int, int]:
        """Return the frames decoded, classified and dropped since."""
        decoded, classified, dropped = self._counts
        return now.decoded - decoded, now.classified - classified, now.dropped - dropped

    def loads(self, now: Parts) -> Loads:
        """Return the loads since; `now`: the current counters."""
        seconds = max(self.seconds, 1e-9)
        cpu_s, gpu_s = self._load.until_now()
        after = now.decoding_s, now.preparing_s, now.showing_s
        named = [max(0.0, b - a) for a, b in zip(self._before, after, strict=True)]
        decoding, preparing, showing = (each / seconds for each in named)
        rest = max(0.0, cpu_s - sum(named)) / seconds
        gpu = None if gpu_s is None else gpu_s / seconds
        return Loads(decoding, preparing, rest, showing, gpu)


def second_text(span: Span, now: Parts, latencies: Latencies) -> str:
    """Return the statistics of the last second on one line."""
    rates = (count / max(span.seconds, 1e-9) for count in span.counts(now))
    text = "{:.1f} frames/s in, {:.1f} classified, {:.1f} dropped".format(*rates)
    if (median := latencies.quantile(0.5)) is not None:
        text += f", latency {median:.1f} ms (p99 {latencies.quantile(0.99):.1f})"
    return f"{text}, {loads_text(span.loads(now))}"


def loads_text(loads: Loads) -> str:
    text = f"CPU: decoding {loads.decoding:.2f}, preparing {loads.preparing:.2f}"
    text += f", inference {loads.inference:.2f}"
    if loads.showing >= 0.005:
        text += f", showing {loads.showing:.2f}"
    return text if loads.gpu is None else f"{text}, GPU {loads.gpu:.2f}"
