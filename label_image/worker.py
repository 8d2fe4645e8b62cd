# SPDX-License-Identifier: Apache-2.0
"""A path in a child process, so that a crash in TFLite's kernels ends only the child.

`python -m label_image.worker` is the child. Its first request holds the arguments of `open_path`,
and the reply is the path; each further request holds pictures for it. All are pickled.
"""

from __future__ import annotations

import contextlib
import dataclasses
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
from label_image.path import Array, Outputs, Path
from tflite_opencl.console.errors import DelegateFailed, RunError, reason_of
from tflite_opencl.harness.job import Job
from tflite_opencl.interpreters.runtime import runtime_if_any

_Failure = NoDeviceError | DelegateFailed | RunError


@contextlib.contextmanager
def path_in_child(job: Job) -> Iterator[Path]:
    """Yield what open_path yields, from a child process that logs to stderr.

    Raises: RunError: TFLite cannot run the model, or the child died or misbehaved. For a job with
    OpenCL: NoDeviceError, DelegateFailed.
    """
    with Child(command_of("label_image.worker"), keeps_stderr=False) as child:
        ask = functools.partial(_asked, child)
        path: Path = ask(job)
        yield path if job.is_timed else _PathInChild(**vars(path) | {"call": ask})
        child.close(END_SECONDS)


class _PathInChild(Path):
    """Its times are the child's own, without the transfer."""

    def run(self, pixels: Array) -> list[Outputs]:
        assert self.call is not None
        outputs, seconds, cpu_seconds = self.call(pixels)
        self.seconds += seconds
        self.cpu_seconds += cpu_seconds
        self.pictures += len(pixels)
        return [*outputs]


def _asked(child: Child, request: object) -> Any:
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
        path: Path | None = None
        for message in parent.messages():
            request = pickle.loads(message["payload"])
            if path is None:
                job: Job = request
                stack.enter_context(console.logging_to(sys.stderr, sys.stderr, job.level))
            try:
                if path is None:
                    graph = job.on(read_model(job.model, job.signature))
                    opened = open_path(job, runtime_if_any(), graph)
                    path = stack.enter_context(opened)
                    result: Any = dataclasses.replace(path, call=None, empty_batch=None)
                else:
                    path.seconds = path.cpu_seconds = 0.0
                    result = path.run(request), path.seconds, path.cpu_seconds
            except (NoDeviceError, DelegateFailed, RunError) as error:
                if job.verbose and not isinstance(error, NoDeviceError):
                    logging.getLogger("label_image").debug("", exc_info=True)
                # The cause may not be picklable.
                result = type(error)(reason_of(error))
            parent.send(pickle.dumps(result, protocol=5))
    return 0


if __name__ == "__main__":
    sys.exit(main())
