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
from dataclasses import astuple, replace
from types import FrameType
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from delegate import (
    DelegateError,
    Graph,
    NoDeviceError,
    Tensor,
    list_devices,
    read_device_profile,
)
from delegate.child import stdout_kept_apart
from label_image import flags, inputs, report, several_report, streams
from label_image.classify import DelegateFailed, Job, PathRun, RunError, reason_of, run_path
from label_image.compare import compare, distances
from label_image.decoder import Format
from label_image.decoders import DecoderFailed
from label_image.default_model import DefaultModelError
from label_image.feeds import Feeds, feeds_of, main_values, scale_of, warn_of_zeros
from label_image.flags import Settings, UsageError
from label_image.image import PictureError, to_input
from label_image.labels import Row, format_row, top_results
from label_image.outputs import (
    Described,
    are_scores,
    are_surely_scores,
    describe,
    folder_obstacle,
    may_be_scores,
    picture_folder,
    tensors_of,
    write_outputs,
)
from label_image.several import Series
from label_image.verbose import model_lines
from label_image.worker import run_in_child
from tflite_opencl import __version__
from tflite_opencl.common.fetch import OFFICIAL, FetchError, fetch
from tflite_opencl.common.runtime import Runtime, RuntimeMissing, find_runtime

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
            out = stack.enter_context(stdout_kept_apart())
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
    if settings.output_dir and (obstacle := folder_obstacle(settings.output_dir)):
        raise RunError(f"cannot write {settings.output_dir}: {obstacle}")
    if settings.device_profile is not None:
        # Before anything is built: a wrong one is no reason to run on the CPU.
        profile = read_device_profile(settings.device_profile)
        log.info("Keeping the limits of %s: %s", profile.name, profile.description)
    runtime = find_runtime()
    with streams.progress("building the default model") as progress:
        model = inputs.find_model(settings.tflite_model, settings.labels, progress)
    graph = inputs.read_graph(model)
    log.info("Loaded model %s", model.name)
    log.info("resolved reporter")
    if settings.verbose:
        for line in model_lines(graph):
            log.info("%s", line)
    feeds = feeds_of(graph, settings.inputs)
    if settings.pictures or settings.batch or os.path.isdir(settings.image):
        return _classify_several(settings, out, interrupted, runtime, model, graph, feeds)
    main_input = graph.inputs[feeds.main]
    if feeds.picture is None:
        pixels = main_values(graph, feeds)
        if settings.is_image_asked:
            log.warning("--image does nothing: no input of the model is left that takes a picture")
    else:
        picture_path = inputs.find_picture(settings.image)
        picture = inputs.read_picture(picture_path)
        pixels = to_input(picture, *astuple(_format(settings, main_input)))
    warn_of_zeros(graph, feeds)
    if settings.verbose:
        if feeds.picture is not None:
            log.info("len: %d", os.path.getsize(picture_path))
            sizes = *picture.shape[1::-1], picture.shape[2]
            log.info("width, height, channels: %d, %d, %d", *sizes)
        log.info("input: %d", main_input.index)
        log.info("number of inputs: %d", len(graph.inputs))
        log.info("number of outputs: %d", len(graph.outputs))
    job = _job(settings, model.source, pixels, graph, feeds)

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

    tensors = tensors_of(graph, run.outputs)
    labels = _labels(settings, model, tensors, main_input)
    has_scores = are_scores(tensors, main_input, len(labels))

    def results(of: PathRun) -> list[Row]:
        if not has_scores:
            return []
        return _top_rows(of.outputs, graph, main_input, settings.num_results)

    comparison = None
    if gpu is not None and settings.compare:
        comparison = compare(job, gpu, runtime, graph, floats=not has_scores)
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
    for row in rows:
        log.info("%s", format_row(row, labels))
    for output in _described(run.outputs, tensors, has_scores):
        for line in output.lines:
            log.info("%s", line)
    if settings.output_dir is not None:
        with _writing(settings.output_dir):
            names = write_outputs(settings.output_dir, run.outputs, tensors)
        log.info("the outputs are in %s: %s", settings.output_dir, ", ".join(names))

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
        about: dict[str, Any] = {"model": model.name}
        if feeds.picture is not None:
            about["image"] = settings.image
        if settings.inputs:
            about["inputs"] = dict(settings.inputs)
        about["runtime"] = f"{runtime.name} {runtime.version}"
        if failure:
            about["failure"] = failure
        described = {
            name: [output.entry for output in _described(path.outputs, tensors, has_scores)]
            for name, (path, _) in paths.items()
        }
        if comparison is not None:
            ours = comparison.gpu_to_reference, comparison.gpu_to_cpu
            for number, entry in enumerate(described["gpu"], 1 if has_scores else 0):
                entry |= distances(*ours, number)
        document = report.document(
            about, paths, labels, settings.threads, comparison, described, has_scores
        )
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
    feeds: Feeds,
) -> int:
    for name, asked in (
        ("count", settings.count > 1),
        ("profiling", settings.profiling),
        ("device_timeout", settings.device_timeout),
    ):
        if asked:
            log.warning("--%s does nothing with several pictures", name)
    found = inputs.find_pictures(settings.pictures or [settings.image])
    main_input = graph.inputs[feeds.main]
    labels = _labels(settings, model, graph.outputs, main_input)
    has_scores = are_scores(graph.outputs, main_input, len(labels))
    format = _format(settings, main_input)
    nothing = np.zeros((16, 16, 3), np.uint8)
    # Refuses what is no picture's tensor, before anything is built.
    pixels = to_input(nothing, *astuple(format))
    if feeds.main in feeds.given:
        raise RunError("--input gives values to the input that would take the pictures")
    warn_of_zeros(graph, feeds)
    job = _job(replace(settings, profiling=False), model.source, pixels, graph, feeds)
    about = {"model": model.name, "runtime": f"{runtime.name} {runtime.version}"}
    other = "external" if job.external else "cpu"

    with contextlib.ExitStack() as stack:
        document, is_read = None, True
        if settings.json == "-":
            document = several_report.Document(functools.partial(streams.write, out), about)
        elif settings.json is not None:
            write = stack.enter_context(_json_lines(settings.json))
            document = several_report.Document(write, about)
        series = stack.enter_context(
            Series(job, runtime, graph, settings.batch, interrupted, floats=not has_scores)
        )
        step = stack.enter_context(
            streams.bar("classifying", lambda: sum(1 for _ in inputs.picture_paths(found)))
        )
        outcomes = series.outcomes(inputs.picture_paths(found), format)
        stack.enter_context(contextlib.closing(outcomes))
        for number, outcome in enumerate(outcomes, 1):
            rows: list[Row] = []
            described: Sequence[Described] = ()
            if outcome.error:
                log.error("%s", outcome.error)
            else:
                tensors = tensors_of(graph, outcome.outputs)
                described = _described(outcome.outputs, tensors, has_scores)
                if has_scores:
                    count = settings.num_results_of_several
                    rows = _top_rows(outcome.outputs, graph, main_input, count)
                if settings.output_dir is not None:
                    folder = picture_folder(settings.output_dir, number, outcome.path)
                    with _writing(folder):
                        write_outputs(folder, outcome.outputs, tensors)
            if settings.json != "-" and not outcome.error:
                row = several_report.row_text(outcome.path, rows, labels, described)
                is_read = streams.write(out, row)
            if document:
                document.add(outcome, rows, labels, described, has_scores)
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
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"cannot write {path}: {reason}") from error


