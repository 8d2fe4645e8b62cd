# SPDX-License-Identifier: Apache-2.0
"""A path in a child process, so that a driver that hangs or dies takes only the child along.

`python -m label_image.worker` is that child. The first request is a job to run once; or a job and a
batch to open a path for, to which each further request gives pictures. All is pickled.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import logging
import pickle
import sys
from collections.abc import Iterator
from typing import Any

from delegate import NoDeviceError
from delegate.inspect import read_model
from delegate.sandbox.channel import serving
from delegate.sandbox.child import END_SECONDS, Child, Died, command_of
from label_image import streams
from label_image.classify import PathRun, run_path
from label_image.open_path import open_path
from label_image.path import Array, OpenPath, Outputs
from tflite_opencl.common.errors import DelegateFailed, RunError, reason_of
from tflite_opencl.common.job import Job
from tflite_opencl.common.runtime import find_runtime

_Failure = NoDeviceError | DelegateFailed | RunError

stdout = logging.getLogger("tflite_opencl.stdout")


def run_in_child(job: Job, seconds: float, command: list[str] | None = None) -> PathRun:
    """Return what run_path gives in a child process; the child's own lines go to stderr.

    Raises:
        DelegateFailed: the run failed, or the child took too long, died or made no sense.
        NoDeviceError: there is no OpenCL device, or not the wanted one.
        RunError: TFLite cannot run the model, whatever runs it.
    """
    with _child(command) as child:
        ran: PathRun = _asked(child, seconds, job)
        child.close(END_SECONDS)
        return ran


@contextlib.contextmanager
def path_in_child(
    job: Job, batch: int | None, seconds: float, command: list[str] | None = None
) -> Iterator[OpenPath]:
    """Give what open_path gives in a child process; the start and each batch have the limit.

    Raises: as `run_in_child`.
    """
    with _child(command) as child:
        load_ms, at_once, taken, parts = _asked(child, seconds, (job, batch))
        ask = functools.partial(_asked, child, seconds)
        yield _PathInChild(ask, load_ms, at_once, taken, load_parts=parts)
        child.close(END_SECONDS)


class _PathInChild(OpenPath):
    """Its times are the child's own, without what crosses to it."""

    def run(self, pixels: Array) -> list[Outputs]:
        timed: Any = self._run(pixels)
        outputs, seconds, cpu_seconds = timed
        self.seconds += seconds
        self.cpu_seconds += cpu_seconds
        self.pictures += len(pixels)
        return [*outputs]


def _child(command: list[str] | None) -> Child:
    return Child(command or command_of("label_image.worker"), keeps_stderr=False)


def _asked(child: Child, seconds: float, request: object) -> Any:
    try:
        answer = child.ask(seconds, pickle.dumps(request, protocol=5))
    except Died as died:
        ended = died.ended
        if ended.is_late:
            why = f" was ended after {seconds:g} seconds (--device_timeout)"
        elif ended.signal:
            why = f"'s process died ({ended.signal})"
        else:
            why = f"'s process {ended} and without a result"
        raise DelegateFailed(f"the OpenCL run{why}") from None
    result = pickle.loads(answer["payload"])
    for text in answer["lines"]:
        stdout.info("%s", text)
    if isinstance(result, _Failure):
        raise result
    return result


def main() -> int:
    """Answer the requests, each with what came of it."""
    collected = io.StringIO()
    with serving() as parent, contextlib.ExitStack() as stack:
        requests = (pickle.loads(message["payload"]) for message in parent.messages())
        first = next(requests)
        job, *batch = first if isinstance(first, tuple) else (first,)
        stack.enter_context(streams.logging_to(collected, sys.stderr, job.level))
        path: OpenPath | None = None
        for request in itertools.chain([first], requests):
            try:
                if path is not None:
                    before_s, cpu_before_s = path.seconds, path.cpu_seconds
                    result: Any = path.run(request)
                    result = result, path.seconds - before_s, path.cpu_seconds - cpu_before_s
                elif not batch:
                    result = run_path(job, find_runtime(), read_model(job.model))
                else:
                    opened = open_path(job, find_runtime(), read_model(job.model), *batch)
                    path = stack.enter_context(opened)
                    result = path.load_ms, path.batch, path.delegation, dict(path.load_parts)
            except (NoDeviceError, DelegateFailed, RunError) as error:
                if job.verbose and not isinstance(error, NoDeviceError):
                    logging.getLogger("label_image").debug("", exc_info=True)
                # Its cause need not be anything that can be pickled.
                result = type(error)(reason_of(error))
            parent.send(pickle.dumps(result, protocol=5), lines=collected.getvalue().splitlines())
            collected.seek(0)
            collected.truncate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
