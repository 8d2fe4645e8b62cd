# SPDX-License-Identifier: Apache-2.0
"""All that a run on many pictures writes, and what it expects of them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any, TextIO

from label_image.expect import Entry, Expected, ExpectedBoxes, read_expected
from label_image.prepare import Prepared
from label_image.series import Series
from label_image.several_report import Document
from label_image.sinks import (
    KINDS,
    Coco,
    Csv,
    Lines,
    Sink,
    kept_entries,
    kind_of,
    lines_at_once_to,
    lines_to,
)
from tflite_opencl.common import interrupts
from tflite_opencl.common.errors import RunError
from tflite_opencl.common.words import stamped

log = logging.getLogger("label_image")


class Written:
    """The files that the settings ask for.

    Attributes:
        sinks: what is given each picture, --expect excepted. unreadable_before: pictures of a run
            that this one goes on with.
    """

    def __init__(self, stack: contextlib.ExitStack, prepared: Prepared, out: TextIO) -> None:
        """Open them on the stack, JSON lines excepted. Raises: RunError: one is wrong."""
        settings = prepared.settings
        self._stack, self._out, self._settings = stack, out, settings
        self._about = {"model": prepared.model.name}
        self._expected: Expected | None = None
        if settings.expect is not None:
            most = settings.num_results_of_several
            self._expected = read_expected(settings.expect, prepared.meaning.labels, most)
            self._expected.require(prepared.meaning.kinds)
        self._document: Document | None = None
        self._coco: Coco | None = None
        self.sinks: list[Sink] = []
        self.unreadable_before = 0
        self._resumed = 0
        if settings.json is not None:
            runtime = prepared.runtime
            about = self._about | {"runtime": f"{runtime.name} {runtime.version}"}
            self._document = Document(stack.enter_context(lines_to(settings.json, out)), about)
            self.sinks.append(self._document)
        if settings.csv is not None:
            kind_of(prepared.meaning.kinds, "--csv", *KINDS)
            self.sinks.append(Csv(stack.enter_context(lines_to(settings.csv, out))))
        if settings.coco is not None:
            kind_of(prepared.meaning.kinds, "--coco", "detections")
            boxes = self._expected if isinstance(self._expected, ExpectedBoxes) else None
            self._coco = Coco(stack.enter_context(lines_to(settings.coco, out)), boxes)
            self.sinks.append(self._coco)

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
        if path is None:
            return
        write = self._stack.enter_context(lines_at_once_to(path, self._out, self._settings.resume))
        self.sinks.append(Lines(write, self._about))

    def add(self, entry: Entry) -> None:
        """Write a picture's object into all files. Raises: RunError: one cannot be written."""
        for sink in self.sinks:
            sink.add(entry)
        if self._expected is not None:
            self._expected.add(entry)

    def end(self, series: Series, other: str, skipped: int) -> None:
        """Write what all pictures together came to."""
        if self._coco is not None:
            self._coco.end()
        if self._document is not None:
            more: dict[str, Any] = {"resumed": self._resumed} if self._resumed else {}
            more |= {"expected": self._expected.entry} if self._expected else {}
            threads, is_ended = self._settings.threads, interrupts.was_pressed()
            self._document.end(series, threads, other, skipped, is_ended, more)

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
