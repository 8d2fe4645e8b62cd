# SPDX-License-Identifier: Apache-2.0
"""All that a run on many pictures writes, and what it expects of them.

Each sink is given every picture's JSON object. JSON lines are written as they come, so that a later
run can go on after the last one.
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

# Of CSV, for a class, a box, a mask's class.
_COLUMNS = {"results": ("score",), "detections": ("score", *Sides._fields), "segments": ("share",)}

Write = Callable[[str], object]  # is given whole lines, without their ends


class Sinks:
    """The files that the settings ask for, and --expect.

    Attributes:
        sinks: what is given each picture, --expect excepted. expected: what --expect expects.
        unreadable_before: pictures of a run that this one goes on with.
    """

    def __init__(self, stack: contextlib.ExitStack, prepared: PreparedRun, out: TextIO) -> None:
        """Open them on the stack, JSON lines excepted. Raises: RunError: one is wrong."""
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
        """Yield the pictures of the run before, which the other files get, too.

        Raises: RunError: its lines are not of this model, or no lines.
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
        """Begin the JSON lines, now that the model runs: a file before may be lost here."""
        path = self._settings.json_lines
        if path is not None:
            mode = "ab" if self._settings.resume else "wb"
            write = self._stack.enter_context(lines_to(path, self._out, mode))
            self.sinks.append(Lines(write, self._about))

    def add(self, entry: Entry) -> None:
        """Write a picture's object into all files. Raises: RunError: one cannot be written."""
        for sink in self.sinks:
            sink.add(entry)
        if self.expected is not None:
            self.expected.add(entry)

    def end(self, header: Entry, totals: Entry) -> None:
        """Write what is known of all pictures together, the resumed and the expected ones between.

        `header`: what comes first. `totals`: the rest.
        """
        more: dict[str, Any] = {"resumed": self._resumed} if self._resumed else {}
        more |= {"expected": self.expected.entry} if self.expected else {}
        for sink in self.sinks:
            sink.end({**header, **more, **totals})

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What is said of all pictures, as (word, text)."""
        facts = [("resumed", f"{self._resumed} of a run before")] if self._resumed else []
        return facts + ([("expected", self.expected.text)] if self.expected else [])


class Sink:
    """What is given every picture's object, then what is known of all pictures together."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def add(self, entry: Entry) -> None:
        raise NotImplementedError

    def end(self, rest: Entry) -> None:
        pass


class Lines(Sink):
    """The pictures as lines of JSON, each whole in itself."""

    def __init__(self, write: Write, about: Mapping[str, Any]) -> None:
        """`about`: stands in each line."""
        super().__init__(write)
        self._about = stamped({**about})

    def add(self, entry: Entry) -> None:
        self._write(json.dumps(self._about | dict(entry)))


class Document(Sink):
    """The run as JSON, written as it goes: what is known before, a line a picture, the rest."""

    def __init__(self, write: Write, about: Entry) -> None:
        """`about`: what is known before."""
        super().__init__(write)
        self._waiting: str | None = None  # the last picture's line: will a comma follow?
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
    """A row for each class, box or class of a mask; a picture that was not read has none.

    `add` raises RunError: the model gives nothing that has rows.
    """

    _kind = ""  # of _COLUMNS; "": nobody knows yet
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
    """Boxes as COCO's results: a list of objects. `add` raises RunError: the model gives none."""

    def __init__(self, write: Write, expected: ExpectedBoxes | None) -> None:
        """`expected`: numbers the pictures and the categories; without it their names do."""
        super().__init__(write)
        self._expected = expected
        self._pictures = 0
        self._waiting = "["  # the last object's line: will a comma follow?

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
    """Return which of these kinds of results there are; raises RunError: none of them."""
    found = next((kind for kind in kinds if kind in entry), None)
    if found is None:
        raise RunError(f"{flag}: the model gives no {' and no '.join(kinds)}")
    return found


@contextlib.contextmanager
def lines_to(path: str, out: TextIO, at_once: str = "") -> Iterator[Write]:
    """Give what writes lines to `out` for "-", or to a file that is there when all lines are.

    `at_once`: the mode to open a file with that gets each line at once, "ab" after those that are
    there: whoever reads it finds whole lines, but the last.
    """
    if path == "-":
        yield functools.partial(console.write, out)
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
                entry = None  # half of a line, or something else
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
