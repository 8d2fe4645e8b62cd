# SPDX-License-Identifier: Apache-2.0
"""A path of a model in a child process, which answers requests for timed runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from delegate.sandbox.child import Child, Died, command_of
from tflite_opencl.common import interrupts
from tflite_opencl.compare.paths import RunPath


class PathFailed(Exception):
    """The path gives no result; the text is one line."""


class PathProcess(Child):
    """The child of one path, as a context.

    Attributes:
        facts: what the path told when it was open: load_ms, device, nodes, taken, ...
    """

    def __init__(self, path: RunPath, seconds: float, **request: Any) -> None:
        """Open the path.

        Args:
            path: which one.
            seconds: the longest that one answer may take.
            request: what else path_child's first request has.

        Raises: PathFailed: it cannot be opened.
        """
        # Ctrl-C does not reach the child.
        super().__init__(command_of(f"{__package__}.path_child"), check=interrupts.check)
        self._seconds = seconds
        try:
            self.facts = self._answer(path=dataclasses.asdict(path), **request)
        except BaseException:
            self.close()
            raise

    def time(self, runs: int, warmup: int) -> Mapping[str, Any]:
        """Return runs_ms, wall_ms and cpu_ms of so many runs, after some that do not count.

        Raises: PathFailed: a run fails, or ends the child.
        """
        return self._answer(runs=runs, warmup=warmup)

    def profile(self) -> Sequence[Mapping[str, Any]]:
        """Return each node on the device with its time, as tflite_opencl.common.profile.NodeTime.

        Raises: PathFailed: a run fails. It was not opened for profiling.
        """
        rows: list[Mapping[str, Any]] = self._answer(profile=True)["rows"]
        return rows

    def end(self) -> int:
        """Let it write the outputs; return the most memory that the process held, in bytes.

        Raises: PathFailed: it cannot.
        """
        return int(self._answer()["peak_bytes"])

    def _answer(self, **request: Any) -> dict[str, Any]:
        try:
            answer = self.ask(self._seconds, **request)
        except Died as died:
            ended = died.ended
            why = f"it {ended} (--timeout)" if ended.is_late else f"its process {ended}"
            raise PathFailed(why) from None
        if "failed" in answer:
            raise PathFailed(answer["failed"])
        return answer
