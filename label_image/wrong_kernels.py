# SPDX-License-Identifier: Apache-2.0
"""Finds the kernels behind a failure of OpenCL, and has them written as C programs (--fault)."""

from __future__ import annotations

from collections.abc import Sequence

from delegate.guard.children.child import ask_once
from label_image.prepare import PreparedRun
from label_image.settings import Settings
from tflite_opencl.cli.flag_values import precision_of
from tflite_opencl.console.errors import one_line

_CHILD = "tflite_opencl.verify.child"
_SECONDS = 3600.0
_RANDOM = "3"  # inputs, where no single picture is known to be wrong


def write_programs(prepared: PreparedRun, folder: str) -> Sequence[str]:
    """Verify the model node by node in a child process; return lines for the log."""
    answers, ended = ask_once(_CHILD, _SECONDS, arguments=arguments_of(prepared, folder))
    if not answers:
        return [f"{folder} is not written: the process that verifies {ended}"]
    lines = [line for line in str(answers[0]).splitlines() if line.startswith(folder)]
    return lines or [f"{folder} is not written: {one_line(answers[0])}"]


def arguments_of(prepared: PreparedRun, folder: str) -> list[str]:
    """Return the arguments of `tflite-opencl verify` for the same run."""
    settings: Settings = prepared.settings
    tune = "quick" if settings.tune == "auto" else settings.tune
    found = ["--fault", folder, "--tune", tune]
    given = {
        "--tflite_model": settings.tflite_model,
        "--signature": settings.signature,
        "--device": settings.device,
        "--device_profile": settings.device_profile,
        "--exclude_ops": ",".join(settings.exclude_ops),
        "--input_size": settings.input_size and "x".join(map(str, settings.input_size)),
        "--precision": precision_of(settings.precision, settings.allow_fp16),
    }
    is_picture = prepared.feeds.picture is not None and not settings.input
    if is_picture and not settings.is_for_several:
        given["--image"] = settings.image
    else:
        given["--random"] = _RANDOM
    for name, value in given.items():
        found += [name, value] if value else []
    return found
