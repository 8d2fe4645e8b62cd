# SPDX-License-Identifier: Apache-2.0
"""One path while it is timed: the process that path_child.py is, its times and its energy."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from delegate import Options
from delegate.sandbox.child import Child, Died, command_of
from tflite_opencl.common import interrupts
from tflite_opencl.common.flags import device_asked
from tflite_opencl.common.machine import Meter
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

    def __init__(
        self, path: RunPath, settings: Settings, model: str, inputs: str, outputs: str
    ) -> None:
        """Keep what to run; `inputs`, `outputs`: .npz files, to be read and to be written."""
        self.path, self.outputs = path, outputs
        self.result = PathResult(path.text)
        self.process: Child | None = None
        self._settings = settings
        self._given = {"model": model, "inputs": inputs, "outputs": outputs}
        self.forget()

    def forget(self) -> None:
        """Begin anew: what was timed so far was for warming up."""
        self.meter = Meter()
        self.metered = 0  # runs whose energy was measured, warm-up included
        self.runs_ms: list[float] = []
        self.wall_ms = self.cpu_ms = 0.0
        self.gpu_ms: float | None = None  # None: no driver tells it

    @contextlib.contextmanager
    def opened(self, profiling: bool = False) -> Iterator[None]:
        """Open the path while inside, and keep what it tells of itself.

        `profiling`: our delegate's launches stay apart. Raises: PathFailed: it cannot be opened.
        """
        opencl = replace(self._settings.opencl, device=device_asked(self.path.device))
        # Ctrl-C does not reach the child.
        command = command_of("tflite_opencl.compare.path_child")
        with Child(command, check=interrupts.check) as self.process:
            facts = self.ask(
                path=asdict(self.path),
                threads=self._settings.threads,
                opencl=asdict(opencl),
                profiling=profiling,
                **self._given,
            )
            if not profiling:
                self.result = replace(self.result, **facts)
            yield

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return the answer to one of path_child's requests. Raises: PathFailed."""
        assert self.process is not None
        try:
            answer = self.process.ask(self._settings.seconds, **request)
        except Died as died:
            ended = died.ended
            why = f"it {ended} (--timeout)" if ended.is_late else f"its process {ended}"
            raise PathFailed(why) from None
        if "failed" in answer:
            raise PathFailed(answer["failed"])
        return answer

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Turn a failure into the path's result; it is not timed any more."""
        try:
            yield
        except PathFailed as error:
            self.result = replace(self.result, failure=str(error))
            if self.process is not None:
                self.process.close()
            self.process = None

    def first(self) -> None:
        """Time the first run. Raises: PathFailed."""
        self.result = replace(self.result, first_ms=self.ask(runs=1, warmup=0)["runs_ms"][0])

    def block(self, runs: int, warmup: int, settle_s: float = SETTLE_S) -> None:
        """Time so many runs, after a pause and some that do not count. Raises: PathFailed."""
        time.sleep(settle_s)
        with self.meter.measured():
            answer = self.ask(runs=runs, warmup=warmup)
        self.metered += runs + warmup
        self.runs_ms += answer["runs_ms"]
        self.wall_ms += answer["wall_ms"]
        self.cpu_ms += answer["cpu_ms"]
        if (gpu_ms := answer["gpu_ms"]) is not None:
            self.gpu_ms = (self.gpu_ms or 0.0) + gpu_ms

    def timing(self) -> Timing:
        """Return the times of all blocks, of which there is at least one."""
        wall_ms = self.wall_ms or 1.0  # 0: the clock is coarser than the runs
        gpu_load = self.gpu_ms and self.gpu_ms / wall_ms
        return timing_of(self.runs_ms, self.cpu_ms / wall_ms, gpu_load)

    def finish(self) -> None:
        """Let it write its outputs, and keep all figures. Raises: PathFailed."""
        told = self.ask()
        if self.runs_ms:
            # The energy of a run, where the machine tells it.
            told["joules"] = self.meter.joules / self.metered if self.meter.source else None
            told["timing"] = self.timing()
        self.result = replace(self.result, **told)
