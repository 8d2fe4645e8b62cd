# SPDX-License-Identifier: Apache-2.0
"""A path's run in a child process, so that a driver that hangs or dies takes only the child along.

`python -m label_image.worker` is that child: a job as JSON on stdin, what came of it on stdout.
"""

from __future__ import annotations

import base64
import io
import json
import logging
import sys
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import NoDeviceError, Options, Verdict, read_model
from delegate.child import Child, command_of, signal_name, stdout_kept_apart
from label_image import streams
from label_image.classify import PathRun, run_path
from label_image.errors import DelegateFailed, RunError, reason_of
from label_image.job import Delegation, Job
from tflite_opencl.common.runtime import find_runtime
from tflite_opencl.common.timing import Times

stdout = logging.getLogger("label_image.stdout")


def run_in_child(job: Job, timeout_seconds: float, command: list[str] | None = None) -> PathRun:
    """Return what run_path gives in a child process; the child's own lines go to stderr.

    Raises:
        DelegateFailed: the run failed, or the child took too long, died or made no sense.
        NoDeviceError: there is no OpenCL device, or not the wanted one.
        RunError: TFLite cannot run the model, whatever runs it.
    """
    request = json.dumps(_packed(asdict(job))).encode()
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
        reply = json.loads(answer)
        for text in reply["stdout"]:
            stdout.info("%s", text)
        kind, content = reply["kind"], reply["content"]
        if kind == "run":
            return _run_from(content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DelegateFailed(
            f"the OpenCL run's process ended with code {code} and without a result"
        ) from error
    errors = {"no_device": NoDeviceError, "cannot_run": RunError}
    raise errors.get(kind, DelegateFailed)(content)


def main() -> int:
    """Run the job on stdin, and answer on stdout with what came of it."""
    collected = io.StringIO()
    with stdout_kept_apart() as answer:
        job = _job_from(json.loads(sys.stdin.read()))
        with streams.logging_to(collected, sys.stderr, job.verbose):
            kind, content = _outcome(job)
        texts = collected.getvalue().splitlines()
        json.dump({"stdout": texts, "kind": kind, "content": content}, answer)
    return 0


def _outcome(job: Job) -> tuple[str, Any]:
    try:
        run = run_path(job, find_runtime(), read_model(job.model))
    except NoDeviceError as error:
        return "no_device", str(error)
    except (DelegateFailed, RunError) as error:
        if job.verbose:
            logging.getLogger("label_image").debug("", exc_info=True)
        return "cannot_run" if isinstance(error, RunError) else "failed", reason_of(error)
    return "run", _packed(asdict(run))


def _packed(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"dtype": value.dtype.str, "shape": value.shape, "base64": data}
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {key: _packed(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_packed(item) for item in value]
    return value


def _array(packed: dict[str, Any]) -> NDArray[Any]:
    data = base64.b64decode(packed["base64"])
    array: NDArray[Any] = np.frombuffer(data, packed["dtype"]).reshape(packed["shape"])
    return array


def _job_from(packed: dict[str, Any]) -> Job:
    model = packed["model"]
    if not isinstance(model, str):
        model = base64.b64decode(model["base64"])
    others = tuple((number, _array(array)) for number, array in packed["other_inputs"])
    own = {"model": model, "input": _array(packed["input"]), "other_inputs": others}
    if packed["opencl"] is not None:
        own["opencl"] = Options(**packed["opencl"])
    return Job(**packed | own)


def _run_from(packed: dict[str, Any]) -> PathRun:
    taken = packed["delegation"]
    delegation = Delegation(
        **taken
        | {
            "verdicts": tuple(Verdict(*each) for each in taken["verdicts"]),
            "partitions": tuple(tuple(nodes) for nodes in taken["partitions"]),
        }
    )
    return PathRun(
        times=Times(**packed["times"]),
        load_ms=packed["load_ms"],
        outputs=tuple(map(_array, packed["outputs"])),
        delegation=delegation,
        load_parts=packed["load_parts"],
        longer=None if packed["longer"] is None else Times(**packed["longer"]),
    )


if __name__ == "__main__":
    sys.exit(main())
