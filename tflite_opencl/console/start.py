# SPDX-License-Identifier: Apache-2.0
"""Start-up and exit of every command: handles Ctrl-C from the start, and any kind of streams.

stdin, stdout and stderr may be closed, full, or have no reader. This module imports little,
because Ctrl-C is handled only from here on.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from tflite_opencl.console import interrupts
from tflite_opencl.console.errors import OneLineError, full_disk
from tflite_opencl.console.exit_codes import BUG, ERROR, INTERRUPTED, SUCCESS, USAGE


def start(module: str, arguments: Sequence[str] | None = None) -> int:
    """Import a command's module, run its `main` with the arguments, and return the exit code."""
    open_all()
    # pytools of Debian asks for a package that Debian does not have; delegate's children ignore it.
    warnings.filterwarnings("ignore", "Unable to import recommended hash")
    # Importing takes up to a second, so Ctrl-C must be able to end it.
    code = run(lambda: importlib.import_module(module).main(arguments))
    # From here on Python only cleans up.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code


def run(main: Callable[[], int]) -> int:
    """Return the exit code of a command's `main`, or of how it ended.

    130: Ctrl-C. 255: stdout or stderr cannot be written, or a disk is full, with a one-line
    message. A closed pipe is not an error.
    """
    with interrupts.remembered():
        try:
            code = _code(main)
            interrupts.check()
            return code
        except KeyboardInterrupt:
            return INTERRUPTED
        except OutputError as error:
            with contextlib.suppress(OutputError):
                sys.stderr.write(f"ERROR: {error}\n")
            return ERROR
        except Exception as error:
            if interrupts.was_pressed():  # code interrupted by Ctrl-C may raise errors of its own
                return INTERRUPTED
            if line := full_disk(error):
                with contextlib.suppress(OutputError):
                    sys.stderr.write(f"ERROR: {line}\n")
                return ERROR
            traceback.print_exc()
            return BUG


def _code(main: Callable[[], int]) -> int:
    code = 0
    try:
        try:
            code = main()
        except SystemExit as end:  # argparse's, after --help or an invalid command line
            code = USAGE if end.code else SUCCESS
        flush()
    except BrokenPipeError:  # closed by a reader such as `| head`
        lead_nowhere(sys.stdout)
    return code


_ERRORS = "backslashreplace"  # for characters that the locale lacks


class OutputError(OneLineError):
    """stdout or stderr cannot be written, for example because the disk is full."""

    def __init__(self, name: str, error: OSError) -> None:
        super().__init__(f"cannot write {name}: {error.strerror or error}")


def open_all() -> None:
    """Open closed streams as /dev/null, and let `OutputError` report unwritable ones."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # open takes the lowest free descriptor: this one, before another file can.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = _stream(1, "stdout", sys.stdout)
    sys.stderr = _stream(2, "stderr", sys.stderr)


def flush() -> None:
    """Flush stdout and stderr.

    Raises: OutputError: this or an earlier write failed. BrokenPipeError: the reader has closed
        the pipe.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        error = getattr(getattr(stream.buffer, "raw", stream.buffer), "error", None)
        if error is not None:
            raise error


def lead_nowhere(stream: TextIO | io.FileIO) -> None:
    """Redirect the stream to /dev/null, including its buffered output.

    Otherwise Python would report an error at exit.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


class _File(io.FileIO):
    """The file of a stream; redirected to /dev/null after its first error.

    Attributes:
        error: the exception, in case a library drops it; None for a closed pipe.
    """

    def __init__(self, number: int, name: str) -> None:
        super().__init__(number, "w", closefd=False)
        self.name = f"<{name}>"
        self.error: OutputError | None = None
        self._stream_name = name

    def write(self, text: Any, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            lead_nowhere(self)
            if isinstance(error, BrokenPipeError):
                raise
            self.error = OutputError(self._stream_name, error)
            raise self.error from error


def _stream(number: int, name: str, like: TextIO | None) -> TextIO:
    file = _File(number, name)
    if not isinstance(like, io.TextIOWrapper):  # it was closed
        return io.TextIOWrapper(io.BufferedWriter(file), "utf-8", _ERRORS)
    return io.TextIOWrapper(
        # Unbuffered if Python runs with -u.
        file if like.write_through else io.BufferedWriter(file),
        like.encoding,
        _ERRORS,
        line_buffering=like.line_buffering,
        write_through=like.write_through,
    )
