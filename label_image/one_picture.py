# SPDX-License-Identifier: Apache-2.0
"""A run on one picture, or on the values of --input: prepare, run, show, write."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, TextIO

from numpy.typing import NDArray

from delegate import NoDeviceError, Tensor
from label_image import inputs, streams
from label_image.classify import PathRun, exit_code, run_path
from label_image.compare import Comparison, compare, distance_entry, ended, wrong_text
from label_image.document import Paths, document
from label_image.drawing import write_drawn, write_found
from label_image.errors import DelegateFailed, log_error, reason_of, writing
from label_image.feeds import main_values, warn_of_zeros
from label_image.image import to_input
from label_image.job import Job
from label_image.outputs import describe, lines_of, tensors_of, write_outputs
from label_image.page.write import Ran, write_page
from label_image.prepare import Prepared
from label_image.report import comparison_text
from label_image.scene import Scene
from label_image.worker import run_in_child
from tflite_opencl.common import interrupts
from tflite_opencl.common.files import write_file
from tflite_opencl.common.profile_text import profile_text
from tflite_opencl.common.trace import chrome_json
from tflite_opencl.common.trace_perfetto import perfetto_trace

log = logging.getLogger("label_image")
_FILE_COLUMNS = 160  # of a profile that no terminal folds


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of the run."""

    is_external: bool  # an external delegate ran in the place of the CPU
    gpu: PathRun | None  # None: OpenCL was not asked for, or failed
    comparison: Comparison | None
    run: PathRun  # the run whose results are shown
    failure: str  # why OpenCL did not do it, or did it wrongly; "" = nothing to complain of
    tensors: Sequence[Tensor]  # the outputs', in the shapes they had
    is_interrupted: bool  # Ctrl-C ended it: the times are those so far
    picture: NDArray[Any] | None = None  # (h, w, 3); None: no input takes one


def classify_one(prepared: Prepared, out: TextIO, width: Callable[[TextIO], int]) -> int:
    """Run the model once, show and write what came of it, and return the exit code.

    Raises: RunError, and what reading a picture raises.
    """
    prepared.check_drawing()
    pixels, picture = _main_input(prepared)
    job = prepared.job(pixels, prepared.settings.profiling)
    outcome = replace(_run(prepared, job), picture=picture)
    if outcome.run.outputs:
        _show(prepared, outcome)
    paths = _paths(prepared, outcome)
    if outcome.gpu is not None:
        text = comparison_text(outcome.gpu, outcome.comparison, prepared.kernels, width(sys.stderr))
        streams.write(sys.stderr, text)
        if outcome.gpu.profile is not None:
            by_time = prepared.settings.profiling_order == "time"
            columns = width(sys.stderr) if sys.stderr.isatty() else _FILE_COLUMNS
            table = profile_text(outcome.gpu.profile, columns, by_time)
            streams.write(sys.stderr, table)
    if prepared.settings.trace is not None:
        _write_trace(prepared.settings.trace, outcome.gpu)
    if prepared.settings.json is not None:
        _write(prepared.settings.json, _document(prepared, outcome, paths), out)
    if prepared.settings.report is not None:
        results = {
            _path_name(prepared, name, run): _result_lines(prepared, outcome, run, scene)
            for name, (run, scene) in sorted(paths.items(), reverse=True)  # OpenCL's first
        }
        ran = Ran(outcome.run, outcome.gpu, outcome.comparison, outcome.failure, results, picture)
        write_page(prepared.settings.report, prepared, job, ran)
    return exit_code(outcome.failure, outcome.gpu.delegation if outcome.gpu else None)


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


def _run(prepared: Prepared, job: Job) -> Outcome:
    """Run the job on OpenCL where it asks for that, else or where that fails on the CPU."""
    gpu, failure = None, ""
    if job.opencl is not None:
        gpu, failure = _run_on_opencl(prepared, job)
    run = gpu or run_path(replace(job, opencl=None), prepared.runtime, prepared.graph)
    is_external = job.external is not None
    if not run.outputs:
        comparison = ended() if gpu is not None and prepared.settings.compare else None
        return Outcome(is_external, gpu, comparison, run, failure, (), True)
    tensors = tensors_of(prepared.graph, run.outputs)
    scene = prepared.meaning.scene(run.outputs)
    comparison = None
    if gpu is not None and prepared.settings.compare:
        floats = scene is None or scene.rows is None
        comparison = compare(job, gpu, prepared.runtime, prepared.graph, floats=floats)
        wrong_by = comparison.distances.wrong_by
        if wrong_by:
            name = gpu.delegation.device if gpu.delegation else "the device"
            failure = wrong_text(name, wrong_by)
            log.error("%s", failure)
            if comparison.cpu:
                log.warning("the results are the CPU's")
                run = comparison.cpu
    return Outcome(
        is_external,
        gpu,
        comparison,
        run,
        failure,
        tensors,
        interrupts.was_pressed(),
    )


