# SPDX-License-Identifier: Apache-2.0
"""Metadata in a model's file besides its graph: labels, normalisation, calibration, task.

TFLite's metadata describes the zip archive appended to the model. Ultralytics' models have only
such an archive, which contains a metadata file of its own.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import logging
import math
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import ModelError
from delegate.inspect import ModelMetadata, read_metadata
from tflite_opencl.console.errors import one_line
from tflite_opencl.console.parsing import PARSING
from tflite_opencl.harness.labels import labels_of

log = logging.getLogger("label_image")

_MOST_BYTES = 1 << 24  # of all files in the archive together
_MOST_FACTS = 1 << 22  # of the Ultralytics metadata file
_MOST_CLASSES = 100_000
_FACTS = ("metadata.json", "temp_meta.txt")  # Ultralytics', JSON or a Python literal
_TASKS = {
    "classify": "classification", "detect": "detection", "pose": "pose", "segment": "detection",
}  # fmt: skip
_NOT_USED: tuple[type[Exception], ...] = (ModelError, *PARSING)
_LABELS = ("axis labels", "value labels")


@dataclass(frozen=True, slots=True)
class Calibration:
    """Score calibration of classes: scale / (1 + exp(-(slope * g(score) + offset))).

    Source: ScoreCalibrationOptions of tflite-support's metadata_schema.fbs
    """

    transform: str  # g: "identity", "log" or "inverse logistic"
    default: float  # of a class without parameters, or with a score at or below its minimum
    numbers: NDArray[np.float64]  # (classes, 4): scale, slope, offset, minimum score; NaN: none

    def __call__(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return calibrated scores. Shapes: (classes,) -> (classes,)."""
        values = scores.astype(np.float64)
        if self.transform != "identity":
            inside = np.clip(values, 1e-12, 1 - 1e-12)
            values = np.log(inside)
            if self.transform == "inverse logistic":
                values -= np.log(1 - inside)
        scale, slope, offset, least = self.numbers.T
        with np.errstate(over="ignore"):
            made = scale / (1 + np.exp(-(slope * values + offset)))
        is_made = np.isfinite(scale) & ~(scores <= least)
        return np.where(is_made, made, self.default).astype(np.float32)


@dataclass(frozen=True, slots=True)
class EmbeddedMetadata:
    """A model's description of itself; empty fields where it says nothing."""

    outputs: Sequence[str] = ()  # the outputs' names
    labels: Sequence[str] = ()
    labels_from: str = ""  # their file in the archive
    mean: Sequence[float] = ()  # of the input's pixels, one or one per channel
    std: Sequence[float] = ()
    calibration: Calibration | None = None
    threshold: float | None = None  # scores below it are to be ignored
    task: str | None = None  # the model's task
    points: Sequence[int] = ()  # of a pose: number of points, and values per point
    has_parts: bool = False  # boxes and points are relative to the picture, scores not logits


def read_embedded_metadata(
    source: str | bytes, input_number: int = 0, subgraph: int = 0
) -> EmbeddedMetadata:
    """Return a model's metadata; damaged parts are skipped with a warning.

    `input_number`: the picture input. `subgraph`: the index of its graph.
    """
    files: dict[str, bytes] = {}
    with _said("the archive behind the model"):
        files = _archive(source)
    metadata = None
    with _said("the model's metadata"):
        metadata = read_metadata(source, subgraph)
    if metadata is None:
        return _of_files(files)
    embedded = replace(_of_files(files), outputs=[each.name for each in metadata.outputs])
    if input_number < len(metadata.inputs):
        given = metadata.inputs[input_number]
        are_finite = all(map(math.isfinite, (*given.mean, *given.std)))
        if given.mean and given.std and are_finite and all(given.std):
            embedded = replace(embedded, mean=given.mean, std=given.std)
    return _with_outputs(embedded, metadata, files)


