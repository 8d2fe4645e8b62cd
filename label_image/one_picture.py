# SPDX-License-Identifier: Apache-2.0
"""A run on one picture, or on the values of --input: prepare, run, show, write."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import astuple
from typing import Any, TextIO

from numpy.typing import NDArray

from label_image import streams
from label_image.classify import PathRun, run_path
from label_image.document import document
from label_image.errors import writing
from label_image.page.write import write_page
from label_image.prepare import Prepared
from label_image.ran import Ran
from label_image.report import comparison_text
from label_image.result import Result
from label_image.sinks import lines_to
from label_image.worker import run_in_child
from tflite_opencl.common import bars, interrupts
from tflite_opencl.common.feeds import main_values, warn_of_zeros
from tflite_opencl.common.files import write_file
from tflite_opencl.common.job import Job
from tflite_opencl.common.pictures.found import find_picture, read_picture
from tflite_opencl.common.pictures.image import to_input
from tflite_opencl.common.profile_text import profile_text
from tflite_opencl.common.trace import chrome_json, perfetto_trace

log = logging.getLogger("label_image")
results = logging.getLogger("label_image.results")
_MEASURING = "\n\nmeasuring what is left; Ctrl-C ends that, and what was measured is kept"
_FILE_COLUMNS = 160  # of a profile that no terminal folds


def classify_one(prepared: Prepared, out: TextIO, width: Callable[[TextIO], int]) -> int:
    """Run the model once, show and write what came of it, and return the exit code.

    Raises: RunError, and what reading a picture raises.
    """
    prepared.check_drawing()
    settings = prepared.settings
    pixels, picture = _main_input(prepared)
    job = prepared.job(pixels, settings.profiling)
    ran = _answered(prepared, job, picture, width(sys.stderr))
    results = {name: _result(prepared, run, picture) for name, run in _paths(prepared, ran).items()}
    if ran.gpu is not None:
        streams.write(sys.stderr, _table(prepared, ran, width(sys.stderr)))
        if ran.gpu.profile is not None:
            by_time = settings.profiling_order == "time"
            columns = width(sys.stderr) if sys.stderr.isatty() else _FILE_COLUMNS
            table = profile_text(ran.gpu.profile, columns, by_time)
            streams.write(sys.stderr, table)
    if settings.trace is not None:
        _write_trace(settings.trace, ran.gpu)
    if settings.json is not None:
        with lines_to(settings.json, out) as write:
            write(_document(prepared, ran, results))
    if settings.report is not None:
        # OpenCL's first.
        paths = {
            _path_name(prepared, name, ran): (run, results[name].lines)
            for name, run in sorted(_paths(prepared, ran).items(), reverse=True)
        }
        shown = None if picture is None else _result(prepared, ran.run, picture).drawn(picture)
        write_page(settings.report, prepared, ran, paths, shown)
    return ran.exit_code()


def _answered(prepared: Prepared, job: Job, picture: NDArray[Any] | None, width: int) -> Ran:
    """Run the job on all its paths, and show its results: at once where somebody watches.

    Results that turn out to be wrong are followed by the CPU's.
    """
    ran = Ran(job, functools.partial(_run, prepared), prepared.graph)
    ran.open()
    result = _result(prepared, ran.run, picture)
    ran.floats = result.scene is None or result.scene.rows is None
    shown = ran.run if prepared.is_watched and ran.run.outputs else None
    if shown is not None:
        _show(prepared, result, picture)
    with _table_above(prepared, ran, width):
        ran.compare()
    if prepared.tunes_after:
        with _table_above(prepared, ran, width, _MEASURING):
            ran.tune()
    is_other = bool(ran.failure) and ran.run is not shown
    if ran.run.outputs and (shown is None or is_other):
        _show(prepared, _result(prepared, ran.run, picture), picture)
    return ran


def _table(prepared: Prepared, ran: Ran, width: int) -> str:
    """Return the table of the paths, of which OpenCL is one."""
    assert ran.gpu is not None
    return comparison_text(ran.gpu, ran.comparison, prepared.kernels, width, ran.untuned)


def _table_above(
    prepared: Prepared, ran: Ran, width: int, note: str = ""
) -> contextlib.AbstractContextManager[object]:
    """Show what is known so far above the bars that come."""
    if ran.gpu is None or not prepared.is_watched:
        return contextlib.nullcontext()
    return bars.below(_table(prepared, ran, width) + note)


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
        path = find_picture(settings.image)
        picture = read_picture(path)
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


def _result(prepared: Prepared, run: PathRun, picture: NDArray[Any] | None) -> Result:
    size = None if picture is None else picture.shape[:2]
    return Result(prepared.meaning, run.outputs, size, prepared.settings.num_results)


def _show(prepared: Prepared, result: Result, picture: NDArray[Any] | None) -> None:
    """Log the results, and write the outputs and the picture that were asked for."""
    settings = prepared.settings
    for line in result.lines:
        results.info("%s", line)
    if settings.output_dir is not None:
        names = result.write(settings.output_dir, picture, settings.num_results)
        log.info("the outputs are in %s: %s", settings.output_dir, ", ".join(names))
    if settings.output_image is not None and picture is not None and result.is_drawable:
        result.draw(settings.output_image, picture)
        log.info("the picture is in %s", settings.output_image)


def _paths(prepared: Prepared, ran: Ran) -> dict[str, PathRun]:
    """Return each path's run by its name in the document."""
    if ran.gpu is None:
        return {"external" if prepared.settings.external_delegate_path else "cpu": ran.run}
    cpu = ran.comparison.cpu if ran.comparison else None
    return ({"cpu": cpu} if cpu else {}) | {"gpu": ran.gpu}


def _path_name(prepared: Prepared, name: str, ran: Ran) -> str:
    """Return what people call a path of the document."""
    cpu, taken = f"CPU, {prepared.kernels}", ran.gpu.delegation if ran.gpu else None
    if name == "gpu" and taken is not None and not taken.delegated:
        return f"{cpu}, beside an idle OpenCL delegate"
    return {"gpu": "OpenCL", "cpu": cpu, "external": "external delegate"}[name]


def _document(prepared: Prepared, ran: Ran, results: Mapping[str, Result]) -> str:
    """Return the run as JSON."""
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
    entries = {
        name: result.entry(distances if name == "gpu" else None) for name, result in results.items()
    }
    return document(about, _paths(prepared, ran), entries, settings.threads, ran.comparison)


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
