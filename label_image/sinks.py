# SPDX-License-Identifier: Apache-2.0
"""The output files of a run on many pictures, and its ground truth.

Each sink receives every picture's JSON object. JSON lines are written immediately, so that a
later run can resume after the last one.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import IO, Any, TextIO

from label_image import console
from label_image.console import writing
from label_image.expect import Entry, ExpectedBoxes, GroundTruth, box_of, read_expected
from label_image.prepare import PreparedRun
from label_image.scene import Sides
from tflite_opencl.cli.messages import stamped
from tflite_opencl.console.errors import RunError
from tflite_opencl.console.files import replaced_file
from tflite_opencl.console.parsing import PARSING

# CSV columns for a class, a box, a mask's class.
_COLUMNS = {"results": ("score",), "detections": ("score", *Sides._fields), "segments": ("share",)}

Write = Callable[[str], object]  # takes whole lines, without line ends


class Sinks:
    """The files that the settings request, and --expect.

    Attributes:
        sinks: all receivers of pictures except --expect. expected: the ground truth of --expect.
        unreadable_before: unreadable pictures of the resumed run.
    """

    def __init__(self, stack: contextlib.ExitStack, prepared: PreparedRun, out: TextIO) -> None:
        """Open them on the stack, except JSON lines. Raises: RunError: one is invalid."""
        settings, meaning, runtime = prepared.settings, prepared.meaning, prepared.runtime
        self._stack, self._out, self._settings = stack, out, settings
        self._about = {"model": prepared.model.name}
        self.expected: GroundTruth | None = None
        if settings.expect is not None:
            most = settings.num_results_of_several
            self.expected = read_expected(settings.expect, meaning.view.labels, most)
            self.expected.require(meaning.kinds)
        self.sinks: list[Sink] = []
        self.unreadable_before = self._resumed = 0
        if settings.json is not None:
            about = self._about | {"runtime": runtime.text}
            self.sinks.append(Document(stack.enter_context(lines_to(settings.json, out)), about))
        if settings.csv is not None:
            kind_of(meaning.kinds, "--csv", *_COLUMNS)
            self.sinks.append(Csv(stack.enter_context(lines_to(settings.csv, out))))
        if settings.coco is not None:
            kind_of(meaning.kinds, "--coco", "detections")
            boxes = self.expected if isinstance(self.expected, ExpectedBoxes) else None
            self.sinks.append(Coco(stack.enter_context(lines_to(settings.coco, out)), boxes))

    def resume(self) -> Iterator[str]:
        """Yield the pictures of the resumed run, and add them to the other files.

        Raises: RunError: its lines are of another model, or malformed.
        """
        path = self._settings.json_lines
        if path is None or not self._settings.resume:
            return
        own = {*stamped({}), *self._about}
        for line in kept_entries(path, self._about["model"]):
            self.add({name: value for name, value in line.items() if name not in own})
            self._resumed += 1
            self.unreadable_before += "error" in line
            yield line["image"]

    def open_lines(self) -> None:
        """Start the JSON lines only once the model runs: this may overwrite an earlier file."""
        path = self._settings.json_lines
        if path is not None:
            mode = "ab" if self._settings.resume else "wb"
            write = self._stack.enter_context(lines_to(path, self._out, mode))
            self.sinks.append(Lines(write, self._about))

    def add(self, entry: Entry) -> None:
        """Write a picture's object to all files. Raises: RunError: one cannot be written."""
        for sink in self.sinks:
            sink.add(entry)
        if self.expected is not None:
            self.expected.add(entry)

    def end(self, header: Entry, totals: Entry) -> None:
        """Write the totals, with the resumed and the expected pictures in between.

        `header`: the first entries. `totals`: the last.
        """
        more: dict[str, Any] = {"resumed": self._resumed} if self._resumed else {}
        more |= {"expected": self.expected.entry} if self.expected else {}
        for sink in self.sinks:
            sink.end({**header, **more, **totals})

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Summary facts of all pictures, as (label, text)."""
        facts = [("resumed", f"{self._resumed} of a run before")] if self._resumed else []
        return facts + ([("expected", self.expected.text)] if self.expected else [])


class Sink:
    """Receives every picture's object, then the totals."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def add(self, entry: Entry) -> None:
        raise NotImplementedError

    def end(self, rest: Entry) -> None:
        pass


