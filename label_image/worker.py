# SPDX-License-Identifier: Apache-2.0
"""A path in a child process, so that a crash in TFLite's kernels ends only the child.

`python -m label_image.worker` is the child. Its first request is a job, and the reply its result;
each further request holds pictures, and the reply is the batch's result. All are pickled.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import pickle
import sys
from collections.abc import Iterator
from typing import Any

from delegate import NoDeviceError
from delegate.guard.children.channel import serving
from delegate.guard.children.child import END_SECONDS, Child, ChildDied, command_of
from delegate.inspect import read_model
from label_image import console
from label_image.open_path import open_path
from label_image.path import OpenPath
from label_image.run_result import RunResult
from label_image.timed_run import run
from tflite_opencl.console.errors import DelegateFailed, RunError, reason_of
from tflite_opencl.harness.job import Job
from tflite_opencl.interpreters.runtime import runtime_if_any

_Failure = NoDeviceError | DelegateFailed | RunError


def run_in_child(job: Job) -> RunResult:
    """Return what `run` returns, from a child process that logs to stderr.

    Raises: RunError: TFLite cannot run the model, or the child died or misbehaved. For a job with
    OpenCL: NoDeviceError, DelegateFailed.
    """
    with _child_of(job) as (_, result):
        return result


@contextlib.contextmanager
def path_in_child(job: Job) -> Iterator[OpenPath]:
    """Yield what `open_path` yields, in a child process; raises as `run_in_child`.

    Its times are the child's own, without the transfer.
    """
    with _child_of(job) as (child, facts):
        yield OpenPath(facts, functools.partial(_response, child))


@contextlib.contextmanager
def _child_of(job: Job) -> Iterator[tuple[Child, RunResult]]:
    """Yield a child, and the result of its first request."""
    with Child(command_of("label_image.worker"), keeps_stderr=False) as child:
        yield child, _response(child, job)
        child.close(END_SECONDS)


def _response(child: Child, request: object) -> Any:
    try:
        answer = child.ask(math.inf, pickle.dumps(request, protocol=5))
    except ChildDied as died:
        raise RunError(f"the process of the CPU's kernels {died.exit}") from None
    result = pickle.loads(answer["payload"])
    if isinstance(result, _Failure):
        raise result
    return result


def main() -> int:
    """Reply to each request with its result."""
    with serving() as parent, contextlib.ExitStack() as stack:
        path: OpenPath | None = None
        job: Job | None = None
        for message in parent.messages():
            request = pickle.loads(message["payload"])
            try:
                if job is None:
                    job = request
                    stack.enter_context(console.logging_to(sys.stderr, sys.stderr, job.level))
                    graph, runtime = job.on(read_model(job.model, job.signature)), runtime_if_any()
                    if job.is_timed:
                        result: Any = run(job, runtime, graph)
                    else:
                        path = stack.enter_context(open_path(job, runtime, graph))
                        result = path.facts
                else:
                    assert path is not None
                    result = path.run(request)
            except (NoDeviceError, DelegateFailed, RunError) as error:
                if job and job.verbose and not isinstance(error, NoDeviceError):
                    logging.getLogger("label_image").debug("", exc_info=True)
                # The cause may not be picklable.
                result = type(error)(reason_of(error))
            parent.send(pickle.dumps(result, protocol=5))
    return 0


if __name__ == "__main__":
    sys.exit(main())
