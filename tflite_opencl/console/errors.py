# SPDX-License-Identifier: Apache-2.0
"""Errors that a command shows as one line, without a traceback; and files that it writes."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

from tflite_opencl.console.exit_codes import BUG, ERROR, NO_DEVICE, USAGE
from tflite_opencl.console.files import file_obstacle, write_file

_FULL = errno.ENOSPC, errno.EDQUOT


class OneLineError(Exception):
    """Something the user can act on; the text is one line that says what.

    Attributes:
        code: the exit code of a command that it ends.
    """

    code = ERROR


class UsageError(OneLineError):
    """The command line is wrong, or names what does not exist."""

    code = USAGE


class RunError(OneLineError):
    """The run cannot go on; the text is a line, at that log level."""

    def __init__(self, text: str, level: int = logging.ERROR) -> None:
        super().__init__(text)
        self.level = level


class DelegateFailed(OneLineError):
    """The delegate's path failed and the CPU can take over; the text is one line that says why."""


class CommandError(OneLineError):
    """What was asked for cannot be done; with NOT_SO the text is the answer, and goes to stdout."""

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
    # Here, because start.py needs this file before Ctrl-C is heard, and the delegate takes long.
    from delegate import DelegateError, NoDeviceError, ProfileError, SignatureError

    if isinstance(error, OneLineError):
        return error.code
    codes: dict[type[Exception], int] = {NoDeviceError: NO_DEVICE, ProfileError: USAGE}
    codes |= {SignatureError: USAGE, DelegateError: ERROR}
    if full_disk(error):
        return ERROR
    return next((code for kind, code in codes.items() if isinstance(error, kind)), BUG)


def full_disk(error: BaseException) -> str:
    """Return what is said of a disk that is full, of a temporary file, too; "": it is not that."""
    if not (isinstance(error, OSError) and error.errno in _FULL):
        return ""
    return f"cannot write {error.filename or 'a temporary file'}: {error.strerror}"


def require_writable(path: str | None) -> None:
    """Check a file before the work whose result it is to hold; None: no file is asked for.

    Raises: CommandError: it cannot be written, as far as that can be told before.
    """
    if path is not None and (obstacle := file_obstacle(path)):
        raise CommandError(f"cannot write {path}: {obstacle}")


def cannot_read(path: str | os.PathLike[str], error: OSError) -> CommandError:
    """Return the error of a file that cannot be read."""
    return CommandError(f"cannot read {path}: {error.strerror or error}")


def make_folder(path: Path) -> None:
    """Make a folder, and those that it is in. Raises: CommandError: it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or error}") from error


def write(path: str, content: str | bytes) -> None:
    """Write a file, so that a reader sees the old one or the whole new one.

    Raises: CommandError: it cannot be written.
    """
    try:
        write_file(path, content)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or error}") from error
