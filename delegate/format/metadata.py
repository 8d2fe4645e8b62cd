# SPDX-License-Identifier: Apache-2.0
"""TFLite model metadata: the author's description of inputs and outputs.

It is a separate flatbuffer in one of the model's buffers. Source:
tensorflow_lite_support/metadata/metadata_schema.fbs of tflite-support, version 1.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from delegate.format.constants import buffer_span
from delegate.format.source import Source, named, open_model
from delegate.format.table import File, Table

_NAME = "TFLITE_METADATA"  # of the entry in Model.metadata
_IDENTIFIER = b"M001"

# The members of unions and enums, by number.
_CONTENTS = ("", "feature", "image", "bounding box", "audio")
_TRANSFORMS = ("identity", "log", "inverse logistic")
_KINDS = ("", "descriptions", "axis labels", "value labels", "score calibration", "vocabulary")


@dataclass(frozen=True, slots=True)
class AssociatedFile:
    """A file associated with a tensor, in the zip archive appended to the model."""

    name: str
    kind: str  # "axis labels", "value labels", "score calibration", ...; "": unspecified
    locale: str = ""  # of labels: "en"; "": the default


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """The author's description of an input or an output."""

    name: str = ""
    content: str = ""  # "feature", "image", "bounding box" or "audio"; "": unspecified
    mean: tuple[float, ...] = ()  # subtracted from pixels, one or per channel; (): unspecified
    std: tuple[float, ...] = ()  # then divided by this
    files: tuple[AssociatedFile, ...] = ()
    # Score calibration: applied before a file's parameters; "": not calibrated.
    score_transform: str = ""  # "identity", "log" or "inverse logistic"
    default_score: float = 0.0  # of a class without parameters
    threshold: float | None = None  # lower scores are to be ignored; None: unspecified


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """The author's description of one subgraph of a model, in file order."""

    name: str = ""
    inputs: tuple[TensorMetadata, ...] = ()
    outputs: tuple[TensorMetadata, ...] = ()


def read_metadata(source: Source, subgraph: int = 0) -> ModelMetadata | None:
    """Return the metadata of a model's subgraph; None: it has none.

    Raises: ModelError: the model or its metadata is damaged. OSError: the path cannot be read.
    """
    with named(source):
        content = _content(open_model(source))
        if content is None:
            return None
        root = File(content, _IDENTIFIER, "the metadata").root("ModelMetadata")
        own = next(islice(_tables(root, "subgraph_metadata"), subgraph, None), None)
        sides = [
            () if own is None else tuple(map(_tensor, _tables(own, name)))
            for name in ("input_tensor_metadata", "output_tensor_metadata")
        ]
        return ModelMetadata(root.string("name"), *sides)


def _content(view: memoryview) -> memoryview | None:
    """Return the metadata in a model's bytes."""
    file = File(view)
    model = file.root()
    for entry in model.tables("metadata", "metadata entry"):
        if entry.string("name") == _NAME:
            number = entry.scalar("buffer")
            buffers = model.tables("buffers", "buffer")
            buffer = next(islice(buffers, number, None), None)
            start, size_bytes = (0, 0) if buffer is None else buffer_span(file, buffer)
            return view[start : start + size_bytes] if size_bytes else None
    return None


def _tables(table: Table, name: str) -> Iterator[Table]:
    return table.tables(name, f"{table.where}: {name}")


def _tensor(table: Table) -> TensorMetadata:
    content = table.table("content")
    options = (unit.union("options") for unit in _tables(table, "process_units"))
    units = {each.kind: each for each in options if each is not None}
    normalisation = units.get("NormalizationOptions")
    calibration = units.get("ScoreCalibrationOptions")
    threshold = units.get("ScoreThresholdingOptions")
    transform = 0 if calibration is None else calibration.scalar("score_transformation")
    return TensorMetadata(
        name=table.string("name"),
        content="" if content is None else _word(_CONTENTS, content, "content_properties_type"),
        mean=() if normalisation is None else normalisation.numbers("mean"),
        std=() if normalisation is None else normalisation.numbers("std"),
        files=tuple(
            AssociatedFile(each.string("name"), _word(_KINDS, each, "type"), each.string("locale"))
            for each in _tables(table, "associated_files")
        ),
        score_transform="" if calibration is None else _TRANSFORMS[transform % len(_TRANSFORMS)],
        default_score=0.0 if calibration is None else calibration.scalar("default_score"),
        threshold=None if threshold is None else threshold.scalar("global_score_threshold"),
    )


def _word(words: tuple[str, ...], table: Table, field: str) -> str:
    """Return an enum member's name; "" for one of a newer schema."""
    number = int(table.scalar(field))
    return words[number] if 0 <= number < len(words) else ""
