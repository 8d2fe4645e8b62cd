# SPDX-License-Identifier: Apache-2.0
"""Shared by the heads: their view of a model, the Head record, and boxes as arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, Tensor
from label_image.embedded_metadata import EmbeddedMetadata
from label_image.heads.value_range import ValueRange, value_range_of
from label_image.scene import BACKGROUND, Detection, Scene, Sides
from tflite_opencl.harness.feeds import scale_of
from tflite_opencl.pictures.layout import layout_of

Array = NDArray[Any]
Floats = NDArray[np.float32]

LEAST_SCORE = 0.25  # of a box, before non-maximum suppression
_MOST_OVERLAP = 0.45  # intersection over union of two boxes of a class
_MOST_CANDIDATES, _MOST_BOXES = 1000, 100
_BELOW = -0.1  # values down to here may be scores with rounding errors
_LOGITS_BELOW = -0.5
# The final factor of boxes: strides make pixels, fractions of a side make relative coordinates.
_LEAST_STRIDE, _MOST_PART = 2.0, 0.5


@dataclass(frozen=True, slots=True)
class Ambiguity:
    """Values of an output with two possible meanings.

    Attributes:
        number: of the output. axis, place: which of its values; no axis: all. kind: of KINDS: the
            possible meanings. usual: whether the second is the default.
    """

    number: int
    axis: int | None = None
    place: int = 0
    kind: str = "scores"
    usual: bool = False


KINDS = {
    "scores": ("scores", "logits"),
    "places": ("parts of the picture", "pixels"),
    "classes": ("scores", "classes"),
}


@dataclass(frozen=True, slots=True)
class View:
    """A model as its heads see it."""

    graph: Graph
    outputs: Sequence[Tensor]  # the graph's, with the shapes of a run
    input: Tensor  # the picture input
    labels: Sequence[str] = ()
    are_labels_given: bool = False  # given by the user or the model, not by a file found nearby
    embedded: EmbeddedMetadata = field(default_factory=EmbeddedMetadata)
    threshold: float | None = None  # minimum score shown; None: the model's own
    size: Sequence[int] = (1, 1)  # height and width of the picture
    arrays: Sequence[Array] = ()  # a run's outputs; () before one
    # Cached facts about the graph's outputs, the same for all runs.
    value_ranges: dict[Ambiguity, ValueRange] = field(default_factory=dict, repr=False)

    def after(self, arrays: Sequence[Array], size: Sequence[int] | None) -> View:
        """Return the view after a run; `size`: the picture's, or None: the input's."""
        outputs = [
            replace(tensor, shape=array.shape)
            for tensor, array in zip(self.graph.outputs, arrays, strict=True)
        ]
        return replace(self, outputs=outputs, arrays=arrays, size=size or self.input_size)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [tensor.shape for tensor in self.outputs]

    @property
    def input_size(self) -> tuple[int, int]:
        """The height and width of the input, (0, 0) if it takes no picture."""
        layout = layout_of(self.input.shape)
        return (0, 0) if layout is None else (layout.height, layout.width)

    def label(self, index: int) -> str:
        """Return the name of a class, or its index if it has none."""
        return self.labels[index] if 0 <= index < len(self.labels) else str(index)

    def least(self, default: float) -> float:
        """Return the minimum score shown; `default`: if neither the user nor the model sets one."""
        own = self.embedded.threshold if self.threshold is None else self.threshold
        return default if own is None else own

    def value_range(self, ambiguity: Ambiguity) -> ValueRange:
        """Return the range of these values, from the model alone."""
        if ambiguity not in self.value_ranges:
            self.value_ranges[ambiguity] = value_range_of(
                self.graph, ambiguity.number, ambiguity.axis, ambiguity.place
            )
        return self.value_ranges[ambiguity]

    def resolve(self, ambiguity: Ambiguity) -> bool | None:
        """Return whether the second meaning applies; None: the model does not tell."""
        value_range, has_parts = self.value_range(ambiguity), self.embedded.has_parts
        if ambiguity.kind == "classes":
            return self._are_classes(ambiguity.number, value_range)
        if ambiguity.kind == "scores":
            if value_range.low >= _BELOW:
                return False
            if value_range.is_linear or value_range.high <= 1 + value_range.step:
                return value_range.is_linear
            is_below = ambiguity.axis is None and -np.inf < value_range.low < _LOGITS_BELOW
            return True if is_below else False if has_parts else None
        if np.isfinite(value_range.high):
            return value_range.high > min(self.input_size) / 2
        if value_range.factor is not None and value_range.factor >= _LEAST_STRIDE:
            return True
        is_part = value_range.factor is not None and value_range.factor <= _MOST_PART
        return False if is_part or has_parts else None

    def _are_classes(self, number: int, value_range: ValueRange) -> bool | None:
        """Return whether an output has classes, not scores, by its names, type and limits."""
        tensor = self.outputs[number]
        own = [name for name, index in self.graph.output_names.items() if index == tensor.index]
        names = " ".join([*own, tensor.name]).lower()
        for word, answer in (("score", False), ("class", True), ("categor", True)):
            if word in names:
                return answer
        if value_range.is_whole:
            return True
        return False if value_range.high <= 1 + value_range.step else None

    def real(self, number: int) -> Floats:
        """Return a run's output with this index as real numbers."""
        scale, zero_point = scale_of(self.outputs[number])
        output = self.arrays[number]
        values = output.astype(np.float32)
        if scale and output.dtype.kind in "iu":
            values = (values - np.float32(zero_point)) * np.float32(scale)
        return values


