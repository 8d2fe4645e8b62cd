# SPDX-License-Identifier: Apache-2.0
"""Child processes of the reference interpreter: started ahead, reused, and ended at exit."""

from __future__ import annotations

import atexit
import contextlib
import math
import pickle
from typing import Any

from delegate.guard.children.child import Child, command_of
from tflite_opencl.console import interrupts
from tflite_opencl.interpreters.runtime import ENVIRONMENT_VARIABLE, Runtime


class JudgeProcess(Child):
    """A process of judge_child.

    Attributes:
        runtime: the name of its TFLite. trying: the running node; None: none, or a whole graph.
    """

    def __init__(self, runtime: Runtime) -> None:
        """Start it. Raises: OSError: it cannot start."""
        self.runtime = runtime.name
        self.trying: int | None = None
        command = command_of("tflite_opencl.oracle.judge_child")
        own = {ENVIRONMENT_VARIABLE: runtime.name, "OPENBLAS_NUM_THREADS": "1"}
        super().__init__(command, own, has_own_session=False, check=interrupts.check)

    def asked(self, *request: object) -> Any:
        """Return the reply to a request. Raises: Died; RuntimeError, ValueError: TFLite's."""
        self.trying = None
        self.send(pickle.dumps(request, protocol=5))
        try:
            while "answered" not in (event := self.event(math.inf)):
                self.trying = event.get("trying")
        except BaseException:  # nobody will read the reply
            self.close()
            raise
        answer = pickle.loads(event["payload"])
        if isinstance(answer, Exception):
            raise answer
        return answer


_idle: list[JudgeProcess] = []


def begin(runtime: Runtime) -> None:
    """Start the process for the next reference run, so that its imports overlap other work."""
    if not _idle and not runtime.why_not:
        with contextlib.suppress(OSError):  # the next use reports it
            _idle.append(JudgeProcess(runtime))


def taken(runtime: Runtime) -> JudgeProcess:
    """Return an idle process. Raises: OSError: none can be started."""
    while _idle:
        process = _idle.pop()
        if process.runtime == runtime.name and process.wait(0) is None:
            return process
        process.close()
    return JudgeProcess(runtime)


def give_back(process: JudgeProcess) -> None:
    """Keep a live process for reuse, unless one is already kept."""
    if _idle or process.wait(0) is not None:
        process.close()
    else:
        _idle.append(process)


@atexit.register
def _end() -> None:
    while _idle:
        _idle.pop().close()
