# SPDX-License-Identifier: Apache-2.0
"""What ends a subcommand without success, and the files that it writes."""

from __future__ import annotations

from tflite_opencl.common.exit_codes import ERROR
from tflite_opencl.common.files import file_obstacle, write_file


class CommandError(Exception):
    """What was asked for cannot be done; the text is one line.

    Attributes:
        code: the exit code. With NOT_SO the text is what was asked for, so it goes to stdout.
    """

    def __init__(self, text: str, code: int = ERROR) -> None:
        super().__init__(text)
        self.code = code


def require_writable(path: str | None) -> None:
    """Check a file before the work whose result it is to hold; None: no file is asked for.

    Raises:
        CommandError: it cannot be written, as far as that can be told before.
    """
    if path is not None and (obstacle := file_obstacle(path)):
        raise CommandError(f"cannot write {path}: {obstacle}")


def write(path: str, content: str | bytes) -> None:
    """Write a file, so that a reader sees the old one or the whole new one.

    Raises:
        CommandError: it cannot be written.
    """
    try:
        write_file(path, content)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or error}") from error
