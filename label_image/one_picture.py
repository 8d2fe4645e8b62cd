# SPDX-License-Identifier: Apache-2.0
"""A run on one picture, or on the values of --input: prints and writes the results."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from dataclasses import astuple, replace
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from label_image import console
from label_image.console import log_messages, writing
from label_image.document import document
from label_image.drawing import DRAWN, MASK, draw_scene, write_drawing
from label_image.judgement import Judgement, PathResults, judge
from label_image.page.write import write_page
from label_image.prepare import PreparedRun
from label_image.report import summary_text
from label_image.result import Result, file_names
from label_image.run_result import Outputs, RunResult
from label_image.sinks import lines_to
from label_image.timed_paths import run_beside, run_first, run_tuned
from tflite_opencl.console import bars, interrupts
from tflite_opencl.console.errors import RunError
from tflite_opencl.console.files import file_obstacle, write_file
from tflite_opencl.harness.feeds import main_values, warn_of_zeros
from tflite_opencl.pictures.find_pictures import find_picture, read_picture
from tflite_opencl.pictures.image import to_input
from tflite_opencl.pictures.layout import takes_alpha
from tflite_opencl.timing.profile_text import profile_text
from tflite_opencl.timing.trace import chrome_json, perfetto_trace

_MEASURING = "\n\nmeasuring what is left; Ctrl-C ends that, and what was measured is kept"
_FILE_COLUMNS = 160  # of a profile in a file, which needs no wrapping

log = logging.getLogger("label_image")
results = logging.getLogger("label_image.results")


class OnePicture:
    """A run on one picture, or on the values of --input."""

    def __init__(self, prepared: PreparedRun, out: TextIO, width: int) -> None:
        """Read the picture; `width`: of the text on stderr. Raises: RunError, as `read_picture`."""
        prepared.check_drawing()
        _check_outputs(prepared)
        self._prepared, self._settings, self._out = prepared, prepared.settings, out
        self._width = width
        self._picture: NDArray[Any] | None = None  # None: the model has no picture input
        self._job = replace(prepared.job(self._main_input()), is_timed=True)

    def run(self) -> int:
        """Run the model, print and write the results, and return the exit code."""
        settings, judgement = self._settings, self.run_paths()
        gpu, by_name = judgement.results.gpu, judgement.results.by_name
        decoded = {name: self._result(result.outputs) for name, result in by_name.items()}
        if gpu is not None:
            console.write(sys.stderr, self._summary(judgement, settings.table_flag))
            if gpu.profile is not None:
                by_time = settings.profiling_order == "time"
                columns = self._width if sys.stderr.isatty() else _FILE_COLUMNS
                console.write(sys.stderr, profile_text(gpu.profile, columns, by_time))
        if settings.trace is not None:
            _write_trace(settings.trace, gpu)
        if settings.json is not None:
            apart = judgement.totals.distances
            entries = {n: each.entry(apart if n == "gpu" else None) for n, each in decoded.items()}
            with lines_to(settings.json, self._out) as write:
                write(document(self._about(), judgement, settings.cpu_threads, entries))
        if settings.report is not None:
            # OpenCL's comes first.
            paths = {
                self._path_name(name, result): (result, decoded[name].lines)
                for name, result in sorted(by_name.items(), reverse=True)
            }
            scene, picture = self._result(judgement.answer).scene, self._picture
            if picture is not None:
                picture = np.asarray(draw_scene(picture, scene, settings.num_results))
            write_page(settings.report, self._prepared, judgement, paths, picture)
        log_messages(judgement.end_messages)
        return judgement.exit_code

    def run_paths(self) -> Judgement:
        """Run the job on all paths, print its results, and return the verdict.

        Results are printed immediately on a terminal. Wrong ones are followed by the CPU's.
        """
        prepared = self._prepared
        results = run_first(self._job, prepared.runtime, prepared.graph)
        first = self._result(results.outputs)
        shown = results.outputs if prepared.is_watched else ()
        if shown:
            self.show(first)
        floats = first.scene.rows is None
        with self._summary_above(Judgement(results)):
            judgement = self._compare(results, floats)
        if prepared.tunes_after:
            with self._summary_above(judgement, _MEASURING):
                judgement = self._tune(judgement, floats)
        answer = judgement.answer
        is_other = bool(judgement.failure) and answer is not shown
        if answer and (not shown or is_other):
            self.show(self._result(answer))
        if judgement.not_finite:
            log.error("%s", judgement.not_finite)
        return judgement

    def _compare(self, results: PathResults, floats: bool) -> Judgement:
        """Run the other paths, and return the verdict; `floats`: as for `run_beside`."""
        results = run_beside(results, floats)
        try:
            judgement = judge(results)
        except KeyboardInterrupt:  # distances of large outputs take a while
            judgement = judge(replace(results, is_interrupted=True))
        log_messages(judgement.wrong_messages(judgement.totals.distances))
        return judgement

    def _tune(self, judgement: Judgement, floats: bool) -> Judgement:
        """Tune the kernels if that is still to do; outputs that changed are compared again."""
        results = judgement.results
        tuned = None if judgement.failure else run_tuned(results)
        if tuned is None or results.gpu is None:
            return judgement
        is_same = all(map(np.array_equal, tuned.outputs, results.gpu.outputs))
        results = replace(results, gpu=tuned, untuned=results.gpu)
        return judge(results) if is_same else self._compare(results, floats)

    def show(self, result: Result) -> None:
        """Log the results, and write the requested outputs and picture."""
        settings, picture = self._settings, self._picture
        for line in result.lines:
            results.info("%s", line)
        if settings.output_dir is not None:
            names = result.write(settings.output_dir, picture, settings.num_results)
            log.info("the outputs are in %s: %s", settings.output_dir, ", ".join(names))
        if settings.output_image is not None and picture is not None and result.scene.is_drawable:
            with writing(settings.output_image):
                write_drawing(settings.output_image, picture, result.scene, settings.num_results)
            log.info("the picture is in %s", settings.output_image)

    def _main_input(self) -> NDArray[Any]:
        """Return the values of the picture input, or of the first input."""
        settings, prepared = self._settings, self._prepared
        graph, feeds, path = prepared.graph, prepared.feeds, ""
        if feeds.picture is None:
            pixels = main_values(graph, feeds)
        else:
            path, format = find_picture(settings.image), prepared.meaning.format
            picture = read_picture(path, takes_alpha(format.shape))
            self._picture = picture[..., :3]
            pixels = to_input(picture, *astuple(format))
            if prepared.batch > 1:
                log.warning(
                    "the model takes %d pictures at once, and each of them is this one: further "
                    "arguments are the others", prepared.batch,
                )  # fmt: skip
        warn_of_zeros(graph, feeds)
        if settings.verbose:
            if self._picture is not None:
                if os.path.isfile(path):  # not a pipe
                    log.info("len: %d", os.path.getsize(path))
                height, width, channels = self._picture.shape
                log.info("width, height, channels: %d, %d, %d", width, height, channels)
            log.info("input: %d", prepared.meaning.input.index)
            log.info("number of inputs: %d", len(graph.inputs))
            log.info("number of outputs: %d", len(graph.outputs))
        return pixels

    def _summary_above(
        self, judgement: Judgement, note: str = ""
    ) -> contextlib.AbstractContextManager[object]:
        """Print the summary so far above the progress bars."""
        if judgement.results.gpu is None or not self._prepared.is_watched:
            return contextlib.nullcontext()
        flag = None if self._settings.table_flag is None else ""
        return bars.below(self._summary(judgement, flag) + note)

    def _summary(self, judgement: Judgement, flag: str | None) -> str:
        """Return the summary, as `summary_text`."""
        return summary_text(judgement, self._prepared.kernels, self._width, flag=flag)

    def _result(self, outputs: Outputs) -> Result:
        size = None if self._picture is None else self._picture.shape[:2]
        meaning, most = self._prepared.meaning, self._settings.num_results
        return Result(meaning, outputs, size, most, self._prepared.batch)

    def _path_name(self, name: str, result: RunResult) -> str:
        """Return the display name of a path of the document."""
        cpu, taken = f"CPU, {self._prepared.kernels}", result.delegation
        if taken is not None and taken.library:
            return self._job.delegates
        if taken is not None and not taken.delegated:
            return f"{cpu}, beside an idle OpenCL delegate"
        return {"gpu": "OpenCL", "cpu": cpu, "external": "external delegate"}[name]

    def _about(self) -> dict[str, Any]:
        settings, runtime = self._settings, self._prepared.runtime
        about: dict[str, Any] = {"model": self._prepared.model.name}
        if self._prepared.feeds.picture is not None:
            about["image"] = settings.image
        if settings.input:
            about["inputs"] = dict(settings.input)
        about["runtime"] = runtime.text
        return about | ({"interrupted": True} if interrupts.was_pressed() else {})


def _check_outputs(prepared: PreparedRun) -> None:
    """Check the file names of --output_dir. Raises: RunError: one is an input, or a folder."""
    folder = prepared.settings.output_dir
    if folder is None or not os.path.isdir(folder):
        return
    for name in (*file_names(prepared.graph.outputs), DRAWN, MASK):
        path = os.path.join(folder, name)
        if obstacle := file_obstacle(path):
            raise RunError(f"cannot write {path}: {obstacle}")


def _write_trace(path: str, gpu: RunResult | None) -> None:
    if gpu is None or (trace := gpu.trace) is None:
        log.warning("%s is not written: no node ran on OpenCL", path)
        return
    content = chrome_json(trace) if path.endswith(".json") else perfetto_trace(trace)
    with writing(path):
        write_file(path, content)
    if not trace.has_timers:
        log.warning("the device's timers do not count the work: its kernels are one slice")
    log.info("the trace is in %s: open it at https://ui.perfetto.dev", path)