@dataclass(frozen=True, slots=True)
class Head:
    """A decoder for a kind of model outputs.

    Attributes:
        name: as in --task. find: returns what identifies the outputs, or a false value if the
            head does not match. Its second argument says that the user requested the task,
            so that an ambiguous shape is a match, too.
        read: a model after a run, the value of `find` -> results. classes: how many there
            are, if shapes determine it.
        mean, std: the usual normalisation of such models, if they all share it: of pixels for
            float inputs; None: unknown.
        means: the ambiguous values of its outputs; same arguments as `read`.
    """

    name: str
    find: Callable[[View, bool], Any]
    read: Callable[[View, Any], Scene]
    classes: Callable[[View], int | None] = lambda view: None
    mean: float | None = None
    std: float | None = None
    ambiguities: Callable[[View, Any], Sequence[Ambiguity]] = lambda view, found: ()

    @property
    def task(self) -> str:
        """The model's task: the name without the kind of its outputs."""
        return self.name.partition(":")[0]


def view_of(
    graph: Graph,
    outputs: Sequence[Tensor],
    number: int,
    labels: Sequence[str],
    are_labels_given: bool,
    embedded: EmbeddedMetadata,
    threshold: float | None,
) -> View:
    """Return a model as its heads see it: one picture of a batch.

    `outputs`: the graph's, with known shapes. `number`: the index of the picture input.
    """
    taker = graph.inputs[number]
    batch = batch_of(taker)
    return View(
        graph, [_of_one(each, batch) for each in outputs], _of_one(taker, batch), labels,
        are_labels_given, embedded, threshold,
    )  # fmt: skip


def batch_of(tensor: Tensor) -> int:
    """Return the batch size of an input."""
    layout = layout_of(tensor.shape)
    return 1 if layout is None else layout.batch


def _of_one(tensor: Tensor, batch: int) -> Tensor:
    is_such = batch > 1 and tensor.shape[:1] == (batch,)
    return replace(tensor, shape=(1, *tensor.shape[1:])) if is_such else tensor


def as_scores(view: View, ambiguity: Ambiguity, values: Floats) -> Floats:
    """Return scores in 0..1 for these values of an output, which may be logits."""
    is_second = view.resolve(ambiguity)
    if ambiguity.usual if is_second is None else is_second:
        half = np.tanh(0.5 * values.astype(np.float32))  # an overflow-free logistic function
        return np.asarray(0.5 * (half + 1), np.float32)
    return values


