# SPDX-License-Identifier: Apache-2.0
"""A run on many pictures: each is classified, printed as a row and written as a record."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from label_image import console
from label_image.compare import Outcome
from label_image.document import totals_entry
from label_image.heads.classes import CLASSIFICATION
from label_image.paths import open_paths
from label_image.picture_record import PictureRecord, record_of, result_of
from label_image.prepare import PreparedRun
from label_image.report import summary_text
from label_image.result import Result, picture_folder
from label_image.series import Series
from label_image.sinks import Sinks
from label_image.watch_folder import watch_folder
from tflite_opencl.console import bars, interrupts
from tflite_opencl.console.errors import RunError
from tflite_opencl.console.exit_codes import ERROR, SUCCESS
from tflite_opencl.console.service_manager import Heartbeat
from tflite_opencl.harness.feeds import warn_of_zeros
from tflite_opencl.harness.job import Job
from tflite_opencl.pictures.decode import PictureError
from tflite_opencl.pictures.find_pictures import find_pictures, picture_paths, skipped_text
from tflite_opencl.pictures.image import STDIN, is_file, kept_file, load_picture, to_input

log = logging.getLogger("label_image")


class ManyPictures:
    """A run on several pictures."""

    def __init__(self, prepared: PreparedRun, out: TextIO, width: int) -> None:
        """`width`: of the text on stderr."""
        self._width = width
        self._prepared, self._settings, self._out = prepared, prepared.settings, out
        self._given: Sequence[str] = ()  # files and folders
        self._names: Mapping[str, str] = {}  # display names that differ from the path
        # Pictures of folders that no installed reader supports, by the reader they need.
        self._skipped = Counter[str]()
        self._done = Counter[str]()  # pictures of the resumed run

    def run(self) -> int:
        """Classify all pictures, print and write the results, and return the exit code.

        Raises: RunError, DefaultModelError, DecoderFailed: an error that affects all pictures.
        """
        settings, prepared = self._settings, self._prepared
        floats = prepared.meaning.head is not CLASSIFICATION
        with contextlib.ExitStack() as stack:
            job = self._job(stack)
            sinks = Sinks(stack, prepared, self._out)
            self._done.update(sinks.resume())
            paths = stack.enter_context(
                open_paths(
                    job, prepared.runtime, prepared.graph, floats=floats,
                    compares_all=settings.compares_all,
                )
            )  # fmt: skip
            series = Series(paths, compares_all=settings.compares_all)
            sinks.open_lines()
            with contextlib.suppress(KeyboardInterrupt):  # print and write the results so far
                self._classify(series, sinks)
            with interrupts.held():
                judgement = series.judgement
                sinks.end(self._header, totals_entry(judgement, settings.cpu_threads))
        flag = settings.table_flag
        text = summary_text(judgement, prepared.kernels, self._width, sinks.facts, flag)
        if code := self._ended(text, judgement.totals.unreadable, sinks):
            return code
        console.log_messages(judgement.end_messages)
        return judgement.exit_code

    @property
    def _header(self) -> dict[str, Any]:
        """The document's entries before the totals."""
        header: dict[str, Any] = {"interrupted": True} if interrupts.was_pressed() else {}
        return header | ({"skipped": self._skipped.total()} if self._skipped else {})

    def _ended(self, text: str, unreadable: int, sinks: Sinks) -> int:
        """Print the summary, and return the exit code for unreadable or missing pictures."""
        if self._skipped:
            log.warning("skipped what no installed reader reads: %s", skipped_text(self._skipped))
        console.write(sys.stderr, text)
        is_met = sinks.expected is None or sinks.expected.is_met()
        return ERROR if unreadable or sinks.unreadable_before or not is_met else SUCCESS

    def _job(self, stack: contextlib.ExitStack) -> Job:
        """Find the pictures, and return the job of the first path."""
        settings, prepared = self._settings, self._prepared
        if settings.watch is not None:
            if not os.path.isdir(settings.watch):
                raise RunError(f"--watch: there is no folder {settings.watch}")
            return job_of_many(prepared)
        given = find_pictures(settings.pictures or [settings.image])
        is_there = is_file(given[0]) or os.path.isdir(given[0])
        if len(given) == 1 and (given[0] == STDIN or not is_there):
            copy = stack.enter_context(kept_file(given[0]))
            self._names, given = {copy: given[0]}, [copy]
        self._given = given
        return job_of_many(prepared)

    def _pictures(self, skipped: Counter[str]) -> Iterator[tuple[int, str | None]]:
        """Yield each picture to classify, with its number among all, from 1.

        None: none at the moment.
        """
        done = self._done.copy()
        which, of = self._settings.shard or (1, 1)
        paths: Iterable[str | None] = picture_paths(self._given, skipped)
        if self._settings.watch is not None:
            paths = watch_folder(self._settings.watch)
        number = 0
        for path in paths:
            number += path is not None
            if path is None:
                yield number, None
            elif (number - which) % of:
                continue
            elif done[path]:
                done[path] -= 1
            else:
                yield number, path

    def _classify(self, series: Series, sinks: Sinks) -> None:
        """Classify all pictures; stop early when the output has no reader."""
        settings, meaning = self._settings, self._prepared.meaning
        numbers: deque[int] = deque()  # of the pictures in flight
        heart = Heartbeat()

        def paths() -> Iterator[str | None]:
            for number, path in self._pictures(self._skipped):
                if path is not None:
                    numbers.append(number)
                if settings.watch is not None:
                    heart.beat()
                yield path

        def count() -> int:
            return sum(1 for _ in self._pictures(Counter()))

        outcomes = series.outcomes(paths(), meaning.format)
        bar: contextlib.AbstractContextManager[Callable[[], None]] = bars.steps(
            "classifying", count
        )
        if settings.watch is not None:
            bar = contextlib.nullcontext(_no_step)
        with bar as step, contextlib.closing(outcomes):
            for outcome in outcomes:
                is_read = self._report(outcome, numbers.popleft(), sinks)
                interrupts.check()
                step()
                if not is_read and not sinks.sinks:
                    break  # a closed pipe, as with `| head`

    def _report(self, outcome: Outcome, number: int, sinks: Sinks) -> bool:
        """Print and write a picture's outcome; return whether the rows have a reader."""
        result = result_of(self._prepared.meaning, outcome, self._settings.num_results_of_several)
        record = record_of(outcome, self._names.get(outcome.path, outcome.path), result)
        return self._show(record, result, outcome.path, number, sinks)

    def _show(
        self, record: PictureRecord, result: Result | None, path: str, number: int, sinks: Sinks
    ) -> bool:
        """Print and write a picture; return whether the rows have a reader.

        `result`: None: no per-picture files are requested. `path`: the picture's file.
        """
        settings, outcome, is_read = self._settings, record.outcome, True
        if outcome.error:
            log.error("%s", outcome.error)
        elif settings.output_dir is not None and result is not None:
            folder = picture_folder(settings.output_dir, number, outcome.path)
            result.write(folder, _picture(path, result), settings.num_results)
        if not (outcome.error or settings.is_on_stdout):
            is_read = console.write(self._out, record.row)
        sinks.add(record.entry)
        return is_read


def _no_step() -> None:
    pass


def job_of_many(prepared: PreparedRun) -> Job:
    """Return the job of the first path; raises RunError: the model does not suit many pictures."""
    feeds = prepared.feeds
    nothing = np.zeros((16, 16, 3), np.uint8)
    # Rejects a model without a picture input before anything is built.
    pixels = to_input(nothing, *astuple(prepared.meaning.format))
    if prepared.meaning.input.shape[0] != 1:  # a shape of height x width alone
        raise RunError("several pictures need an input whose first dimension counts pictures")
    if feeds.main in feeds.given:
        raise RunError("--input gives values to the input that would take the pictures")
    warn_of_zeros(prepared.graph, feeds)
    return prepared.job(pixels)


def _picture(path: str, result: Result) -> NDArray[np.uint8] | None:
    """Return the picture if results can be drawn into it: the decoders keep none."""
    try:
        return load_picture(path) if result.scene.is_drawable else None
    except (OSError, PictureError) as error:  # deleted meanwhile
        log.warning("what was found in %s is not drawn: %s", path, error)
        return None
