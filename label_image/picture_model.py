# SPDX-License-Identifier: Apache-2.0
"""A model's picture input, labels and outputs as one record; runs nothing.

Shared by the classes of predictors.py and the service of tflite_opencl/serve.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from delegate.inspect import Graph, infer
from label_image.decode_outputs import Meaning
from label_image.embedded_metadata import read_embedded_metadata
from label_image.heads.view import batch_of, view_of
from label_image.prepare import ModelSource, read_graph
from tflite_opencl.console.errors import RunError
from tflite_opencl.harness.feeds import feeds_of, why_not_fed
from tflite_opencl.harness.labels import labels_in
from tflite_opencl.harness.open_sizes import with_picture_size


class PictureModel:
    """How pictures enter a model and its outputs are decoded.

    Attributes:
        source: the model's path, or its content. feeds: which input gets the picture.
        labels: class names by index. meaning: of its input and its outputs.
        batch: pictures per run.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        labels: str | os.PathLike[str] | Sequence[str] | None = None,
        task: str | None = None,
        *,
        threshold: float | None = None,
        mean: float | None = None,
        std: float | None = None,
        signature: str | None = None,
        size: tuple[int, int] | None = None,
        graph: Graph | None = None,
    ) -> None:
        """Read the model; the arguments are those of Predictor, with the model's own task for None.

        `signature`: of the graph to use; None: the first. `graph`: that graph, if already read.

        Raises: RunError, delegate.ModelError: as Predictor.
        """
        self.source = model if isinstance(model, bytes) else os.fspath(model)
        name = "the model" if isinstance(self.source, bytes) else self.source
        if graph is None:
            whole = read_graph(ModelSource(name, self.source, None), signature)
            graph = with_picture_size(whole, size)
        self.feeds = feeds_of(graph, (), is_image_asked=True)
        tensor = graph.inputs[self.feeds.main]
        self.batch = batch_of(tensor)
        if self.feeds.picture is None or tensor.shape[:1] != (self.batch,):
            why = why_not_fed(graph, self.feeds)
            raise RunError(f"no input of {name} takes one picture: {why}")
        embedded = read_embedded_metadata(self.source, self.feeds.main, graph.subgraph)
        self.labels, origin = _labels(labels, embedded.labels)
        has_names, outputs = bool(self.labels), infer(graph).outputs
        view = view_of(graph, outputs, self.feeds.main, self.labels, has_names, embedded, threshold)
        self.meaning = Meaning(view, task, mean, std)
        self.meaning.check(origin or embedded.labels_from)


def _labels(
    given: str | os.PathLike[str] | Sequence[str] | None, embedded: Sequence[str]
) -> tuple[Sequence[str], str]:
    """Return the labels and their origin; raises RunError: they cannot be read."""
    if given is None:
        return embedded, ""
    if isinstance(given, (str, os.PathLike)):
        return labels_in(os.fspath(given)), os.fspath(given)
    return list(given), "labels"
