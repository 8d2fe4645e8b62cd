# SPDX-License-Identifier: Apache-2.0
"""A run on several pictures: prepare, classify each, show a row and write an entry for each."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, field
from typing import TextIO

import numpy as np

from label_image import inputs, streams
from label_image.errors import ERROR, NO_DEVICE, SUCCESS, RunError, writing
from label_image.feeds import warn_of_zeros
from label_image.heads.registry import is_classifier
from label_image.image import to_input
from label_image.job import Job
from label_image.outcome import Outcome
from label_image.outputs import Described, describe, picture_folder, tensors_of, write_outputs
from label_image.prepare import Prepared
from label_image.scene import Scene
from label_image.series import Series
from label_image.several_report import Document, Lines, row_text, summary_text
from tflite_opencl.common import bars, interrupts
from tflite_opencl.common.files import replaced_file

log = logging.getLogger("label_image")


@dataclass(frozen=True, slots=True)
class _Task:
    """The pictures and how their results are shown."""

    prepared: Prepared
    found: Sequence[str]  # files and folders
    job: Job
    # Pictures of folders that no installed reader reads, by what reads them.
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def other(self) -> str:
        """The document's name of the path beside OpenCL."""
        return "external" if self.job.external else "cpu"


def classify_several(prepared: Prepared, out: TextIO, width: Callable[[TextIO], int]) -> int:
    """Run the model on each picture, show and write what comes of it, and return the exit code.

    Raises: RunError, DefaultModelError or DecoderFailed: something is wrong with all pictures.
    """
    task = _task(prepared)
    settings = prepared.settings
    floats = not is_classifier(prepared.meaning.view(), settings.task)
    with contextlib.ExitStack() as stack:
        document = _open_document(stack, prepared, out)
        lines = _open_lines(stack, prepared, out)
        sinks = [sink for sink in (document, lines) if sink is not None]
        series = stack.enter_context(
            Series(
                task.job,
                prepared.runtime,
                prepared.graph,
                settings.batch,
                floats,
                settings.compares_all,
            )
        )
        with contextlib.suppress(KeyboardInterrupt):  # what is done is shown and written
            _classify(task, series, sinks, out)
        if document:
            with interrupts.held():
                document.end(
                    series, settings.threads, task.other,
                    sum(task.skipped.values()), interrupts.was_pressed(),
                )  # fmt: skip
    if task.skipped:
        log.warning("skipped what no installed reader reads: %s", inputs.skipped_text(task.skipped))
    other = "CPU" if task.other == "cpu" else "EXTERNAL"
    text = summary_text(series, prepared.kernels, other, width(sys.stderr))
    streams.write(sys.stderr, text)
    if series.totals.unreadable:
        return ERROR
    return NO_DEVICE if series.failure else SUCCESS


def _task(prepared: Prepared) -> _Task:
    settings, graph, feeds = prepared.settings, prepared.graph, prepared.feeds
    for name, asked in (
        ("count", settings.count > 1),
        ("profiling", settings.profiling),
        ("trace", settings.trace is not None),
        ("report", settings.report is not None),
        ("output_image", settings.output_image is not None),
        ("device_timeout", settings.device_timeout),
    ):
        if asked:
            log.warning("--%s does nothing with several pictures", name)
    found = inputs.find_pictures(settings.pictures or [settings.image])
    nothing = np.zeros((16, 16, 3), np.uint8)
    # Refuses an input that takes no picture, before anything is built.
    pixels = to_input(nothing, *astuple(prepared.meaning.format))
    if prepared.meaning.main_input.shape[0] != 1:
        raise RunError("several pictures need an input whose first dimension is 1")
    if feeds.main in feeds.given:
        raise RunError("--input gives values to the input that would take the pictures")
    warn_of_zeros(graph, feeds)
    job = prepared.job(pixels, profiling=False)
    return _Task(prepared, found, job)


def _open_document(stack: contextlib.ExitStack, prepared: Prepared, out: TextIO) -> Document | None:
    """Begin the JSON document, if one is asked for."""
    path, runtime = prepared.settings.json, prepared.runtime
    if path is None:
        return None
    about = {"model": prepared.model.name, "runtime": f"{runtime.name} {runtime.version}"}
    if path == "-":
        return Document(functools.partial(streams.write, out), about)
    return Document(stack.enter_context(_json_lines(path)), about)


def _open_lines(stack: contextlib.ExitStack, prepared: Prepared, out: TextIO) -> Lines | None:
    """Begin the lines of JSON, if they are asked for."""
    path = prepared.settings.json_lines
    if path is None:
        return None
    about = {"model": prepared.model.name}
    if path == "-":
        return Lines(functools.partial(streams.write, out), about)
    return Lines(stack.enter_context(_json_lines(path)), about)


def _classify(task: _Task, series: Series, sinks: Sequence[Document | Lines], out: TextIO) -> None:
    """Classify all pictures; end early where nobody reads the results any more."""
    settings, meaning = task.prepared.settings, task.prepared.meaning
    most = settings.num_results_of_several
    with contextlib.ExitStack() as stack:
        step = stack.enter_context(
            bars.steps("classifying", lambda: sum(1 for _ in inputs.picture_paths(task.found)))
        )
        paths = inputs.picture_paths(task.found, task.skipped)
        outcomes = series.outcomes(paths, meaning.format)
        stack.enter_context(contextlib.closing(outcomes))
        is_read = True
        for number, outcome in enumerate(outcomes, 1):
            scene = meaning.scene(outcome.outputs, outcome.size)
            outputs = _results(task, outcome, number, scene)
            if "-" not in (settings.json, settings.json_lines) and not outcome.error:
                is_read = streams.write(
                    out, row_text(outcome.path, scene, outputs, meaning.labels, most)
                )
            entry = {} if scene is None else scene.entry(meaning.labels, most)
            with interrupts.held():  # no half of an entry
                for sink in sinks:
                    sink.add(outcome, outputs, entry)
            interrupts.check()
            step()
            if not is_read and not sinks:
                break  # `| head` has seen enough


def _results(task: _Task, outcome: Outcome, number: int, scene: Scene | None) -> list[Described]:
    """Return a picture's other outputs; write its outputs if --output_dir asks for them.

    `number`: the picture's, from 1.
    """
    if outcome.error:
        log.error("%s", outcome.error)
        return []
    prepared, settings = task.prepared, task.prepared.settings
    tensors = tensors_of(prepared.graph, outcome.outputs)
    if settings.output_dir is not None:
        folder = picture_folder(settings.output_dir, number, outcome.path)
        with writing(folder):
            write_outputs(folder, outcome.outputs, tensors)
    return describe(outcome.outputs, tensors, scene)


@contextlib.contextmanager
def _json_lines(path: str) -> Iterator[Callable[[str], object]]:
    """Give a function that writes a line; the file is there when all lines are."""
    with contextlib.ExitStack() as stack:
        with writing(path):
            file = stack.enter_context(replaced_file(path))

        def write(line: str) -> None:
            with writing(path):
                file.write(line + "\n")

        yield write
        with writing(path):
            stack.close()
