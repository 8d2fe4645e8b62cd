# SPDX-License-Identifier: Apache-2.0
"""A run on many pictures: each is classified, shown as a row and written as an entry."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import several_devices
from label_image import lines
from label_image.document import picture_entry, totals_entry
from label_image.heads.classes import CLASSIFICATION
from label_image.prepare import Prepared
from label_image.report import summary_text
from label_image.result import Result, picture_folder
from label_image.series import Series
from label_image.sinks import Sinks
from tflite_opencl.common import bars, interrupts
from tflite_opencl.common.errors import RunError, UsageError
from tflite_opencl.common.exit_codes import ERROR
from tflite_opencl.common.feeds import warn_of_zeros
from tflite_opencl.common.flags import device_asked
from tflite_opencl.common.job import Job
from tflite_opencl.common.pictures.decode import PictureError
from tflite_opencl.common.pictures.found import find_pictures, picture_paths, skipped_text
from tflite_opencl.common.pictures.image import STDIN, is_file, kept_file, load_picture, to_input

log = logging.getLogger("label_image")


class ManyPictures:
    """A run on several pictures."""

    def __init__(self, prepared: Prepared, out: TextIO, width: int) -> None:
        """`width`: of what stderr shows."""
        self._width = width
        self._prepared, self._settings, self._out = prepared, prepared.settings, out
        self._found: Sequence[str] = ()  # files and folders
        self._names: Mapping[str, str] = {}  # what people call a file, if that is not its path
        # Pictures of folders that no installed reader reads, by what reads them.
        self._skipped = Counter[str]()
        self._done = Counter[str]()  # pictures of a run before

    def run(self) -> int:
        """Run the model on each, show and write what comes of it, and return the exit code.

        Raises: RunError, DefaultModelError, DecoderFailed: something is wrong with all pictures.
        """
        settings, prepared = self._settings, self._prepared
        floats = prepared.meaning.head is not CLASSIFICATION
        with contextlib.ExitStack() as stack:
            job = self._job(stack)
            sinks = Sinks(stack, prepared, self._out)
            self._done.update(sinks.resumed())
            series = stack.enter_context(
                Series(
                    job, prepared.runtime, prepared.graph, floats=floats,
                    compares_all=settings.compares_all, limit_s=settings.device_timeout,
                )
            )  # fmt: skip
            series.open()
            series.open_others()
            sinks.open_lines()
            with contextlib.suppress(KeyboardInterrupt):  # what is done is shown and written
                self._classify(series, sinks)
            with interrupts.held():
                told: dict[str, Any] = {"interrupted": True} if interrupts.was_pressed() else {}
                told |= {"skipped": self._skipped.total()} if self._skipped else {}
                sinks.end(told, totals_entry(series, settings.threads))
        if self._skipped:
            log.warning("skipped what no installed reader reads: %s", skipped_text(self._skipped))
        text = summary_text(series, prepared.kernels, self._width, sinks.facts)
        lines.write(sys.stderr, text)
        is_met = sinks.expected is None or sinks.expected.is_met()
        if series.totals.unreadable or sinks.unreadable_before or not is_met:
            return ERROR
        return series.exit_code()

    def _job(self, stack: contextlib.ExitStack) -> Job:
        """Find the pictures, and return the job of the first path."""
        settings, prepared, feeds = self._settings, self._prepared, self._prepared.feeds
        if settings.device_timeout and several_devices(device_asked(settings.device)):
            raise UsageError("--device_timeout is for one device, which --device names")
        found = find_pictures(settings.pictures or [settings.image])
        is_there = is_file(found[0]) or os.path.isdir(found[0])
        if len(found) == 1 and (found[0] == STDIN or not is_there):
            kept = stack.enter_context(kept_file(found[0]))
            self._names, found = {kept: found[0]}, [kept]
        self._found = found
        nothing = np.zeros((16, 16, 3), np.uint8)
        # Refuses an input that takes no picture, before anything is built.
        pixels = to_input(nothing, *astuple(prepared.meaning.format))
        if prepared.meaning.fed.shape[0] != 1:
            raise RunError("several pictures need an input whose first dimension is 1")
        if feeds.main in feeds.given:
            raise RunError("--input gives values to the input that would take the pictures")
        warn_of_zeros(prepared.graph, feeds)
        return prepared.job(pixels)

    def _pictures(self, skipped: Counter[str]) -> Iterator[tuple[int, str]]:
        """Yield each picture that is to be classified, with its number among all, from 1."""
        left = self._done.copy()
        which, of = self._settings.shard or (1, 1)
        for number, path in enumerate(picture_paths(self._found, skipped), 1):
            if (number - which) % of:
                continue
            if left[path]:
                left[path] -= 1
            else:
                yield number, path

    def _classify(self, series: Series, sinks: Sinks) -> None:
        """Classify all pictures; end early where nobody reads the results any more."""
        settings, meaning = self._settings, self._prepared.meaning
        numbers: deque[int] = deque()  # of the pictures under way

        def paths() -> Iterator[str]:
            for number, path in self._pictures(self._skipped):
                numbers.append(number)
                yield path

        def count() -> int:
            return sum(1 for _ in self._pictures(Counter()))

        outcomes = series.outcomes(paths(), meaning.format)
        with bars.steps("classifying", count) as step, contextlib.closing(outcomes):
            is_read = True
            for kept in outcomes:
                number, name = numbers.popleft(), self._names.get(kept.path, kept.path)
                outcome = replace(kept, path=name, error=kept.error.replace(kept.path, name))
                most = settings.num_results_of_several
                result = Result(meaning, outcome.outputs, outcome.size, most)
                if outcome.error:
                    log.error("%s", outcome.error)
                elif settings.output_dir is not None:
                    folder = picture_folder(settings.output_dir, number, name)
                    result.write(folder, _picture(kept.path, result), settings.num_results)
                if not (outcome.error or settings.is_on_stdout):
                    is_read = lines.write(self._out, result.row(name))
                with interrupts.held():  # no half of an entry
                    sinks.add(picture_entry(outcome, result))
                interrupts.check()
                step()
                if not is_read and not sinks.sinks:
                    break  # `| head` has seen enough


def _picture(path: str, result: Result) -> NDArray[np.uint8] | None:
    """Return the picture if there is something to draw: what decodes pictures keeps none."""
    try:
        return load_picture(path) if result.scene.is_drawable else None
    except (OSError, PictureError) as error:  # it is gone
        log.warning("what was found in %s is not drawn: %s", path, error)
        return None
