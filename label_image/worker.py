# SPDX-License-Identifier: Apache-2.0
"""A path's run in a child process, so that a driver that hangs or dies takes only the child along.

`python -m label_image.worker` is that child. The job, and what came of it, are pickled.
"""

from __future__ import annotations

import io
import logging
import pickle
import sys

from delegate import NoDeviceError
from delegate.inspect import read_model
from delegate.sandbox.channel import serving
from delegate.sandbox.child import Child, Died, command_of
from label_image import streams
from label_image.classify import PathRun, run_path
from tflite_opencl.common.errors import DelegateFailed, RunError, reason_of
from tflite_opencl.common.job import Job
from tflite_opencl.common.runtime import find_runtime

_Failure = NoDeviceError | DelegateFailed | RunError

stdout = logging.getLogger("label_image.stdout")


def run_in_child(job: Job, timeout_seconds: float, command: list[str] | None = None) -> PathRun:
    """Return what run_path gives in a child process; the child's own lines go to stderr.

    Raises:
        DelegateFailed: the run failed, or the child took too long, died or made no sense.
        NoDeviceError: there is no OpenCL device, or not the wanted one.
        RunError: TFLite cannot run the model, whatever runs it.
    """
    request = pickle.dumps(job, protocol=5)
    try:
        with Child(command or command_of("label_image.worker"), keeps_stderr=False) as child:
            answer = child.ask(timeout_seconds, request)
    except Died as died:
        ended = died.ended
        if ended.is_late:
            why = f" was ended after {timeout_seconds:g} seconds (--device_timeout)"
        elif ended.signal:
            why = f"'s process died ({ended.signal})"
        else:
            why = f"'s process {ended} and without a result"
        raise DelegateFailed(f"the OpenCL run{why}") from None
    result = pickle.loads(answer["payload"])
    for text in answer["lines"]:
        stdout.info("%s", text)
    if isinstance(result, PathRun):
        return result
    raise result


def main() -> int:
    """Run the job of the request, and tell what came of it."""
    collected = io.StringIO()
    with serving() as parent:
        job = pickle.loads(next(parent.messages())["payload"])
        with streams.logging_to(collected, sys.stderr, job.verbose):
            result = _result(job)
        parent.send(pickle.dumps(result, protocol=5), lines=collected.getvalue().splitlines())
    return 0


def _result(job: Job) -> PathRun | _Failure:
    try:
        return run_path(job, find_runtime(), read_model(job.model))
    except (NoDeviceError, DelegateFailed, RunError) as error:
        if job.verbose and not isinstance(error, NoDeviceError):
            logging.getLogger("label_image").debug("", exc_info=True)
        return type(error)(reason_of(error))  # its cause need not be anything that can be pickled


if __name__ == "__main__":
    sys.exit(main())
