# SPDX-License-Identifier: Apache-2.0
"""A run on one picture, or on the values of --input: prepare, run, show, write."""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any, TextIO

from numpy.typing import NDArray

from label_image import inputs, streams
from label_image.classify import PathRun, exit_code, run_path
from label_image.document import document, results_entry
from label_image.drawing import write_drawn, write_found
from label_image.errors import writing
from label_image.feeds import main_values, warn_of_zeros
from label_image.image import to_input
from label_image.job import Job
from label_image.outputs import Described, describe, lines_of, tensors_of, write_outputs
from label_image.page.write import write_page
from label_image.prepare import Prepared
from label_image.ran import Ran, compare_job, run_job
from label_image.report import comparison_text
from label_image.scene import Scene
from label_image.sinks import lines_to
from label_image.worker import run_in_child
from tflite_opencl.common import interrupts
from tflite_opencl.common.files import write_file
from tflite_opencl.common.profile_text import profile_text
from tflite_opencl.common.trace import chrome_json
from tflite_opencl.common.trace_perfetto import perfetto_trace

log = logging.getLogger("label_image")
_FILE_COLUMNS = 160  # of a profile that no terminal folds


@dataclass(frozen=True, slots=True)
class _Seen:
    """What came of the run, and the picture."""

    prepared: Prepared
    ran: Ran
    picture: NDArray[Any] | None  # (h, w, 3); None: no input takes one

    def scene(self, run: PathRun) -> Scene | None:
        """Return what a run says of the picture; None: nothing that is known."""
        size = None if self.picture is None else self.picture.shape[:2]
        return self.prepared.meaning.scene(run.outputs, size)

    def described(self, run: PathRun) -> list[Described]:
        """Describe a run's outputs that are no classes of the picture."""
        tensors = tensors_of(self.prepared.graph, run.outputs) if run.outputs else ()
        return describe(run.outputs, tensors, self.scene(run))

    def lines(self, run: PathRun) -> list[str]:
        """Return label_image's lines for the outputs of a run; none where it has none."""
        most = self.prepared.settings.num_results
        labels = self.prepared.meaning.labels
        return lines_of(self.scene(run), self.described(run), labels, most) if run.outputs else []

    @property
    def paths(self) -> dict[str, PathRun]:
        """Give each path's run by its name in the document."""
        if self.ran.gpu is None:
            is_external = self.prepared.settings.external_delegate_path
            return {"external" if is_external else "cpu": self.ran.run}
        cpu = self.ran.comparison.cpu if self.ran.comparison else None
        return ({"cpu": cpu} if cpu else {}) | {"gpu": self.ran.gpu}


def classify_one(prepared: Prepared, out: TextIO, width: Callable[[TextIO], int]) -> int:
    """Run the model once, show and write what came of it, and return the exit code.

    Raises: RunError, and what reading a picture raises.
    """
    prepared.check_drawing()
    settings = prepared.settings
    pixels, picture = _main_input(prepared)
    job = prepared.job(pixels, settings.profiling)
    run = functools.partial(_run, prepared)
    ran = run_job(job, run)
    scene = _Seen(prepared, ran, picture).scene(ran.run)
    ran = compare_job(job, ran, run, prepared.graph, scene is None or scene.rows is None)
    seen = _Seen(prepared, ran, picture)
    if ran.run.outputs:
        _show(seen)
    if ran.gpu is not None:
        text = comparison_text(ran.gpu, ran.comparison, prepared.kernels, width(sys.stderr))
        streams.write(sys.stderr, text)
        if ran.gpu.profile is not None:
            by_time = settings.profiling_order == "time"
            columns = width(sys.stderr) if sys.stderr.isatty() else _FILE_COLUMNS
            table = profile_text(ran.gpu.profile, columns, by_time)
            streams.write(sys.stderr, table)
    if settings.trace is not None:
        _write_trace(settings.trace, ran.gpu)
    if settings.json is not None:
        with lines_to(settings.json, out) as write:
            write(_document(seen))
    if settings.report is not None:
        # OpenCL's first.
        paths = sorted(seen.paths.items(), reverse=True)
        results = {_path_name(prepared, name, run): seen.lines(run) for name, run in paths}
        write_page(settings.report, prepared, job, ran, results, picture)
    return exit_code(ran.failure, ran.gpu.delegation if ran.gpu else None)