def _run_on_opencl(prepared: Prepared, job: Job) -> tuple[PathRun | None, str]:
    """Return the run, or None and the reason why it failed."""
    settings = prepared.settings
    try:
        if settings.device_timeout:
            return run_in_child(job, settings.device_timeout), ""
        return run_path(job, prepared.runtime, prepared.graph), ""
    except (DelegateFailed, NoDeviceError) as error:
        log_error(error, settings.verbose)
        log.warning("the CPU runs the model instead")
        # The memory that the failed run holds must not slow down the next one.
        traceback.clear_frames(error.__traceback__)
        return None, reason_of(error)


def _scene(prepared: Prepared, outcome: Outcome, run: PathRun) -> Scene | None:
    """Return what a run says of the picture; None: nothing that is known."""
    size = None if outcome.picture is None else outcome.picture.shape[:2]
    return prepared.meaning.scene(run.outputs, size)


def _show(prepared: Prepared, outcome: Outcome) -> None:
    """Log the results, and write the outputs and the picture that were asked for."""
    scene, settings = _scene(prepared, outcome, outcome.run), prepared.settings
    for line in _result_lines(prepared, outcome, outcome.run, scene):
        log.info("%s", line)
    drawn = None
    if scene is not None and scene.is_drawable and outcome.picture is not None:
        drawn = outcome.picture, scene, prepared.meaning.labels, settings.num_results
    folder = settings.output_dir
    if folder is not None:
        with writing(folder):
            names = write_outputs(folder, outcome.run.outputs, outcome.tensors)
            if drawn is not None:
                names += write_found(folder, *drawn)
        log.info("the outputs are in %s: %s", folder, ", ".join(names))
    path = settings.output_image
    if path is not None and drawn is not None:
        with writing(path):
            write_drawn(path, *drawn)
        log.info("the picture is in %s", path)


def _result_lines(
    prepared: Prepared, outcome: Outcome, run: PathRun, scene: Scene | None
) -> list[str]:
    """Return label_image's lines for the outputs of a run; none where it has none."""
    if not run.outputs:
        return []
    described = describe(run.outputs, outcome.tensors, scene)
    return lines_of(scene, described, prepared.meaning.labels, prepared.settings.num_results)


def _path_name(prepared: Prepared, name: str, run: PathRun) -> str:
    """Return what people call a path of the document."""
    cpu = f"CPU, {prepared.kernels}"
    if name == "gpu" and run.delegation is not None and not run.delegation.delegated:
        return f"{cpu}, beside an idle OpenCL delegate"
    return {"gpu": "OpenCL", "cpu": cpu, "external": "external delegate"}[name]


def _paths(prepared: Prepared, outcome: Outcome) -> Paths:
    """Return each path's run and its results, by the path's name in the document."""
    if outcome.gpu is None:
        runs = {"external" if outcome.is_external else "cpu": outcome.run}
    else:
        cpu = outcome.comparison.cpu if outcome.comparison else None
        runs = ({"cpu": cpu} if cpu else {}) | {"gpu": outcome.gpu}
    return {name: (run, _scene(prepared, outcome, run)) for name, run in runs.items()}


def _document(prepared: Prepared, outcome: Outcome, paths: Paths) -> str:
    """Return the run as JSON."""
    settings, runtime = prepared.settings, prepared.runtime
    about: dict[str, Any] = {"model": prepared.model.name}
    if prepared.feeds.picture is not None:
        about["image"] = settings.image
    if settings.inputs:
        about["inputs"] = dict(settings.inputs)
    about["runtime"] = f"{runtime.name} {runtime.version}"
    if outcome.is_interrupted:
        about["interrupted"] = True
    if outcome.failure:
        about["failure"] = outcome.failure
    comparison = outcome.comparison
    described = {
        name: describe(run.outputs, outcome.tensors, scene)
        for name, (run, scene) in paths.items()
        if run.outputs
    }
    entries = {name: [each.entry for each in outputs] for name, outputs in described.items()}
    if comparison is not None and "gpu" in entries:
        for entry, output in zip(entries["gpu"], described["gpu"], strict=True):
            entry |= distance_entry(comparison.distances, output.number)
    labels, most = prepared.meaning.labels, settings.num_results
    return document(about, paths, labels, most, settings.threads, comparison, entries)


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


def _write(path: str, text: str, out: TextIO) -> None:
    if path == "-":
        streams.write(out, text)
    else:
        with writing(path):
            write_file(path, f"{text}\n")
