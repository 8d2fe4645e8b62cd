# SPDX-License-Identifier: Apache-2.0
"""Everything a run needs before a device is opened: model, inputs, labels, and a path's job."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import Options
from delegate.inspect import Graph, infer, read_device_profile, read_model
from label_image.console import model_lines
from label_image.decode_outputs import DRAWN, Meaning
from label_image.embedded_metadata import read_embedded_metadata
from label_image.flag_table import ALL, DEFAULT_LABELS, DEFAULT_MODEL
from label_image.heads.view import batch_of, view_of
from label_image.settings import Settings
from tflite_opencl.cli.flag_values import OutputPath, precision_of
from tflite_opencl.cli.flags import device_asked
from tflite_opencl.cli.messages import known_ops
from tflite_opencl.cli.outputs import keep_inputs
from tflite_opencl.console import bars
from tflite_opencl.console.errors import RunError, UsageError
from tflite_opencl.harness.feeds import Feeds, feeds_of, why_not_fed
from tflite_opencl.harness.job import Job
from tflite_opencl.harness.labels import class_numbers, labels_in
from tflite_opencl.harness.open_sizes import runs, with_file_shapes, with_picture_size
from tflite_opencl.interpreters.runtime import Runtime, find_runtime, runtime_if_any
from tflite_opencl.models.default_model import default_labels, default_model
from tflite_opencl.models.fetch import OFFICIAL, Progress, fetched
from tflite_opencl.oracle.judge_process import begin as begin_judge

LABELS_NAME = "imagenet_labels"  # among the official files
_COMPARED_S = 1.0  # minimum time per path for a comparison that a person reads

log = logging.getLogger("label_image")


@dataclass(frozen=True, slots=True)
class ModelSource:
    """The model to run."""

    name: str  # as displayed in label_image's lines
    source: str | bytes  # its file, or its content if no file can be written
    labels: str | None  # the label file to look for; None: the default model's class names


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A model ready to run, and the values of its inputs."""

    settings: Settings
    runtime: Runtime
    model: ModelSource
    graph: Graph
    feeds: Feeds
    meaning: Meaning

    @property
    def kernels(self) -> str:
        """The display name of the CPU's kernels."""
        return self.runtime.kernels(self.settings.cpu_kernels)

    @property
    def batch(self) -> int:
        """The batch size of the model itself."""
        return 1 if self.feeds.picture is None else batch_of(self.graph.inputs[self.feeds.picture])

    def job(self, pixels: NDArray[Any]) -> Job:
        """Return the job of the first path.

        `pixels`: the main input's values; a picture is repeated over the whole batch.

        Raises: UsageError: --exclude_ops names an unknown op.
        """
        settings = self.settings
        if self.batch > len(pixels):
            pixels = np.repeat(pixels, self.batch, axis=0)
        if settings.profiling:
            log.warning(
                "TFLite's Python runtime times no nodes on the CPU: only OpenCL's are shown"
            )
        path, opencl, tune = settings.external_delegate_path, None, settings.tune
        if settings.use_gpu:
            if tune == "auto":  # profiles need tuned kernels
                tune = "full" if self.is_watched and settings.profiles else "quick"
            asked: dict[str, Any] = {
                "device": device_asked(settings.device),
                "exclude_ops": known_ops(settings.exclude_ops, [self.graph]),
                "tune": tune,
                "precision": precision_of(
                    settings.precision, settings.allow_fp16, settings.placement
                ),
                "isolate": settings.isolates,
            }
            opencl = Options(**{**_same_names(settings, Options), **asked})
        job: dict[str, Any] = {
            "model": self.model.source,
            "input": pixels,
            "own_batch": self.batch,
            "threads": settings.cpu_threads,
            "opencl": opencl,
            "external": (path, settings.external_delegate_options) if path else None,
            "reference": bool(settings.compare),
            "profile_rows": settings.max_profiling_buffer_entries if settings.profiling else 0,
            "longer_s": _COMPARED_S if settings.compare and self.is_watched else 0.0,
            "input_number": self.feeds.main,
            "other_inputs": self.feeds.others,
        }
        return Job(**{**_same_names(settings, Job), **job})

    @property
    def tunes_after(self) -> bool:
        """Whether to tune after the results are printed."""
        settings = self.settings
        return settings.tune == "auto" and self.is_watched and not settings.profiles

    @property
    def is_watched(self) -> bool:
        """Whether somebody watches the progress."""
        return sys.stderr.isatty()

    def check_drawing(self) -> None:
        """Raise RunError if --output_image is given for a model whose results cannot be drawn."""
        if self.settings.output_image is None:
            return
        if self.feeds.picture is None:
            raise RunError("--output_image: no input of the model takes the picture")
        head = self.meaning.head
        if head is None or head.task not in DRAWN:
            text = "gives neither boxes nor points nor a mask of classes to draw"
            raise RunError(f"--output_image: {self.model.name} {text}")


def _same_names(settings: Settings, record: type) -> dict[str, Any]:
    """Return the settings that are fields of `record` under the same name."""
    names = (each.name for each in fields(record))
    return {name: getattr(settings, name) for name in names if hasattr(settings, name)}