def corners(centres: Array) -> Floats:
    """Turn x, y, width, height into left, top, right, bottom. Shapes: (n, 4) -> (n, 4)."""
    middle, half = centres[:, :2], centres[:, 2:4] / 2
    return np.concatenate([middle - half, middle + half], axis=1).astype(np.float32)


def parts(view: View, ambiguity: Ambiguity, sides: Floats) -> Floats:
    """Return boxes or points relative to the picture: some models use input pixels.

    Shapes: (n, 2 or 4) -> the same
    """
    height, width = view.input_size
    is_second = view.resolve(ambiguity)
    if ambiguity.usual if is_second is None else is_second:
        return np.divide(sides, [width, height] * (sides.shape[1] // 2), dtype=np.float32)
    return sides


def non_max_suppression(
    sides: Floats, scores: Floats, classes: NDArray[np.int64], least: float
) -> NDArray[np.int64]:
    """Return the indices of the remaining boxes, highest score first.

    Of overlapping boxes of a class, the one with the highest score remains.
    Shapes: sides (n, 4) as left, top, right, bottom; scores, classes (n,)
    """
    usable = np.isfinite(sides).all(axis=1) & np.isfinite(scores) & (scores >= least)
    numbers = np.flatnonzero(usable)
    left = numbers[np.argsort(-scores[numbers], kind="stable")][:_MOST_CANDIDATES]
    stay: list[int] = []
    while left.size and len(stay) < _MOST_BOXES:
        best, left = int(left[0]), left[1:]
        stay.append(best)
        rivals = classes[left] == classes[best]
        left = left[~(rivals & (_overlap(sides[best], sides[left]) > _MOST_OVERLAP))]
    return np.array(stay, np.int64)


def _overlap(one: Floats, others: Floats) -> Floats:
    """Return the intersection over union of a box with each of the others."""
    low = np.maximum(one[:2], others[:, :2])
    high = np.minimum(one[2:], others[:, 2:])
    both = np.clip(high - low, 0, None).prod(axis=1)
    areas = np.clip(others[:, 2:] - others[:, :2], 0, None).prod(axis=1)
    all_of = areas + np.clip(one[2:] - one[:2], 0, None).prod() - both
    result: Floats = both / np.maximum(all_of, np.float32(1e-12))
    return result


def best_detections(view: View, sides: Floats, scores: Floats) -> list[Detection]:
    """Return all boxes of a model after non-maximum suppression.

    Shapes: sides (n, 4) as left, top, right, bottom, relative; scores (n, classes)
    """
    classes = scores.argmax(axis=1)
    best = scores[np.arange(len(scores)), classes]
    stay = non_max_suppression(sides, best, classes, view.least(LEAST_SCORE))
    return detections_of(view, sides[stay], best[stay], classes[stay])


def detections_of(view: View, sides: Array, scores: Array, classes: Array) -> list[Detection]:
    """Return boxes in picture pixels, clipped; boxes outside are dropped.

    Shapes: sides (n, 4) as left, top, right, bottom, relative; scores, classes (n,)
    """
    height, width = view.size
    usable = np.isfinite(sides).all(axis=1) & np.isfinite(scores) & np.isfinite(classes)
    scale: NDArray[Any] = np.array([width, height, width, height], np.float64)
    pixels = np.clip(sides.astype(np.float64) * scale, 0, scale)
    usable &= (pixels[:, 2] > pixels[:, 0]) & (pixels[:, 3] > pixels[:, 1])
    # The label index of class 0: detectors do not count the background, and files may.
    first = int(bool(view.labels) and view.labels[0].strip() in BACKGROUND)
    made = []
    for i in np.flatnonzero(usable):
        index = int(classes[i]) + first
        box = Sides(*map(float, pixels[i]))
        made.append(Detection(view.label(index), float(scores[i]), box, index))
    return sorted(made, key=lambda thing: -thing.score)