class Lines(Sink):
    """The pictures as JSON lines, each self-contained."""

    def __init__(self, write: Write, about: Mapping[str, Any]) -> None:
        """`about`: included in each line."""
        super().__init__(write)
        self._about = stamped({**about})

    def add(self, entry: Entry) -> None:
        self._write(json.dumps(self._about | dict(entry)))


class Document(Sink):
    """The run as JSON, written incrementally: the header, one line per picture, the totals."""

    def __init__(self, write: Write, about: Entry) -> None:
        """`about`: the header."""
        super().__init__(write)
        self._waiting: str | None = None  # the last picture's line, held back for its comma
        self._write(json.dumps(stamped({**about}), indent=2).removesuffix("\n}") + ",")
        self._write('  "pictures": [')

    def add(self, entry: Entry) -> None:
        if self._waiting is not None:
            self._write(self._waiting + ",")
        self._waiting = f"    {json.dumps(entry)}"

    def end(self, rest: Entry) -> None:
        if self._waiting is not None:
            self._write(self._waiting)
        self._write("  ],")
        self._write(json.dumps(rest, indent=2).removeprefix("{\n"))


class Csv(Sink):
    """One row per class, box or class of a mask; unreadable pictures have none.

    `add` raises RunError: the model's results have no rows.
    """

    _kind = ""  # of _COLUMNS; "": not known yet
    _columns: tuple[str, ...] = ()

    def add(self, entry: Entry) -> None:
        if "error" in entry:
            return
        if not self._kind:
            self._kind = kind_of(entry, "--csv", *_COLUMNS)
            self._columns = ("index", "label", *_COLUMNS[self._kind])
            self._row("image", *self._columns)
        for row in entry[self._kind]:
            cells = row | row.get("box", {})
            self._row(entry["image"], *(cells[name] for name in self._columns))

    def _row(self, *cells: Any) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(cells)
        self._write(text.getvalue())


class Coco(Sink):
    """Boxes in COCO's results format: a list of objects. `add` raises RunError: there are none."""

    def __init__(self, write: Write, expected: ExpectedBoxes | None) -> None:
        """`expected`: ids of pictures and categories; without it their names are used."""
        super().__init__(write)
        self._expected = expected
        self._pictures = 0
        self._waiting = "["  # the last object's line, held back for its comma

    def add(self, entry: Entry) -> None:
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

    def end(self, rest: Entry) -> None:
        self._write(self._waiting)
        self._write("]")

    def _image_id(self, path: str) -> int:
        number = self._expected.image_id(path) if self._expected else None
        stem = os.path.splitext(os.path.basename(path))[0]
        if number is None:
            number = int(stem) if stem.isascii() and stem.isdigit() else self._pictures
        return number


def kind_of(entry: Collection[str], flag: str, *kinds: str) -> str:
    """Return which of these kinds of results is present; raises RunError: none."""
    found = next((kind for kind in kinds if kind in entry), None)
    if found is None:
        raise RunError(f"{flag}: the model gives no {' and no '.join(kinds)}")
    return found


@contextlib.contextmanager
def lines_to(path: str, out: TextIO, at_once: str = "") -> Iterator[Write]:
    """Yield a writer of lines to `out` for "-", or to a file that appears once complete.

    `at_once`: the mode to open a file in that receives each line immediately, "ab" to append:
    a concurrent reader sees whole lines, except the last.
    """
    if path == "-":
        yield functools.partial(console.write, out)
        return
    with contextlib.ExitStack() as stack:
        with writing(path):
            # Unbuffered: a line is one system call, so a killed process leaves no partial line.
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
    """Yield the pictures of an earlier run's JSON lines, and truncate a partial last line.

    A missing file has none.
    Raises: RunError: it cannot be read, is malformed, or of another model.
    """
    try:
        with open(path, "rb+") as file:
            end = 0
            for number, line in enumerate(file, 1):
                entry = None  # a partial line, or not JSON
                with contextlib.suppress(*PARSING):
                    entry = json.loads(line) if line.endswith(b"\n") else None
                if not isinstance(entry, dict) or not isinstance(entry.get("image"), str):
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
