# SPDX-License-Identifier: Apache-2.0
"""The label_image command: arguments -> run -> report. Nothing else prints or exits."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from delegate import DelegateError, Graph, NoDeviceError, list_devices
from label_image import __version__, flags, inputs, report, several_report, streams
from label_image.classify import DelegateFailed, Job, PathRun, RunError, reason_of, run_path
from label_image.compare import compare
from label_image.decoder import DecoderFailed, Format
from label_image.default_model import DefaultModelError
from label_image.fetch import OFFICIAL, FetchError, fetch
from label_image.flags import Settings, UsageError
from label_image.image import PictureError, to_input
from label_image.labels import Row, format_row, top_results
from label_image.runtime import TYPE_NUMBERS, Runtime, RuntimeMissing, find_runtime
from label_image.several import Series
from label_image.verbose import model_lines
from label_image.worker import run_in_child

SUCCESS, NO_DEVICE, INTERRUPTED, ERROR = 0, 2, 130, 255
DEVICE_VARIABLE = "TFLITE_OPENCL_DEVICE"

log = logging.getLogger("label_image")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    # PoCL pins its threads to cores only if told so before it is loaded.
    os.environ.setdefault("POCL_AFFINITY", "1")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        settings = flags.parse(sys.argv[1:] if arguments is None else arguments)
    except UsageError as error:
        if error.show_usage:
            streams.write(sys.stderr, flags.usage())
        streams.write(sys.stderr, f"ERROR: {error} (label_image --help shows all flags)")
        return ERROR
    if settings.help:
        streams.write(sys.stdout, flags.usage())
        return SUCCESS

    with contextlib.ExitStack() as stack:
        interrupted = stack.enter_context(_interrupts())
        out = sys.stdout
        if settings.json == "-":
            out = stack.enter_context(streams.stdout_kept_apart())
        stack.enter_context(streams.logging_to(sys.stdout, sys.stderr, settings.verbose))
        try:
            return _command(settings, out, interrupted)
        except KeyboardInterrupt:
            return INTERRUPTED
        except Exception as error:
            # TFLite turns an exception inside a delegate's callback into an error of its own.
            if interrupted.is_set():
                return INTERRUPTED
            _log_error(error, settings.verbose)
            return ERROR


def _command(settings: Settings, out: TextIO, interrupted: threading.Event) -> int:
    if settings.version:
        _show_versions(out)
        return SUCCESS
    if settings.list_devices:
        try:
            streams.write(out, report.devices_text(list_devices(), _width(out)))
        except NoDeviceError as error:
            log.error("%s", error)
            return NO_DEVICE
        return SUCCESS
    for warning in settings.warnings:
        log.warning("%s", warning)
    if settings.fetch is not None:
        _fetch(settings.fetch)
        return SUCCESS
    return _classify(settings, out, interrupted)


def _classify(settings: Settings, out: TextIO, interrupted: threading.Event) -> int:
    if settings.json not in (None, "-") and (obstacle := report.file_obstacle(settings.json)):
        raise RunError(f"cannot write {settings.json}: {obstacle}")
    runtime = find_runtime()
    with streams.progress("building the default model") as progress:
        model = inputs.find_model(settings.tflite_model, settings.labels, progress)
    graph = inputs.read_graph(model)
    log.info("Loaded model %s", model.name)
    log.info("resolved reporter")
    if settings.verbose:
        for line in model_lines(graph):
            log.info("%s", line)
    if settings.pictures or settings.batch or os.path.isdir(settings.image):
        return _classify_several(settings, out, interrupted, runtime, model, graph)
    picture_path = inputs.find_picture(settings.image)
    picture = inputs.read_picture(picture_path)
    first = inputs.check_input(graph)
    if settings.verbose:
        log.info("len: %d", os.path.getsize(picture_path))
        log.info("width, height, channels: %d, %d, %d", *picture.shape[1::-1], picture.shape[2])
        log.info("input: %d", first.index)
        log.info("number of inputs: %d", len(graph.inputs))
        log.info("number of outputs: %d", len(graph.outputs))
    pixels = to_input(picture, first.shape, first.dtype, settings.input_mean, settings.input_std)
    job = _job(settings, model.source, pixels, graph)

    gpu, failure = None, None
    if job.opencl is not None:
        try:
            if settings.device_timeout:
                gpu = run_in_child(job, settings.device_timeout)
            else:
                gpu = run_path(job, runtime, graph)
        except (DelegateFailed, NoDeviceError) as error:
            if interrupted.is_set():
                raise KeyboardInterrupt from error
            failure = reason_of(error)
            _log_error(error, settings.verbose)
            log.warning("the CPU runs the model instead")
            # What the failed run held in memory must not slow down the next one.
            traceback.clear_frames(error.__traceback__)
    run = gpu or run_path(replace(job, opencl=None), runtime, graph)

    def results(of: PathRun) -> list[Row]:
        return _top_rows(of.outputs, graph, settings.num_results)

    comparison = None
    if gpu is not None and settings.compare:
        comparison = compare(job, gpu, runtime, graph)
        wrong_by = comparison.gpu_to_reference.quanta
        if wrong_by and comparison.cpu:
            failure = (
                f"{gpu.delegation.device if gpu.delegation else 'the device'} computes wrongly: "
                f"its outputs are up to {wrong_by} quanta from TFLite's reference kernels"
            )
            log.error("%s", failure)
            log.warning("the results are the CPU's")
            run = comparison.cpu
    rows = results(run)
    labels = inputs.find_labels(model.labels)
    for row in rows:
        log.info("%s", format_row(row, labels))

    paths: report.Paths = {}
    if gpu is None:
        paths["external" if job.external else "cpu"] = run, rows
    else:
        if comparison and comparison.cpu:
            paths["cpu"] = comparison.cpu, results(comparison.cpu)
        paths["gpu"] = gpu, results(gpu)
        text = report.comparison_text(
            gpu, comparison, runtime.kernels(settings.cpu_kernels), _width(sys.stderr)
        )
        streams.write(sys.stderr, text)
    if settings.json is not None:
        about = {
            "model": model.name,
            "image": settings.image,
            "runtime": f"{runtime.name} {runtime.version}",
        } | ({"failure": failure} if failure else {})
        document = report.document(about, paths, labels, settings.threads, comparison)
        if settings.json == "-":
            streams.write(out, document)
        else:
            with _writing(settings.json):
                report.write_file(settings.json, document)
    return NO_DEVICE if failure else SUCCESS


def _classify_several(
    settings: Settings,
    out: TextIO,
    interrupted: threading.Event,
    runtime: Runtime,
    model: inputs.Model,
    graph: Graph,
) -> int:
    for name, asked in (
        ("count", settings.count > 1),
        ("profiling", settings.profiling),
        ("device_timeout", settings.device_timeout),
    ):
        if asked:
            log.warning("--%s does nothing with several pictures", name)
    found = inputs.find_pictures(settings.pictures or [settings.image])
    first = inputs.check_input(graph)
    labels = inputs.find_labels(model.labels)
    format = Format(first.shape, first.dtype, settings.input_mean, settings.input_std)
    nothing = np.zeros((16, 16, 3), np.uint8)
    # Refuses what is no picture's tensor, before anything is built.
    pixels = to_input(nothing, first.shape, first.dtype, settings.input_mean, settings.input_std)
    job = _job(replace(settings, profiling=False), model.source, pixels, graph)
    about = {"model": model.name, "runtime": f"{runtime.name} {runtime.version}"}
    other = "external" if job.external else "cpu"

    with contextlib.ExitStack() as stack:
        document, is_read = None, True
        if settings.json == "-":
            document = several_report.Document(functools.partial(streams.write, out), about)
        elif settings.json is not None:
            write = stack.enter_context(_json_lines(settings.json))
            document = several_report.Document(write, about)
        series = stack.enter_context(Series(job, runtime, graph, settings.batch, interrupted))
        step = stack.enter_context(
            streams.bar("classifying", lambda: sum(1 for _ in inputs.picture_paths(found)))
        )
        outcomes = series.outcomes(inputs.picture_paths(found), format)
        stack.enter_context(contextlib.closing(outcomes))
        for outcome in outcomes:
            rows: list[Row] = []
            if outcome.error:
                log.error("%s", outcome.error)
            else:
                rows = _top_rows(outcome.outputs, graph, settings.num_results_of_several)
            if settings.json != "-" and not outcome.error:
                is_read = streams.write(out, several_report.row_text(outcome.path, rows, labels))
            if document:
                document.add(outcome, rows, labels)
            step()
            if not is_read and document is None:
                break  # `| head` has seen enough
        if document:
            document.end(series, settings.threads, other)
    kernels = runtime.kernels(settings.cpu_kernels)
    text = several_report.summary_text(
        series, kernels, "CPU" if other == "cpu" else "EXTERNAL", _width(sys.stderr)
    )
    streams.write(sys.stderr, text)
    if series.totals.unreadable:
        return ERROR
    return NO_DEVICE if series.failure else SUCCESS


@contextlib.contextmanager
def _json_lines(path: str) -> Iterator[Callable[[str], object]]:
    """Give a function that writes a line; the file is there when all lines are."""
    with contextlib.ExitStack() as stack:
        with _writing(path):
            file = stack.enter_context(report.replaced_file(path))

        def write(line: str) -> None:
            with _writing(path):
                file.write(line + "\n")

        yield write
        with _writing(path):
            stack.close()


@contextlib.contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from error


def _job(settings: Settings, model: str | bytes, pixels: NDArray[Any], graph: Graph) -> Job:
    opencl = None
    if settings.use_gpu and not settings.external_delegate_path:
        device = settings.device or os.environ.get(DEVICE_VARIABLE) or None
        opencl = {
            "device": int(device) if device and device.isdecimal() else device,
            "exclude_ops": inputs.known_ops(settings.exclude_ops, graph),
            "min_nodes_per_partition": settings.min_nodes_per_partition,
            "max_delegated_partitions": settings.max_delegated_partitions,
            "tune": settings.tune,
        }
    if settings.profiling:
        log.warning("TFLite's Python runtime times no nodes on the CPU: only OpenCL's are shown")
    external = (settings.external_delegate_path, settings.external_delegate_options)
    return Job(
        model=model,
        input=pixels,
        count=settings.count,
        warmup_runs=settings.warmup_runs,
        threads=settings.threads,
        cpu_kernels=settings.cpu_kernels,
        opencl=opencl,
        external=external if settings.external_delegate_path else None,
        announce_xnnpack=settings.announce_xnnpack,
        reference=settings.compare,
        profile_rows=settings.max_profiling_buffer_entries if settings.profiling else 0,
        verbose=settings.verbose,
    )


def _top_rows(outputs: Sequence[NDArray[Any]], graph: Graph, count: int) -> list[Row]:
    output = graph.outputs[0]
    if output.dtype not in ("uint8", "int8", "float32"):
        raise RunError(f"cannot handle output type {TYPE_NUMBERS.get(output.dtype, 0)} yet")
    return top_results(outputs[0], graph.inputs[0].dtype, count)


def _fetch(name: str) -> None:
    names = [name]
    if name in OFFICIAL and name != inputs.LABELS_NAME:
        names.append(inputs.LABELS_NAME)
    for each in names:
        with streams.progress(f"fetching {each}") as progress:
            path = fetch(each, progress)
        log.info("%s is in %s", each, path)


def _show_versions(out: TextIO) -> None:
    streams.write(out, f"label_image (tflite-opencl) {__version__}")
    try:
        runtime = find_runtime()
        streams.write(out, f"TFLite runtime: {runtime.name} {runtime.version}")
    except RuntimeMissing as error:
        streams.write(out, f"TFLite runtime: none ({error})")
    try:
        for info in list_devices():
            streams.write(out, f"OpenCL driver: {info.platform} {info.driver} ({info.name})")
    except NoDeviceError as error:
        streams.write(out, f"OpenCL driver: none ({error})")


def _log_error(error: Exception, verbose: bool) -> None:
    exc_info = error if verbose else None
    if isinstance(error, RunError):
        if isinstance(error.__cause__, (RuntimeError, ValueError)):
            log.error("%s", reason_of(error.__cause__))
        log.log(error.level, "%s", error, exc_info=exc_info)
    elif isinstance(
        error,
        (
            DecoderFailed,
            DefaultModelError,
            DelegateError,
            DelegateFailed,
            FetchError,
            PictureError,
            RuntimeMissing,
        ),
    ):
        log.error("%s", error, exc_info=exc_info)
    else:
        log.error(
            "%s: %s (not expected: --verbose 1 shows where)",
            type(error).__name__, error, exc_info=exc_info,
        )  # fmt: skip


@contextlib.contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Note Ctrl-C, because a delegate's callback cannot pass a KeyboardInterrupt through TFLite."""
    interrupted = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, previous)


def _width(stream: TextIO) -> int:
    return min(shutil.get_terminal_size().columns, 100) if stream.isatty() else 80


if __name__ == "__main__":
    sys.exit(main())
