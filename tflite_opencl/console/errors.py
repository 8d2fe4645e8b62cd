# SPDX-License-Identifier: Apache-2.0
"""Errors that a command reports on one line, without a traceback; and its output files."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

from tflite_opencl.console.exit_codes import BUG, ERROR, NO_DEVICE, USAGE
from tflite_opencl.console.files import file_obstacle, folder_obstacle, write_file

_FULL = errno.ENOSPC, errno.EDQUOT


class OneLineError(Exception):
    """An error that the user can act on, described on one line.

    Attributes:
        code: the exit code of a command that it ends.
    """

    code = ERROR


class UsageError(OneLineError):
    """The command line is invalid, or names something that does not exist."""

    code = USAGE


class RunError(OneLineError):
    """The run cannot continue; the text is one line, logged at that level."""

    def __init__(self, text: str, level: int = logging.ERROR) -> None:
        super().__init__(text)
        self.level = level


class DelegateFailed(OneLineError):
    """The delegate failed and the CPU can take over; the text is one line that says why."""


class CommandError(OneLineError):
    """The request cannot be fulfilled; with NOT_SO the text is the result, and goes to stdout."""

    def __init__(self, text: str, code: int = ERROR) -> None:
        super().__init__(text)
        self.code = code


def one_line(error: BaseException) -> str:
    """Return the error's text as one line."""
    return " ".join(str(error).split()) or type(error).__name__


def reason_of(error: BaseException) -> str:
    """Return the error and its cause as one line."""
    text = one_line(error)
    if isinstance(error, RunError) and error.__cause__ is not None:
        text = f"{text.rstrip('.!')}: {one_line(error.__cause__)}"
    return text


def code_of(error: Exception) -> int:
    """Return the exit code of a command that this error ends."""
    # Here, because start.py imports this file before it handles Ctrl-C, and delegate is slow.
    from delegate import DelegateError, NoDeviceError, ProfileError, SignatureError

    if isinstance(error, OneLineError):
        return error.code
    codes: dict[type[Exception], int] = {NoDeviceError: NO_DEVICE, ProfileError: USAGE}
    codes |= {SignatureError: USAGE, DelegateError: ERROR}
    if full_disk(error):
        return ERROR
    return next((code for kind, code in codes.items() if isinstance(error, kind)), BUG)


def full_disk(error: BaseException) -> str:
    """Return the message for a full disk, including the temporary folder's; "": another error."""
    if not (isinstance(error, OSError) and error.errno in _FULL):
        return ""
    return f"cannot write {error.filename or 'a temporary file'}: {error.strerror}"


def require_writable(path: str, is_folder: bool = False) -> None:
    """Check an output file or folder before the work starts.

    Raises: CommandError: it cannot be written, as far as can be checked.
    """
    if obstacle := (folder_obstacle if is_folder else file_obstacle)(path):
        raise CommandError(f"cannot write {path}: {obstacle}")


def cannot_read(path: str | os.PathLike[str], error: OSError) -> CommandError:
    """Return the error of a file that cannot be read."""
    return CommandError(f"cannot read {path}: {error.strerror or error}")


def make_folder(path: Path) -> None:
    """Create a folder and its parents. Raises: CommandError: it cannot be created."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or error}") from error


def write(path: str, content: str | bytes) -> None:
    """Write a file atomically: a reader sees the old content or the new.

    Raises: CommandError: it cannot be written.
    """
    try:
        write_file(path, content)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or error}") from error
