# SPDX-License-Identifier: Apache-2.0
"""What detectors and segmenters found in a picture: things in boxes, or each pixel's class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import Graph, Tensor
from label_image.feeds import scale_of
from label_image.image import layout_of
from label_image.labels import format_score

_POST_PROCESS = "TFLite_Detection_PostProcess"
_LEAST_SCORE = 0.001  # label_image's own, of a classifier's rows
_LEAST_SIZE = 8  # a mask has at least one pixel for so many of the input's, each way
# First labels of files that count the background, which a detector's classes do not.
_BACKGROUND = ("???", "background")


@dataclass(frozen=True, slots=True)
class Detector:
    """Where a model's outputs have what its last node, TFLite_Detection_PostProcess, found."""

    boxes: int  # (1, n, 4): top, left, bottom, right, as parts of the picture
    classes: int  # (1, n)
    scores: int  # (1, n)
    count: int | None  # (1,): how many of the n are found; None: all


@dataclass(frozen=True, slots=True)
class Box:
    """A thing in a picture."""

    index: int  # its class, as the labels count
    score: float
    # As parts of the picture's width and height; a thing may reach over its edge.
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, slots=True)
class Share:
    """A class of a mask."""

    index: int
    part: float  # of all pixels


@dataclass(frozen=True, slots=True)
class Scene:
    """What a model found in a picture, the most certain or largest first."""

    boxes: Sequence[Box] = ()
    mask: NDArray[np.int64] | None = field(default=None, repr=False)  # (h, w): classes
    outputs: frozenset[int] = frozenset()  # the numbers of the outputs that say so

    @property
    def shares(self) -> list[Share]:
        """Give the classes of the mask, the largest first."""
        if self.mask is None:
            return []
        found, counts = np.unique(self.mask, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        return [Share(int(found[i]), float(counts[i] / self.mask.size)) for i in order]

    def lines(
        self, labels: Sequence[str], most: int, size: tuple[int, int] | None = None
    ) -> list[str]:
        """Return `most` lines for people; `size`: the picture's height and width, if known."""
        if self.mask is not None:
            return [
                f"{100 * share.part:.1f} %: {named(share.index, labels)}"
                for share in self.shares[:most]
            ]
        return [_box_line(box, labels, size) for box in self.boxes[:most]] or ["nothing is found"]

    def entry(self, labels: Sequence[str]) -> dict[str, Any]:
        """Return all for JSON."""
        if self.mask is not None:
            shares = [
                {"index": share.index, "label": label_of(share.index, labels), "share": share.part}
                for share in self.shares
            ]
            return {"segments": shares}
        boxes = [
            {
                "index": box.index, "label": label_of(box.index, labels), "score": box.score,
                "box": {s: getattr(box, s) for s in ("left", "top", "right", "bottom")},
            }
            for box in self.boxes
        ]  # fmt: skip
        return {"detections": boxes}


def detector_of(graph: Graph) -> Detector | None:
    """Return where a detector's boxes are; None: the model is none that is known."""
    for node in graph.nodes:
        if node.op == _POST_PROCESS and len(node.outputs) >= 3:
            places = [
                graph.outputs.index(tensor) if tensor in graph.outputs else None
                for tensor in node.outputs
            ]
            boxes, classes, scores, *count = places
            if boxes is not None and classes is not None and scores is not None:
                return Detector(boxes, classes, scores, count[0] if count else None)
    return None


def is_mask(outputs: Sequence[Tensor], fed: Tensor, has_labels: bool = False) -> bool:
    """Whether the only output has a class for each pixel of the input, or scores of each.

    `has_labels`: somebody gave names of classes. Without them three or four channels are taken
    for colours.
    """
    picture = layout_of(fed.shape)
    if picture is None or len(outputs) != 1:
        return False
    output = outputs[0]
    shape = output.shape
    if len(shape) not in (3, 4) or shape[0] != 1:
        return False
    if shape[1] * _LEAST_SIZE < picture.height or shape[2] * _LEAST_SIZE < picture.width:
        return False
    if min(shape[1:3]) < 2:
        return False
    if len(shape) == 3 or shape[3] == 1:  # a class a pixel
        return np.dtype(output.dtype).kind in "iu" and not scale_of(output)[0]
    return np.dtype(output.dtype).kind in "iuf" and (has_labels or shape[3] not in (3, 4))


def scene_of(
    graph: Graph,
    outputs: Sequence[NDArray[Any]],
    tensors: Sequence[Tensor],
    fed: Tensor,
    labels: Sequence[str],
) -> Scene | None:
    """Return what the outputs of a run say; None: the model neither detects nor segments.

    `tensors`: the outputs', in the shapes they had; `fed`: the input with the picture.
    """
    detector = detector_of(graph)
    if detector is not None:
        return _boxes(detector, outputs, labels)
    if graph.outputs[0] in graph.inputs or not is_mask(tensors, fed, bool(labels)):
        return None  # what a model passes on is no result of it
    values = outputs[0][0]
    if values.ndim == 3:
        values = values[..., 0] if values.shape[2] == 1 else values.argmax(-1)
    return Scene(mask=values.astype(np.int64), outputs=frozenset({0}))


def found_only(graph: Graph, outputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
    """Return the outputs of a run, with zeros where a detector found nothing.

    TFLite leaves there what the memory held, which differs from run to run.
    """
    detector = detector_of(graph)
    if detector is None or detector.count is None or not outputs[detector.count].size:
        return tuple(outputs)
    count = max(0, int(outputs[detector.count].reshape(-1)[0]))
    found = [output.copy() for output in outputs]
    for number in (detector.boxes, detector.classes, detector.scores):
        if found[number].ndim > 1:
            found[number][:, count:] = 0
    return tuple(found)


def _boxes(found: Detector, outputs: Sequence[NDArray[Any]], labels: Sequence[str]) -> Scene:
    boxes = outputs[found.boxes].reshape(-1, 4).astype(np.float64)
    classes, scores = (outputs[n].reshape(-1) for n in (found.classes, found.scores))
    count = min(len(boxes), len(classes), len(scores))
    if found.count is not None and outputs[found.count].size:
        count = min(count, max(0, int(outputs[found.count].reshape(-1)[0])))
    first = int(bool(labels) and labels[0].strip() in _BACKGROUND)
    made = [
        Box(int(classes[i]) + first, float(scores[i]), *map(float, boxes[i][[1, 0, 3, 2]]))
        for i in range(count)
        if scores[i] >= _LEAST_SCORE and np.isfinite(boxes[i]).all() and np.isfinite(classes[i])
    ]
    made.sort(key=lambda box: -box.score)
    numbers = {found.boxes, found.classes, found.scores, found.count} - {None}
    return Scene(made, outputs=frozenset(n for n in numbers if n is not None))


def label_of(index: int, labels: Sequence[str]) -> str | None:
    """Return the name of a class; None: there is none."""
    return labels[index] if 0 <= index < len(labels) else None


def named(index: int, labels: Sequence[str]) -> str:
    """Return `15 person`, or the number alone."""
    label = label_of(index, labels)
    return str(index) if label is None else f"{index} {label}"


def _box_line(box: Box, labels: Sequence[str], size: tuple[int, int] | None) -> str:
    sides = {"left": box.left, "top": box.top, "right": box.right, "bottom": box.bottom}
    texts = [f"{side} {part:.3f}" for side, part in sides.items()]
    if size is not None:
        height, width = size
        pixels = (width, height, width, height)
        texts = [f"{s} {p * n:.0f}" for (s, p), n in zip(sides.items(), pixels, strict=True)]
    return f"{format_score(box.score)}: {named(box.index, labels)}, {', '.join(texts)}"
