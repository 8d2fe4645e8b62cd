# SPDX-License-Identifier: Apache-2.0
"""A path of a model in a child process, which answers requests for timed runs."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from delegate import Options
from delegate.sandbox.child import Child, Ended, Lines, command_of
from tflite_opencl.common import interrupts
from tflite_opencl.common.environment import device_asked
from tflite_opencl.compare.paths import RunPath

_POLL_S = 0.5  # Ctrl-C does not reach the child, and is heard between two looks


class PathFailed(Exception):
    """The path gives no result; the text is one line."""


class PathProcess:
    """The child of one path, as a context.

    Attributes:
        facts: what the path told when it was open: load_ms, device, nodes, taken, ...
    """

    def __init__(
        self,
        path: RunPath,
        model: str,
        inputs: str,
        outputs: str,
        threads: int,
        opencl: Options,
        seconds: float,
        profiling: bool = False,
    ) -> None:
        """Open the path.

        Args:
            path: which one. model: its file. inputs, outputs: .npz files, read and written.
            threads: of the CPU. opencl: what our delegate is told, but the device.
            seconds: the longest that one answer may take.
            profiling: our delegate's launches stay apart, for `profile`.

        Raises: PathFailed: it cannot be opened.
        """
        self._seconds = seconds
        with contextlib.ExitStack() as stack:
            self._stderr = stack.enter_context(tempfile.TemporaryFile())
            self._child = Child(command_of("tflite_opencl.compare.path_child"), self._stderr)
            self._stack = stack.pop_all()
        self._lines = Lines(self._child.answers.fileno())
        options = dataclasses.replace(opencl, device=device_asked(path.device))
        request = {
            "path": dataclasses.asdict(path), "model": model, "inputs": inputs,
            "outputs": outputs, "threads": threads, "opencl": dataclasses.asdict(options),
            "profiling": profiling,
        }  # fmt: skip
        try:
            self.facts = self._ask(request)
        except BaseException:
            self.close()
            raise

    def time(self, runs: int, warmup: int) -> Mapping[str, Any]:
        """Return runs_ms, wall_ms and cpu_ms of so many runs, after some that do not count.

        Raises: PathFailed: a run fails, or ends the child.
        """
        return self._ask({"runs": runs, "warmup": warmup})

    def profile(self) -> Sequence[Mapping[str, Any]]:
        """Return each node on the device with its time, as tflite_opencl.common.profile.NodeTime.

        Raises: PathFailed: a run fails. It was not opened for profiling.
        """
        rows: list[Mapping[str, Any]] = self._ask({"profile": True})["rows"]
        return rows

    def end(self) -> int:
        """Let it write the outputs; return the most memory that the process held, in bytes.

        Raises: PathFailed: it cannot.
        """
        return int(self._ask({})["peak_bytes"])

    def close(self) -> None:
        """End the child."""
        self._child.close()
        self._stack.close()

    def __enter__(self) -> PathProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._child.send(json.dumps(request).encode() + b"\n")
        waited_s = 0.0
        while (line := self._lines.next(_POLL_S)) is None:
            interrupts.check()
            waited_s += _POLL_S
            if waited_s >= self._seconds:
                raise PathFailed(f"it gave no answer within {self._seconds:g} s (--timeout)")
        if not line:
            raise PathFailed(self._end())
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise PathFailed(answer["failed"])
        return answer

    def _end(self) -> str:
        self._stderr.seek(0)
        ended = Ended(self._child.wait(), self._stderr.read().decode(errors="replace"))
        did = f"died with {ended.signal}" if ended.signal else "ended"
        return f"its process {did}{ended.told}"
