# SPDX-License-Identifier: Apache-2.0
"""What ends a run, and its lines on stderr."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Iterator

from delegate import DelegateError, NoDeviceError
from tflite_opencl.common.errors import (
    DelegateFailed,
    OneLineError,
    RunError,
    code_of,
    reason_of,
)

log = logging.getLogger("label_image")


def log_error(error: Exception, verbose: bool) -> int:
    """Log the lines of an error and return its exit code.

    The last line has a traceback where `verbose` asks for it.
    """
    *lines, (level, last) = _lines(error)
    for each_level, line in lines:
        log.log(each_level, "%s", line)
    log.log(level, "%s", last, exc_info=error if verbose else None)
    return code_of(error)


def gave_up(error: Exception, verbose: bool) -> str:
    """Log why OpenCL failed and that the CPU goes on; return the reason as one line."""
    log_error(error, verbose)
    log.warning("the CPU runs the model instead")
    # The memory that the failed run holds must not slow down the next one.
    traceback.clear_frames(error.__traceback__)
    return reason_of(error)


def _lines(error: Exception) -> list[tuple[int, str]]:
    """Return each line of an error with its log level."""
    if isinstance(error, RunError):
        lines = [(error.level, str(error))]
        if isinstance(error.__cause__, (RuntimeError, ValueError)):
            lines.insert(0, (logging.ERROR, reason_of(error.__cause__)))
        return lines
    if isinstance(error, (OneLineError, DelegateError)):
        return [(logging.ERROR, str(error))]
    name = type(error).__name__
    return [(logging.ERROR, f"{name}: {error} (not expected: --verbose 1 shows where)")]


@contextlib.contextmanager
def delegate_failures() -> Iterator[None]:
    """Turn an error of the OpenCL delegate into DelegateFailed, a missing device excepted."""
    try:
        yield
    except NoDeviceError:
        raise
    except DelegateError as error:
        raise DelegateFailed(str(error)) from error


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn an error of writing this file or folder into a RunError."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"cannot write {path}: {reason}") from error
