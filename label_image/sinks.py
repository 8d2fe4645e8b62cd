# SPDX-License-Identifier: Apache-2.0
"""All that a run on many pictures writes, and what it expects of them.

Each sink is given every picture's JSON object. JSON lines are written as they come, so that a later
run can go on after the last one.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import logging
import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TextIO

from label_image.expect import Entry, Expected, ExpectedBoxes, box_of, read_expected
from label_image.line_files import Write, kept_entries, lines_to
from label_image.prepare import Prepared
from tflite_opencl.common.errors import RunError
from tflite_opencl.common.words import stamped

KINDS = ("results", "detections", "segments")  # of a picture's object: what has rows
_SIDES = ("left", "top", "right", "bottom")

log = logging.getLogger("label_image")


class Sinks:
    """The files that the settings ask for, and --expect.

    Attributes:
        sinks: what is given each picture, --expect excepted. unreadable_before: pictures of a run
            that this one goes on with.
    """

    def __init__(self, stack: contextlib.ExitStack, prepared: Prepared, out: TextIO) -> None:
        """Open them on the stack, JSON lines excepted. Raises: RunError: one is wrong."""
        settings, meaning, runtime = prepared.settings, prepared.meaning, prepared.runtime
        self._stack, self._out, self._settings = stack, out, settings
        self._about = {"model": prepared.model.name}
        self._expected: Expected | None = None
        if settings.expect is not None:
            most = settings.num_results_of_several
            self._expected = read_expected(settings.expect, meaning.view.labels, most)
            self._expected.require(meaning.kinds)
        self.sinks: list[Sink] = []
        self.unreadable_before = 0
        self._resumed = 0
        if settings.json is not None:
            about = self._about | {"runtime": f"{runtime.name} {runtime.version}"}
            self.sinks.append(Document(stack.enter_context(lines_to(settings.json, out)), about))
        if settings.csv is not None:
            kind_of(meaning.kinds, "--csv", *KINDS)
            self.sinks.append(Csv(stack.enter_context(lines_to(settings.csv, out))))
        if settings.coco is not None:
            kind_of(meaning.kinds, "--coco", "detections")
            boxes = self._expected if isinstance(self._expected, ExpectedBoxes) else None
            self.sinks.append(Coco(stack.enter_context(lines_to(settings.coco, out)), boxes))

    def resumed(self) -> Iterator[str]:
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
        if self._expected is not None:
            self._expected.add(entry)

    def end(self, told: Entry, totals: Entry) -> None:
        """Write what is known of all pictures together, the resumed and the expected ones between.

        `told`: what comes first. `totals`: the rest.
        """
        more: dict[str, Any] = {"resumed": self._resumed} if self._resumed else {}
        more |= {"expected": self._expected.entry} if self._expected else {}
        for sink in self.sinks:
            sink.end({**told, **more, **totals})

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What is said of all pictures, as (word, text)."""
        facts = [("resumed", f"{self._resumed} of a run before")] if self._resumed else []
        return facts + ([("expected", self._expected.text)] if self._expected else [])

    def is_expectation_met(self) -> bool:
        """Log what is wrong with the file of --expect; return whether it is of any use."""
        if self._expected is None:
            return True
        try:
            if warning := self._expected.check():
                log.warning("%s", warning)
        except RunError as error:
            log.error("%s", error)
            return False
        return True


class Sink:
    """What is given every picture."""

    def add(self, entry: Entry) -> None:
        """Take a picture's object."""
        raise NotImplementedError

    def end(self, rest: Entry) -> None:
        """Take what is known of all pictures together."""


class Lines(Sink):
    """The pictures as lines of JSON, each whole in itself."""

    def __init__(self, write: Write, about: Mapping[str, Any]) -> None:
        """`about`: stands in each line."""
        self._write = write
        self._about = stamped({**about})

    def add(self, entry: Entry) -> None:
        """Write a picture's line."""
        self._write(json.dumps(self._about | dict(entry)))


class Document(Sink):
    """The run as JSON, written as it goes: what is known before, a line a picture, the rest."""

    def __init__(self, write: Write, about: Entry) -> None:
        """`about`: what is known before."""
        self._write = write
        self._waiting: str | None = None  # the last picture's line: will a comma follow?
        self._write(json.dumps(stamped({**about}), indent=2).removesuffix("\n}") + ",")
        self._write('  "pictures": [')

    def add(self, entry: Entry) -> None:
        """Write a picture's object."""
        if self._waiting is not None:
            self._write(self._waiting + ",")
        self._waiting = f"    {json.dumps(entry)}"

    def end(self, rest: Entry) -> None:
        """Write what is known of all pictures together."""
        if self._waiting is not None:
            self._write(self._waiting)
        self._write("  ],")
        self._write(json.dumps(rest, indent=2).removeprefix("{\n"))


class Csv(Sink):
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


class Coco(Sink):
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

    def end(self, rest: Entry) -> None:
        """Write what is left."""
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