def _with_outputs(
    embedded: EmbeddedMetadata, metadata: ModelMetadata, files: Mapping[str, bytes]
) -> EmbeddedMetadata:
    """Add the outputs' metadata: of the first with labels, a calibration or a threshold."""
    for each in metadata.outputs:
        if each.threshold is not None and embedded.threshold is None:
            embedded = replace(embedded, threshold=each.threshold)
        for file in sorted(each.files, key=lambda file: file.locale not in ("", "en")):
            if file.name not in files:
                continue
            content = files[file.name]
            if file.kind in _LABELS and not embedded.labels_from:
                embedded = _with_labels(embedded, file.name, content)
            if file.kind == "score calibration" and each.score_transform:
                with _said(f"the model's {file.name}"):
                    numbers = _calibration_numbers(content)
                    calibration = Calibration(each.score_transform, each.default_score, numbers)
                    embedded = replace(embedded, calibration=calibration)
    return embedded


def _with_labels(embedded: EmbeddedMetadata, name: str, content: bytes) -> EmbeddedMetadata:
    try:
        return replace(embedded, labels=labels_of(content), labels_from=name)
    except ValueError as error:
        log.warning("the model's %s %s", name, error)
        return embedded


def _calibration_numbers(content: bytes) -> NDArray[np.float64]:
    """Return one row per class; raises ValueError: a line is malformed."""
    rows = []
    for line in labels_of(content):
        numbers = [float(word) for word in line.split(",")] if line.strip() else [math.nan] * 4
        if len(numbers) not in (3, 4):
            raise ValueError(f"'{line}' has not 3 or 4 numbers")
        rows.append([*numbers, math.nan][:4])
    return np.array(rows, np.float64).reshape(-1, 4)


def _of_files(files: Mapping[str, bytes]) -> EmbeddedMetadata:
    """Return the metadata of the bare archive: Ultralytics' file, or its only label file."""
    for name in _FACTS:
        if name in files:
            with _said(f"the model's {name}"):
                if len(files[name]) > _MOST_FACTS:
                    raise ValueError(f"it has more than {_MOST_FACTS} bytes")
                text = files[name].decode()
                read = json.loads if name.endswith(".json") else ast.literal_eval
                return _of_facts(name, read(text))
    texts = [name for name in files if name.endswith(".txt")]
    if len(texts) == 1 and "label" in texts[0]:
        return _with_labels(EmbeddedMetadata(), texts[0], files[texts[0]])
    return EmbeddedMetadata()


def _of_facts(name: str, facts: Mapping[str, Any]) -> EmbeddedMetadata:
    names = facts.get("names") or {}
    named = {int(n): str(label) for n, label in names.items()} if names else {}
    count = max(named, default=-1) + 1
    if count > _MOST_CLASSES:
        raise ValueError(f"it has {count} classes")
    labels = [named.get(number, "") for number in range(count)]
    return EmbeddedMetadata(
        labels=labels,
        labels_from=name if labels else "",
        mean=(0.0,),  # not in the file: all of their models take pixels as 0 to 1
        std=(255.0,),
        task=_TASKS.get(str(facts.get("task"))),
        points=tuple(int(number) for number in facts.get("kpt_shape") or ()),
        has_parts=True,  # as only their TFLite exporter does
    )


def _archive(source: str | bytes) -> dict[str, bytes]:
    """Return the files in the zip archive appended to a model; {} if there is none.

    Raises: one of PARSING: the archive is damaged.
    """
    if isinstance(source, str) and not os.path.isfile(source):
        return {}
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    if not zipfile.is_zipfile(file):
        return {}
    with zipfile.ZipFile(file) as archive:
        files, left = {}, _MOST_BYTES
        for entry in archive.infolist():
            left -= entry.file_size
            if left >= 0:
                files[entry.filename] = archive.read(entry)
        return files


@contextlib.contextmanager
def _said(what: str) -> Iterator[None]:
    """Warn that something unreadable is ignored."""
    try:
        yield
    except _NOT_USED as error:
        log.warning("%s is not used: %s", what, one_line(error))
