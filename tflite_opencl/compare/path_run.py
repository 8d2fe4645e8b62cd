# SPDX-License-Identifier: Apache-2.0
"""One path while it is timed: the process that path_child.py is, its times and its energy."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from delegate import Options
from delegate.sandbox.child import Child, Died, command_of
from tflite_opencl.common import interrupts
from tflite_opencl.common.energy import Meter
from tflite_opencl.common.environment import device_asked
from tflite_opencl.common.timing import SETTLE_S
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


class PathFailed(Exception):
    """The path gives no result; the text is one line."""


class Running:
    """One path while it is timed."""

    def __init__(self, path: RunPath, outputs: str) -> None:
        self.path = path
        self.outputs = outputs  # the file that they are written to
        self.result = PathResult(path.text)
        self.process: Child | None = None
        self._seconds = 0.0  # the longest that one answer may take
        self.meter = Meter()
        self.metered = 0  # runs whose energy was measured, warm-up included
        self.runs_ms: list[float] = []
        self.wall_ms = self.cpu_ms = 0.0

    @contextlib.contextmanager
    def opened(
        self, model: str, inputs: str, settings: Settings, profiling: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Open the path while inside; return what it tells: load_ms, device, nodes, taken, ...

        `inputs`: a .npz file, as `outputs`. `profiling`: our delegate's launches stay apart.

        Raises: PathFailed: it cannot be opened.
        """
        self._seconds = settings.seconds
        options = replace(settings.opencl, device=device_asked(self.path.device))
        # Ctrl-C does not reach the child.
        command = command_of("tflite_opencl.compare.path_child")
        with Child(command, check=interrupts.check) as self.process:
            yield self.ask(
                path=asdict(self.path),
                model=model,
                inputs=inputs,
                outputs=self.outputs,
                threads=settings.threads,
                opencl=asdict(options),
                profiling=profiling,
            )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return the answer to one of path_child's requests. Raises: PathFailed."""
        assert self.process is not None
        try:
            answer = self.process.ask(self._seconds, **request)
        except Died as died:
            ended = died.ended
            why = f"it {ended} (--timeout)" if ended.is_late else f"its process {ended}"
            raise PathFailed(why) from None
        if "failed" in answer:
            raise PathFailed(answer["failed"])
        return answer

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
        time.sleep(settle_s)
        with self.meter.measured():
            answer = self.ask(runs=runs, warmup=warmup)
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
        self.result = replace(self.result, **self.ask())

    def take_facts(self, facts: Mapping[str, Any]) -> None:
        """Keep what the path told of itself, and time its first run. Raises: PathFailed."""
        self.result = replace(self.result, **facts)
        first = self.ask(runs=1, warmup=0)
        self.result = replace(self.result, first_ms=first["runs_ms"][0])
