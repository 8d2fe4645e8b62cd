# SPDX-License-Identifier: Apache-2.0
"""What a run starts from: the model and labels that the command line means.

Files, fetched official models and the embedded default, in this order.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from delegate.inspect import Graph, read_model
from label_image.flag_table import DEFAULT_LABELS, DEFAULT_MODEL
from tflite_opencl.common.default.default_model import default_labels, default_model
from tflite_opencl.common.errors import RunError
from tflite_opencl.common.fetch import OFFICIAL, Progress, fetched
from tflite_opencl.common.labels import labels_in

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