def _format(settings: Settings, tensor: Tensor) -> Format:
    scale, zero_point = scale_of(tensor)
    mean, std = settings.input_mean, settings.input_std
    return Format(tensor.shape, tensor.dtype, mean, std, scale, zero_point)


def _labels(
    settings: Settings, model: inputs.Model, outputs: Sequence[Tensor], fed: Tensor
) -> Sequence[str]:
    if not may_be_scores(outputs[0], fed):
        return ()
    try:
        return inputs.find_labels(model.labels)
    except RunError:
        # label_image insists on labels; what it could not run at all may do without.
        is_its_own = are_surely_scores(outputs, fed) and len(fed.shape) == 4 and fed.shape[3] == 3
        if settings.labels is not None or is_its_own:
            raise
        return ()


def _described(
    outputs: Sequence[NDArray[Any]], tensors: Sequence[Tensor], has_scores: bool
) -> list[Described]:
    """Describe the outputs that are not shown as rows."""
    return describe(outputs, tensors)[1 if has_scores else 0 :]


def _job(
    settings: Settings, model: str | bytes, pixels: NDArray[Any], graph: Graph, feeds: Feeds
) -> Job:
    opencl = None
    if settings.use_gpu and not settings.external_delegate_path:
        device = settings.device or os.environ.get(DEVICE_VARIABLE) or None
        opencl = {
            "device": int(device) if device and device.isdecimal() else device,
            "exclude_ops": inputs.known_ops(settings.exclude_ops, graph),
            "min_nodes_per_partition": settings.min_nodes_per_partition,
            "max_delegated_partitions": settings.max_delegated_partitions,
            "tune": settings.tune,
            "device_profile": settings.device_profile,
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
        input_number=feeds.main,
        other_inputs=feeds.others,
    )


def _top_rows(outputs: Sequence[NDArray[Any]], graph: Graph, fed: Tensor, count: int) -> list[Row]:
    scale, zero_point = scale_of(graph.outputs[0])
    return top_results(outputs[0], fed.dtype, count, scale=scale, zero_point=zero_point)


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