def prepare(settings: Settings) -> PreparedRun:
    """Find and read everything the settings refer to, after checking the output paths.

    Raises: UsageError, RunError, DelegateError, DefaultModelError, RuntimeMissing.
    """
    _check_files(settings)
    if settings.device_profile is not None:
        # Before anything is built: a wrong name is no reason to fall back to the CPU.
        profile = read_device_profile(settings.device_profile)
        log.info("Keeping the limits of %s: %s", profile.name, profile.description)
    # Without OpenCL there is no runtime left.
    runtime = runtime_if_any() if settings.use_gpu else find_runtime()
    if runtime.why_not:
        text = "%s: only OpenCL runs the model, and numpy is what it is compared with"
        log.warning(text, runtime.why_not)
    if settings.use_gpu and settings.compare:
        begin_judge(runtime)
    with bars.progress("building the default model") as progress:
        model = find_model(settings.tflite_model, progress)
    graph = read_graph(model, settings.signature)
    log.info("Loaded model %s", model.name)
    log.info("resolved reporter")
    graph = _with_sizes(graph, model, settings, runtime)
    if settings.verbose:
        for line in model_lines(graph):
            log.info("%s", line)
    feeds = feeds_of(graph, settings.input, settings.is_image_asked)
    if settings.is_image_asked and feeds.picture is None:
        raise RunError(f"--image: no input takes a picture: {why_not_fed(graph, feeds)}")
    embedded = read_embedded_metadata(model.source, feeds.main, graph.subgraph)
    labels = find_labels(model, settings.labels, embedded.labels)
    try:
        classes = class_numbers(settings.classes, labels)
    except ValueError as error:
        raise UsageError(f"--classes: {error}") from None
    are_given = settings.labels is not None or bool(embedded.labels)
    labels_from = settings.labels or embedded.labels_from or model.labels or "the default model"
    view = view_of(
        graph, infer(graph).outputs, feeds.main, labels, are_given, embedded, settings.threshold
    )
    meaning = Meaning(view, settings.task, settings.input_mean, settings.input_std, classes)
    meaning.check(labels_from, feeds.picture is not None)
    return PreparedRun(settings, runtime, model, graph, feeds, meaning)


def _with_sizes(graph: Graph, model: ModelSource, settings: Settings, runtime: Runtime) -> Graph:
    """Return the graph with open input sizes fixed. Raises: UsageError: none are open."""
    graph = with_file_shapes(graph, settings.input)
    is_one = not settings.is_for_several and os.path.isfile(settings.image)
    return with_picture_size(
        graph, settings.input_size, settings.image if is_one else None,
        lambda sized: runs(sized, model.source, runtime), settings.input,
    )  # fmt: skip


def _check_files(settings: Settings) -> None:
    """Check the output paths. Raises: RunError, UsageError: one cannot be written."""
    given = {name: getattr(settings, name) for name in ALL}
    keep_inputs(given, *settings.pictures, DEFAULT_MODEL, DEFAULT_LABELS)
    files = {name: path for name, path in given.items() if isinstance(path, OutputPath)}
    on_stdout = [name for name, path in files.items() if path == "-" and ALL[name].takes_stdout]
    if len(on_stdout) > 1:
        raise UsageError(f"--{' and --'.join(on_stdout)} cannot both be stdout")
    for name, path in files.items():
        if name not in on_stdout and (obstacle := ALL[name].obstacle(path)):
            raise RunError(f"cannot write {path}: {obstacle}")


def find_model(name: str | None, progress: Progress) -> ModelSource:
    """Return the model; building the default may take a while.

    Raises: DefaultModelError: the default model is needed and not available. FetchError: an
        official file in the cache is damaged.
    """
    if name is None and not os.path.exists(DEFAULT_MODEL):
        source = default_model(progress)
        if isinstance(source, bytes):
            return ModelSource("the default model", source, None)
        return ModelSource(str(source), str(source), None)
    path = name or DEFAULT_MODEL
    labels = DEFAULT_LABELS
    if not os.path.exists(path) and (official := fetched(path)) is not None:
        path = str(official)
        if not os.path.exists(labels):
            labels = str(fetched(LABELS_NAME) or labels)
    return ModelSource(path, path, labels)


def read_graph(model: ModelSource, signature: str | None = None) -> Graph:
    """Return the model's graph of this signature, None: the first; it has an input and an output.

    Raises: RunError: there is no such file, or the graph lacks one of these. ModelError: the file
        is damaged or not a model. SignatureError: it has no such signature.
    """
    try:
        graph = read_model(model.source, signature)
    except OSError as error:
        why = error.strerror or error
        if model.name in OFFICIAL:
            why = f"it is not in the cache yet, label_image --fetch {model.name} downloads it"
        raise RunError(f"Failed to mmap model {model.name}: {why}") from error
    for part, what in ((graph.inputs, "input"), (graph.outputs, "output")):
        if not part:
            raise RunError(f"the model {model.name} has no {what}: there is nothing to run")
    return graph


def find_labels(model: ModelSource, asked: str | None, embedded: Sequence[str]) -> Sequence[str]:
    """Return the labels by class; none are required.

    `asked`: the file of --labels. `embedded`: the model's own.
    Raises: RunError: as `labels_in`. DefaultModelError: the default's are not installed.
    """
    if asked is not None:
        return labels_in(asked)
    if embedded:
        return embedded
    if model.labels is None:
        return default_labels()
    return labels_in(model.labels) if os.path.isfile(model.labels) else ()
