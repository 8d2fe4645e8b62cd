# SPDX-License-Identifier: Apache-2.0
"""A run on several pictures: prepare, classify each, show a row and write an entry for each."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from os.path import isdir
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import several_devices
from label_image import streams
from label_image.heads.registry import is_classifier
from label_image.outputs import picture_folder
from label_image.paths import Outcome
from label_image.prepare import Prepared
from label_image.result import Result
from label_image.series import Series
from label_image.several_report import picture_entry, summary_text
from label_image.written import Written
from tflite_opencl.common import bars, interrupts
from tflite_opencl.common.errors import RunError, UsageError
from tflite_opencl.common.exit_codes import ERROR
from tflite_opencl.common.feeds import warn_of_zeros
from tflite_opencl.common.flags import device_asked
from tflite_opencl.common.job import Job
from tflite_opencl.common.pictures.found import find_pictures, picture_paths, skipped_text
from tflite_opencl.common.pictures.image import load_picture, to_input
from tflite_opencl.common.pictures.picture_file import STDIN, PictureError, is_file, kept_file

log = logging.getLogger("label_image")


@dataclass(frozen=True, slots=True)
class _Task:
    """The pictures and how their results are shown."""

    prepared: Prepared
    found: Sequence[str]  # files and folders
    names: Mapping[str, str]  # what people call a file, where it is not its path
    job: Job
    # Pictures of folders that no installed reader reads, by what reads them.
    skipped: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)  # pictures of a run before

    @property
    def other(self) -> str:
        """The document's name of the path beside OpenCL."""
        return "external" if self.job.external else "cpu"

    def pictures(self, skipped: Counter[str]) -> Iterator[tuple[int, str]]:
        """Yield each picture that is to be classified, with its number among all, from 1."""
        left = self.done.copy()
        which, of = self.prepared.settings.shard or (1, 1)
        for number, path in enumerate(picture_paths(self.found, skipped), 1):
            if (number - which) % of:
                continue
            if left[path]:
                left[path] -= 1
            else:
                yield number, path

    def paths(self, numbers: deque[int]) -> Iterator[str]:
        """Yield these pictures, and keep their numbers."""
        for number, path in self.pictures(self.skipped):
            numbers.append(number)
            yield path

    def renamed(self, outcome: Outcome) -> Outcome:
        """Return the outcome with the name that people know."""
        name = self.names.get(outcome.path)
        if name is None:
            return outcome
        return replace(outcome, path=name, error=outcome.error.replace(outcome.path, name))


def classify_several(prepared: Prepared, out: TextIO, width: Callable[[TextIO], int]) -> int:
    """Run the model on each picture, show and write what comes of it, and return the exit code.

    Raises: RunError, DefaultModelError or DecoderFailed: something is wrong with all pictures.
    """
    settings = prepared.settings
    floats = not is_classifier(prepared.meaning.view(), settings.task)
    with contextlib.ExitStack() as stack:
        task = _task(stack, prepared)
        written = Written(stack, prepared, out)
        task.done.update(written.resumed())
        series = stack.enter_context(
            Series(
                task.job, prepared.runtime, prepared.graph,
                settings.batch, floats, settings.compares_all, settings.device_timeout,
            )
        )  # fmt: skip
        written.open_lines()
        with contextlib.suppress(KeyboardInterrupt):  # what is done is shown and written
            _classify(task, series, written, out)
        with interrupts.held():
            written.end(series, task.other, sum(task.skipped.values()))
    if task.skipped:
        log.warning("skipped what no installed reader reads: %s", skipped_text(task.skipped))
    other = "CPU" if task.other == "cpu" else "EXTERNAL"
    text = summary_text(series, prepared.kernels, other, width(sys.stderr), written.facts)
    streams.write(sys.stderr, text)
    is_right = written.is_expectation_met()
    if series.totals.unreadable or written.unreadable_before or not is_right:
        return ERROR
    return series.exit_code()


def _task(stack: contextlib.ExitStack, prepared: Prepared) -> _Task:
    settings, graph, feeds = prepared.settings, prepared.graph, prepared.feeds
    if settings.device_timeout and several_devices(device_asked(settings.device)):
        raise UsageError("--device_timeout is for one device, which --device names")
    found = find_pictures(settings.pictures or [settings.image])
    names = {}
    if len(found) == 1 and (found[0] == STDIN or not (is_file(found[0]) or isdir(found[0]))):
        kept = stack.enter_context(kept_file(found[0]))
        names[kept], found = found[0], [kept]
    nothing = np.zeros((16, 16, 3), np.uint8)
    # Refuses an input that takes no picture, before anything is built.
    pixels = to_input(nothing, *astuple(prepared.meaning.format))
    if prepared.meaning.main_input.shape[0] != 1:
        raise RunError("several pictures need an input whose first dimension is 1")
    if feeds.main in feeds.given:
        raise RunError("--input gives values to the input that would take the pictures")
    warn_of_zeros(graph, feeds)
    job = prepared.job(pixels, profiling=False)
    return _Task(prepared, found, names, job)


def _classify(task: _Task, series: Series, written: Written, out: TextIO) -> None:
    """Classify all pictures; end early where nobody reads the results any more."""
    settings, meaning = task.prepared.settings, task.prepared.meaning
    with contextlib.ExitStack() as stack:
        step = stack.enter_context(
            bars.steps("classifying", lambda: sum(1 for _ in task.pictures(Counter())))
        )
        numbers: deque[int] = deque()  # of the pictures under way
        outcomes = series.outcomes(task.paths(numbers), meaning.format)
        stack.enter_context(contextlib.closing(outcomes))
        is_read = True
        for kept in outcomes:
            outcome, number = task.renamed(kept), numbers.popleft()
            result = Result(meaning, outcome.outputs, outcome.size, settings.num_results_of_several)
            if outcome.error:
                log.error("%s", outcome.error)
            else:
                if settings.output_dir is not None:
                    folder = picture_folder(settings.output_dir, number, outcome.path)
                    result.write(folder, _picture(kept.path, result), settings.num_results)
                if not settings.is_on_stdout:
                    is_read = streams.write(out, result.row(outcome.path))
            with interrupts.held():  # no half of an entry
                written.add(picture_entry(outcome, result))
            interrupts.check()
            step()
            if not is_read and not written.sinks:
                break  # `| head` has seen enough


def _picture(path: str, result: Result) -> NDArray[np.uint8] | None:
    """Return the picture if there is something to draw: what decodes pictures keeps none."""
    try:
        return load_picture(path) if result.is_drawable else None
    except (OSError, PictureError) as error:  # it is gone
        log.warning("what was found in %s is not drawn: %s", path, error)
        return None
