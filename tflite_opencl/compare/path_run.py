# SPDX-License-Identifier: Apache-2.0
"""One path while it is timed: its process, its times and the energy that it took."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from delegate import Options
from tflite_opencl.common.energy import Meter
from tflite_opencl.common.environment import device_asked
from tflite_opencl.common.timing import SETTLE_S
from tflite_opencl.compare.path_process import PathFailed, PathProcess
from tflite_opencl.compare.paths import RunPath
from tflite_opencl.compare.records import PathResult, Timing, timing_of


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for all paths and models."""

    count: int  # timed runs a path
    warmup_runs: int
    threads: int
    opencl: Options
    seconds: float  # the longest that one answer of a path may take
    labels: Sequence[str] = ()


class Running:
    """One path while it is timed."""

    def __init__(self, path: RunPath, outputs: str) -> None:
        self.path = path
        self.outputs = outputs  # the file that they are written to
        self.result = PathResult(path.text)
        self.process: PathProcess | None = None
        self.meter = Meter()
        self.metered = 0  # runs whose energy was measured, warm-up included
        self.runs_ms: list[float] = []
        self.wall_ms = self.cpu_ms = 0.0

    @contextlib.contextmanager
    def step(self) -> Any:
        """Turn a failure into the path's result; it is not timed any more."""
        try:
            yield
        except PathFailed as error:
            self.result = replace(self.result, failure=str(error))
            if self.process is not None:
                self.process.close()
            self.process = None

    def block(self, runs: int, warmup: int, settle_s: float = SETTLE_S) -> None:
        """Time so many runs, after a pause and some that do not count. Raises: PathFailed."""
        assert self.process is not None
        time.sleep(settle_s)
        with self.meter.measured():
            answer = self.process.time(runs, warmup)
        self.metered += runs + warmup
        self.runs_ms += answer["runs_ms"]
        self.wall_ms += answer["wall_ms"]
        self.cpu_ms += answer["cpu_ms"]

    def forget(self) -> None:
        """Begin anew: what was timed so far was for warming up."""
        self.meter, self.metered, self.runs_ms = Meter(), 0, []
        self.wall_ms = self.cpu_ms = 0.0

    def timing(self) -> Timing:
        """Return the times of all blocks, of which there is at least one."""
        return timing_of(self.runs_ms, self.cpu_ms / self.wall_ms if self.wall_ms else 0.0)

    def joules(self) -> float | None:
        """Return the energy of a run; None: the machine does not tell."""
        return self.meter.joules / self.metered if self.meter.source else None

    def finish(self) -> None:
        """Let it write its outputs. Raises: PathFailed."""
        assert self.process is not None
        self.result = replace(self.result, peak_bytes=self.process.end())


def opened(
    each: Running, model: str, inputs: str, settings: Settings, profiling: bool = False
) -> PathProcess:
    """Return the process of a path. Raises: PathFailed: it cannot be opened."""
    options = replace(settings.opencl, device=device_asked(each.path.device))
    return PathProcess(
        each.path,
        settings.seconds,
        model=model,
        inputs=inputs,  # a .npz file, as the outputs are
        outputs=each.outputs,
        threads=settings.threads,
        opencl=asdict(options),
        profiling=profiling,  # our delegate's launches stay apart, for `profile`
    )


def take_facts(each: Running) -> None:
    """Keep what the path told of itself, and time its first run. Raises: PathFailed."""
    assert each.process is not None
    each.result = replace(each.result, **each.process.facts)
    first = each.process.time(1, 0)
    each.result = replace(each.result, first_ms=first["runs_ms"][0])
