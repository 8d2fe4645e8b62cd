# SPDX-License-Identifier: Apache-2.0
"""A path's run in a child process, so that a driver that hangs or dies takes only the child along.

`python -m label_image.worker` is that child: a job on stdin, what came of it on stdout, pickled.
"""

from __future__ import annotations

import io
import logging
import pickle
import sys

from delegate import NoDeviceError
from delegate.inspect import read_model
from delegate.sandbox.child import Child, command_of, signal_name, stdout_kept_apart
from label_image import streams
from label_image.classify import PathRun, run_path
from label_image.errors import DelegateFailed, reason_of
from label_image.job import Job
from tflite_opencl.common.errors import RunError
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
    child = Child(command or command_of("label_image.worker"))
    try:
        answer, _, is_in_time = child.communicate(request, timeout_seconds)
    finally:
        code = child.close()
    if not is_in_time:
        raise DelegateFailed(
            f"the OpenCL run was ended after {timeout_seconds:g} seconds (--device_timeout)"
        )
    if code is not None and (name := signal_name(code)):
        raise DelegateFailed(f"the OpenCL run's process died ({name})")
    try:
        lines, result = pickle.loads(answer)
        if not isinstance(result, PathRun | _Failure):
            raise TypeError(f"{type(result).__name__} is no result")
        for text in lines:
            stdout.info("%s", text)
    except Exception as error:  # bytes that are no pickle raise many kinds
        raise DelegateFailed(
            f"the OpenCL run's process ended with code {code} and without a result"
        ) from error
    if isinstance(result, PathRun):
        return result
    raise result


def main() -> int:
    """Run the job on stdin, and answer on stdout with what came of it."""
    collected = io.StringIO()
    with stdout_kept_apart() as answer:
        job = pickle.loads(sys.stdin.buffer.read())
        with streams.logging_to(collected, sys.stderr, job.verbose):
            result = _result(job)
        answer.buffer.write(pickle.dumps((collected.getvalue().splitlines(), result), protocol=5))
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