def _run(prepared: Prepared, job: Job) -> PathRun:
    """Return a path's run; what uses OpenCL may have a limit, and runs in a child process then."""
    limit_s = prepared.settings.device_timeout
    if job.opencl is not None and limit_s:
        return run_in_child(job, limit_s)
    return run_path(job, prepared.runtime, prepared.graph)


def _main_input(prepared: Prepared) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return the values of the input that takes the picture, or of the first; and the picture."""
    settings, graph, feeds = prepared.settings, prepared.graph, prepared.feeds
    path, picture = "", None
    if feeds.picture is None:
        pixels = main_values(graph, feeds)
        if settings.is_image_asked:
            log.warning("--image does nothing: no input of the model is left that takes a picture")
    else:
        path = inputs.find_picture(settings.image)
        picture = inputs.read_picture(path)
        pixels = to_input(picture, *astuple(prepared.meaning.format))
    warn_of_zeros(graph, feeds)
    if settings.verbose:
        if picture is not None:
            if os.path.isfile(path):  # it may have come through a pipe
                log.info("len: %d", os.path.getsize(path))
            sizes = *picture.shape[1::-1], picture.shape[2]
            log.info("width, height, channels: %d, %d, %d", *sizes)
        log.info("input: %d", prepared.meaning.main_input.index)
        log.info("number of inputs: %d", len(graph.inputs))
        log.info("number of outputs: %d", len(graph.outputs))
    return pixels, picture


def _show(seen: _Seen) -> None:
    """Log the results, and write the outputs and the picture that were asked for."""
    prepared, run, settings = seen.prepared, seen.ran.run, seen.prepared.settings
    for line in seen.lines(run):
        log.info("%s", line)
    drawn, scene = None, seen.scene(run)
    if scene is not None and scene.is_drawable and seen.picture is not None:
        drawn = seen.picture, scene, prepared.meaning.labels, settings.num_results
    folder = settings.output_dir
    if folder is not None:
        with writing(folder):
            names = write_outputs(folder, run.outputs, tensors_of(prepared.graph, run.outputs))
            if drawn is not None:
                names += write_found(folder, *drawn)
        log.info("the outputs are in %s: %s", folder, ", ".join(names))
    path = settings.output_image
    if path is not None and drawn is not None:
        with writing(path):
            write_drawn(path, *drawn)
        log.info("the picture is in %s", path)


def _path_name(prepared: Prepared, name: str, run: PathRun) -> str:
    """Return what people call a path of the document."""
    cpu = f"CPU, {prepared.kernels}"
    if name == "gpu" and run.delegation is not None and not run.delegation.delegated:
        return f"{cpu}, beside an idle OpenCL delegate"
    return {"gpu": "OpenCL", "cpu": cpu, "external": "external delegate"}[name]


def _document(seen: _Seen) -> str:
    """Return the run as JSON."""
    prepared, ran = seen.prepared, seen.ran
    settings, runtime = prepared.settings, prepared.runtime
    about: dict[str, Any] = {"model": prepared.model.name}
    if prepared.feeds.picture is not None:
        about["image"] = settings.image
    if settings.inputs:
        about["inputs"] = dict(settings.inputs)
    about["runtime"] = f"{runtime.name} {runtime.version}"
    if interrupts.was_pressed():
        about["interrupted"] = True
    if ran.failure:
        about["failure"] = ran.failure
    distances = ran.comparison.distances if ran.comparison else None
    results = {
        name: results_entry(
            scene.entry(prepared.meaning.labels, settings.num_results) if scene else {},
            seen.described(run),
            distances if name == "gpu" else None,
        )
        for name, run in seen.paths.items()
        for scene in [seen.scene(run)]
    }
    return document(about, seen.paths, results, settings.threads, ran.comparison)


def _write_trace(path: str, gpu: PathRun | None) -> None:
    trace = None if gpu is None else gpu.trace
    if trace is None:
        log.warning("%s is not written: no node ran on OpenCL", path)
        return
    content = chrome_json(trace) if path.endswith(".json") else perfetto_trace(trace)
    with writing(path):
        write_file(path, content)
    if not trace.has_timers:
        log.warning("the device's timers do not count the work: its kernels are one slice")
    log.info("the trace is in %s: open it at https://ui.perfetto.dev", path)
