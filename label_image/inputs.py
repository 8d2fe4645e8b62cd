# SPDX-License-Identifier: Apache-2.0
"""What a run starts from: the model, labels and picture that the command line means.

Files, fetched official models and the embedded default, in this order.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, read_model
from label_image.default_model import default_labels, default_model, sample_picture
from label_image.errors import RunError
from label_image.flag_table import DEFAULT_LABELS, DEFAULT_MODEL
from label_image.image import load_picture
from label_image.labels import read_labels
from label_image.picture_file import STDIN, is_file
from label_image.readers import is_picture_name, missing_reader
from tflite_opencl.common.fetch import OFFICIAL, Progress, fetched

log = logging.getLogger("label_image")

LABELS_NAME = "imagenet_labels"  # among the official files


@dataclass(frozen=True, slots=True)
class Model:
    """The model to run."""

    name: str  # as label_image's lines show it
    source: str | bytes  # its file, or, where no file can be written, its content
    labels: str | None  # the file of labels that is looked for; None: the default's class names


def find_model(name: str | None, progress: Progress) -> Model:
    """Return the model; building the default may take a while.

    Raises: DefaultModelError: the embedded default is meant and cannot be had. FetchError: an
        official file in the cache is damaged.
    """
    if name is None and not os.path.exists(DEFAULT_MODEL):
        source = default_model(progress)
        if isinstance(source, bytes):
            return Model("the default model", source, None)
        return Model(str(source), str(source), None)
    path = name or DEFAULT_MODEL
    labels = DEFAULT_LABELS
    if not os.path.exists(path) and (official := fetched(path)) is not None:
        path = str(official)
        if not os.path.exists(labels):
            labels = str(fetched(LABELS_NAME) or labels)
    return Model(path, path, labels)


def read_graph(model: Model) -> Graph:
    """Return the model's graph, which has an input and an output.

    Raises:
        RunError: there is no such file, or it lacks one of these.
        ModelError: the file is damaged or foreign.
    """
    try:
        graph = read_model(model.source)
    except OSError as error:
        line = f"Failed to mmap model {model.name}"
        if model.name in OFFICIAL:
            line += f": it is not in the cache yet, label_image --fetch {model.name} downloads it"
        else:
            line += f": {error.strerror or error}"
        raise RunError(line) from error
    for part, what in ((graph.inputs, "input"), (graph.outputs, "output")):
        if not part:
            raise RunError(f"the model {model.name} has no {what}: there is nothing to run")
    return graph


def find_picture(name: str) -> str:
    """Return the picture's path: the name itself, or the sample picture of that name.

    Raises: DefaultModelError: the sample is meant and not installed.
    """
    if name == STDIN or os.path.exists(name) or (sample := sample_picture(name)) is None:
        return name
    log.info("there is no file %s: using the sample picture %s", name, sample)
    return str(sample)


def find_pictures(names: Sequence[str]) -> list[str]:
    """Return the files and folders meant; a folder without a picture costs a warning.

    Raises:
        RunError: there is nothing but folders without a picture. DefaultModelError: as
            find_picture.
    """
    found, empty = [], []
    for name in names:
        if not os.path.isdir(name):
            found.append(find_picture(name))
            continue
        skipped: Counter[str] = Counter()
        if next(picture_paths([name], skipped), None) is not None:
            found.append(name)
            continue
        text = f"there is no picture in the folder {name}"
        empty.append(f"{text} that can be read: {skipped_text(skipped)}" if skipped else text)
    if not found:
        raise RunError("; ".join(empty))
    for text in empty:
        log.warning("%s", text)
    return found


def picture_paths(found: Sequence[str], skipped: Counter[str] | None = None) -> Iterator[str]:
    """Yield each file, and of each folder every picture inside, in the order of the file names.

    Sub-folders come after a folder's files; one that cannot be read is yielded itself. Hidden
    files and folders inside are left out, and so are pipes and devices.
    `skipped`: counts pictures that no installed reader reads, by what reads them.
    """
    for name in found:
        if not os.path.isdir(name):
            yield name
            continue
        errors: list[OSError] = []
        for parent, folders, files in os.walk(name, onerror=errors.append):
            folders[:] = sorted(folder for folder in folders if not folder.startswith("."))
            for file in sorted(files):
                if file.startswith(".") or not is_picture_name(file):
                    continue
                path = os.path.join(parent, file)
                if reader := missing_reader(file):
                    if skipped is not None:
                        skipped[f"{reader.format} ({reader.install})"] += 1
                elif is_file(path):
                    yield path
        yield from (error.filename for error in errors)


def skipped_text(skipped: Counter[str]) -> str:
    """Return what was skipped, for people: "2 HEIC (pip install pillow-heif)"."""
    return ", ".join(f"{count} {what}" for what, count in skipped.items())


def read_picture(path: str) -> NDArray[np.uint8]:
    """Return the pixels of the run's only picture, which may come through a pipe.

    Raises:
        RunError: there is no such file.
        PictureError: it cannot be used.
    """
    try:
        return load_picture(path, may_wait=True)
    except FileNotFoundError as error:
        raise RunError(f"input file {path} not found", logging.CRITICAL) from error


def find_labels(model: Model, asked: str | None, carried: Sequence[str]) -> Sequence[str]:
    """Return the labels; position = class. Without any, a model is shown without.

    `asked`: the file of --labels. `carried`: the model's own.
    Raises: RunError: as `labels_in`. DefaultModelError: the default's are not installed.
    """
    if asked is None and carried:
        return carried
    if asked is None and model.labels is None:
        return default_labels()
    path = asked or str(model.labels)
    if asked is None and not os.path.isfile(path):
        return ()
    return labels_in(path)


def labels_in(path: str) -> Sequence[str]:
    """Return the labels of a file; raises RunError: there is no such file, or it is no text."""
    try:
        return read_labels(path)
    except FileNotFoundError as error:
        raise RunError(f"Labels file {path} not found") from error
    except OSError as error:
        raise RunError(f"Labels file {path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise RunError(f"Labels file {path} {error}") from None
