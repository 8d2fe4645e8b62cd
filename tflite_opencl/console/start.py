# SPDX-License-Identifier: Apache-2.0
"""How each command begins and ends: Ctrl-C from the first moment on, and streams of any kind.

stdin, stdout and stderr may be closed, full, or read by nobody. This file imports little, because
Ctrl-C is heard only from here on.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from tflite_opencl.console import interrupts
from tflite_opencl.console.errors import OneLineError, full_disk
from tflite_opencl.console.exit_codes import BUG, ERROR, INTERRUPTED, SUCCESS, USAGE


def start(module: str, arguments: Sequence[str] | None = None) -> int:
    """Import a command's module, run its `main` with the arguments, and return the exit code."""
    open_all()
    # Importing takes up to a second, so it is part of what Ctrl-C can end.
    code = run(lambda: importlib.import_module(module).main(arguments))
    # From here on Python only cleans up.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code


def run(main: Callable[[], int]) -> int:
    """Return the exit code of a command's `main`, or how it was ended.

    130: Ctrl-C. 255: stdout or stderr takes no text, or a disk is full, and one line says so. A
    reader that has gone is no error.
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
            if interrupts.was_pressed():  # what Ctrl-C broke off may fail in its own way
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
        except SystemExit as end:  # argparse's, of --help or a wrong command line
            code = USAGE if end.code else SUCCESS
        flush()
    except BrokenPipeError:  # `| head` has seen enough
        lead_nowhere(sys.stdout)
    return code


_ERRORS = "backslashreplace"  # characters that the locale has not, as in names and tables


class OutputError(OneLineError):
    """stdout or stderr takes no text: the disk is full, or the like."""

    def __init__(self, name: str, error: OSError) -> None:
        super().__init__(f"cannot write {name}: {error.strerror or error}")


def open_all() -> None:
    """Open what is closed as /dev/null, and let `OutputError` tell where a stream takes no text."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is taken: this one. Else the next file would be the stream.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = _stream(1, "stdout", sys.stdout)
    sys.stderr = _stream(2, "stderr", sys.stderr)


def flush() -> None:
    """Write what waits in stdout and stderr.

    Raises: OutputError: it, or an earlier text, could not be written. BrokenPipeError: nobody reads
        any more.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        error = getattr(getattr(stream.buffer, "raw", stream.buffer), "error", None)
        if error is not None:
            raise error


def lead_nowhere(stream: TextIO | io.FileIO) -> None:
    """Let the stream be /dev/null from now on, what waits in it included.

    Python would else complain of it at its end.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


class _File(io.FileIO):
    """The file of a stream; after its first error it is /dev/null.

    Attributes:
        error: what was raised, for where a library drops it; a reader that has gone is none.
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
        # Without a buffer where Python was told so (-u).
        file if like.write_through else io.BufferedWriter(file),
        like.encoding,
        _ERRORS,
        line_buffering=like.line_buffering,
        write_through=like.write_through,
    )
