# SPDX-License-Identifier: Apache-2.0
"""Where the results of many pictures are written: each is given every picture's JSON object.

JSON lines are written as they come, so that a later run can go on after the last one.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Protocol, TextIO

from label_image import streams
from label_image.errors import writing
from label_image.expect import Entry, ExpectedBoxes, box_of
from tflite_opencl.common.errors import RunError
from tflite_opencl.common.files import replaced_file
from tflite_opencl.common.words import stamped

Write = Callable[[str], object]  # is given whole lines, without their ends
STDOUT = "-"
KINDS = ("results", "detections", "segments")  # of a picture's object: what has rows
_SIDES = ("left", "top", "right", "bottom")


class Sink(Protocol):
    """What is given every picture."""

    def add(self, entry: Entry) -> None:
        """Take a picture's object."""


class Lines:
    """The pictures as lines of JSON, each whole in itself."""

    def __init__(self, write: Write, about: Mapping[str, Any]) -> None:
        """`about`: stands in each line."""
        self._write = write
        self._about = stamped({**about})

    def add(self, entry: Entry) -> None:
        """Write a picture's line."""
        self._write(json.dumps(self._about | dict(entry)))


class Csv:
    """A row for each class, box or class of a mask."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._kind = ""  # of _KINDS; "": nobody knows yet

    def add(self, entry: Entry) -> None:
        """Write a picture's rows; one that could not be read has none.

        Raises: RunError: the model gives nothing that has rows.
        """
        if "error" in entry:
            return
        if not self._kind:
            self._kind = kind_of(entry, "--csv", *KINDS)
            more = {"results": ["score"], "detections": ["score", *_SIDES], "segments": ["share"]}
            self._row("image", "index", "label", *more[self._kind])
        for row in entry[self._kind]:
            measured = row["share"] if self._kind == "segments" else row["score"]
            box = [row["box"][side] for side in _SIDES] if self._kind == "detections" else []
            self._row(entry["image"], row["index"], row["label"], measured, *box)

    def _row(self, *cells: Any) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(cells)
        self._write(text.getvalue())


class Coco:
    """Boxes as COCO's results: a list of objects."""

    def __init__(self, write: Write, expected: ExpectedBoxes | None) -> None:
        """`expected`: numbers the pictures and the categories; without it their names do."""
        self._write = write
        self._expected = expected
        self._pictures = 0
        self._waiting = "["  # the last object's line: will a comma follow?

    def add(self, entry: Entry) -> None:
        """Write a picture's boxes. Raises: RunError: the model gives none."""
        self._pictures += 1
        if "error" in entry:
            return
        kind_of(entry, "--coco", "detections")
        for row in entry["detections"]:
            category = self._expected.category(row) if self._expected else row["index"]
            if category is None:
                continue
            box = {
                "image_id": self._image_id(entry["image"]),
                "category_id": category,
                "bbox": [round(side, 3) for side in box_of(row)],
                "score": row["score"],
            }
            self._write(self._waiting if self._waiting == "[" else f"{self._waiting},")
            self._waiting = f"  {json.dumps(box)}"

    def end(self) -> None:
        """Write the rest."""
        self._write(self._waiting)
        self._write("]")

    def _image_id(self, path: str) -> int:
        number = self._expected.image_id(path) if self._expected else None
        stem = os.path.splitext(os.path.basename(path))[0]
        if number is None:
            number = int(stem) if stem.isascii() and stem.isdigit() else self._pictures
        return number


def kind_of(entry: Collection[str], flag: str, *kinds: str) -> str:
    """Return which of these kinds of results there are; raises RunError: none of them."""
    found = next((kind for kind in kinds if kind in entry), None)
    if found is None:
        raise RunError(f"{flag}: the model gives no {' and no '.join(kinds)}")
    return found


@contextlib.contextmanager
def lines_to(path: str, out: TextIO) -> Iterator[Write]:
    """Give what writes lines to `out` for "-", or to a file that is there when all lines are."""
    with contextlib.ExitStack() as stack:
        if path == STDOUT:
            yield functools.partial(streams.write, out)
            return
        with writing(path):
            file = stack.enter_context(replaced_file(path))

        def write(line: str) -> None:
            with writing(path):
                file.write(line + "\n")

        yield write
        with writing(path):
            stack.close()


@contextlib.contextmanager
def lines_at_once_to(path: str, out: TextIO, is_resumed: bool) -> Iterator[Write]:
    """Give what writes each line at once: whoever reads the file finds whole lines, but the last.

    `is_resumed`: after those that are there.
    """
    if path == STDOUT:
        yield functools.partial(streams.write, out)
        return
    with contextlib.ExitStack() as stack:
        with writing(path):
            mode = "ab" if is_resumed else "wb"
            # Without a buffer a line is one call of the system, which a killed process has made.
            file = stack.enter_context(open(path, mode, buffering=0))

        def write(line: str) -> None:
            data = memoryview(f"{line}\n".encode("utf-8", "backslashreplace"))
            with writing(path):
                while data:
                    data = data[file.write(data) :]

        yield write


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
