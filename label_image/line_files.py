# SPDX-License-Identifier: Apache-2.0
"""Files, or stdout, that are written line by line; and lines that a run goes on with."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from typing import IO, Any, TextIO

from label_image import lines
from label_image.lines import writing
from tflite_opencl.common.errors import RunError
from tflite_opencl.common.files import replaced_file

Write = Callable[[str], object]  # is given whole lines, without their ends
STDOUT = "-"


@contextlib.contextmanager
def lines_to(path: str, out: TextIO, at_once: str = "") -> Iterator[Write]:
    """Give what writes lines to `out` for "-", or to a file that is there when all lines are.

    `at_once`: the mode to open a file with that gets each line at once, "ab" after those that are
    there: whoever reads it finds whole lines, but the last.
    """
    if path == STDOUT:
        yield functools.partial(lines.write, out)
        return
    with contextlib.ExitStack() as stack:
        with writing(path):
            # Without a buffer a line is one call of the system, which a killed process has made.
            if at_once:
                file: IO[bytes] = stack.enter_context(open(path, at_once, buffering=0))
            else:
                file = stack.enter_context(replaced_file(path, "wb"))

        def write(line: str) -> None:
            data = memoryview(f"{line}\n".encode("utf-8", "backslashreplace"))
            with writing(path):
                while data:
                    data = data[file.write(data) :]

        yield write
        with writing(path):
            stack.close()


def kept_entries(path: str, model: str) -> Iterator[dict[str, Any]]:
    """Yield the pictures of a file of JSON lines that a run left, and cut off half a line.

    A file that is not there has none.
    Raises: RunError: it cannot be read, is something else, or of another model.
    """
    try:
        with open(path, "rb+") as file:
            end = 0
            for number, line in enumerate(file, 1):
                entry = _entry_of(line)
                if entry is None:
                    if file.read(1):
                        raise RunError(f"--resume: {path}, line {number} is no picture's")
                    break
                if entry.get("model") != model:
                    raise RunError(f"--resume: {path} is of the model {entry.get('model')}")
                end += len(line)
                yield entry
            file.truncate(end)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"--resume: cannot read {path}: {error.strerror or error}") from error


def _entry_of(line: bytes) -> dict[str, Any] | None:
    """Return a line's object; None: it is half of one, or something else."""
    try:
        entry = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and isinstance(entry.get("image"), str) else None
