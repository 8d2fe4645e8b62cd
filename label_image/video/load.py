# SPDX-License-Identifier: Apache-2.0
"""How long frames take, in memory that does not grow, and what the processors do meanwhile."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass, field
from pathlib import Path

from tflite_opencl.timing.timing import Load

_TASKS = Path("/proc/self/task")
_OF_FFMPEG = "av:"  # how the names of its threads begin
_STEP = 1.02  # from one class of latencies to the next: how exact quantiles are
_LEAST_MS = 0.01


class ThreadTimes:
    """The CPU time of FFmpeg's own threads, those that have ended included."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}  # by thread

    def look(self) -> float:
        """Return the seconds until now; of a thread that ends, those until the look before."""
        with contextlib.suppress(OSError):
            for task in _TASKS.iterdir():
                with contextlib.suppress(OSError, ValueError):  # it has ended just now
                    if (task / "comm").read_text().startswith(_OF_FFMPEG):
                        spent = (task / "schedstat").read_text().split()[0]
                        self._seconds[task.name] = int(spent) / 1e9
        return sum(self._seconds.values())


class Latencies:
    """Milliseconds of any number of frames, counted in classes that are 2 % apart."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}  # a thousand of them are eight decades
        self.count = 0

    def add(self, spent_ms: float) -> None:
        place = math.ceil(math.log(max(spent_ms, _LEAST_MS) / _LEAST_MS, _STEP))
        self._counts[place] = self._counts.get(place, 0) + 1
        self.count += 1

    def quantile(self, part: float) -> float | None:
        """Return what this part of the frames did not exceed; None: there were none."""
        left = math.ceil(part * self.count)
        for place in sorted(self._counts):
            left -= self._counts[place]
            if left <= 0:
                return _LEAST_MS * _STEP**place
        return None


@dataclass(slots=True)
class Parts:
    """What frames were and took, from a beginning on or in a span of it."""

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
    """Processors that were busy on average; 1 is a whole one."""

    decoding: float
    preparing: float
    inference: float  # and all that is not named
    showing: float
    gpu: float | None  # None: no driver tells it


class Span:
    """A span of time, from the moment that it is made."""

    def __init__(self, before: Parts) -> None:
        """`before`: all until then."""
        self._before = (before.decoding_s, before.preparing_s, before.showing_s)
        self._counts = (before.decoded, before.classified, before.dropped)
        self._load, self._begin_s = Load(), time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._begin_s

    def counts(self, now: Parts) -> tuple[int, int, int]:
        """Return the frames that were decoded, classified and dropped since."""
        decoded, classified, dropped = self._counts
        return now.decoded - decoded, now.classified - classified, now.dropped - dropped

    def loads(self, now: Parts) -> Loads:
        """Return the loads since; `now`: all until now."""
        seconds = max(self.seconds, 1e-9)
        cpu_s, gpu_s = self._load.until_now()
        after = now.decoding_s, now.preparing_s, now.showing_s
        named = [max(0.0, b - a) for a, b in zip(self._before, after, strict=True)]
        decoding, preparing, showing = (each / seconds for each in named)
        rest = max(0.0, cpu_s - sum(named)) / seconds
        gpu = None if gpu_s is None else gpu_s / seconds
        return Loads(decoding, preparing, rest, showing, gpu)


def second_text(span: Span, now: Parts, latencies: Latencies) -> str:
    """Return what is said of the last second, on one line."""
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
