# SPDX-License-Identifier: Apache-2.0
"""Detectors with non-maximum suppression in the model: four outputs, or one row per box.

SSD and EfficientDet-Lite models end in the op TFLite_Detection_PostProcess; converted CenterNets
have the same four outputs without it. EfficientDets and YOLO v10 give rows.
Sources: google/automl efficientdet/tf2/postprocess.py (generate_detections); ultralytics
nn/modules/head.py (v10Detect)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from delegate.inspect import Graph
from label_image.heads.view import LEAST_SCORE as UNCHOSEN
from label_image.heads.view import Ambiguity, Array, Head, View, detections_of, parts
from label_image.scene import Scene
from tflite_opencl.harness.labels import LEAST_SCORE

_OP = "TFLite_Detection_PostProcess"
# The outputs' names in the metadata written by TensorFlow's writer for object detectors.
_NAMES = ("location", "category", "score", "number of detections")
_MOST_CHOSEN = 1000  # maximum number of boxes of a YOLO v10; 300 are usual


class PostProcessOutputs(NamedTuple):
    """The indices of the detection outputs."""

    boxes: int  # (1, n, 4): top, left, bottom, right, relative to the picture
    classes: int  # (1, n)
    scores: int  # (1, n)
    number: int | None  # (1,): how many of the n are valid; None: all


def post_process_outputs(graph: Graph) -> PostProcessOutputs | None:
    """Return the indices of the op's outputs; None: the model has no such op."""
    for node in graph.nodes:
        if node.op == _OP and len(node.outputs) >= 3:
            boxes, classes, scores, *count = (
                graph.outputs.index(tensor) if tensor in graph.outputs else None
                for tensor in node.outputs
            )
            if boxes is not None and classes is not None and scores is not None:
                return PostProcessOutputs(boxes, classes, scores, count[0] if count else None)
    return None


def zero_unused_rows(graph: Graph, outputs: Sequence[Array]) -> tuple[Array, ...]:
    """Return a run's outputs with unused detection rows zeroed.

    TFLite leaves them uninitialised, so they differ from run to run.
    """
    places = post_process_outputs(graph)
    if places is None or places.number is None or not outputs[places.number].size:
        return tuple(outputs)
    count = _count(outputs[places.number])
    found = [output.copy() for output in outputs]
    for number in places[:3]:
        if found[number].ndim > 1:
            found[number][:, count:] = 0
    return tuple(found)


def _find(view: View, is_asked: bool) -> PostProcessOutputs | None:
    """Find the detection outputs by the op, by metadata or, of four outputs, by their shapes."""
    places = post_process_outputs(view.graph)
    if places is not None or len(view.outputs) != 4:
        return places
    named = [view.embedded.outputs.index(n) for n in _NAMES if n in view.embedded.outputs]
    if len(named) == 4:
        return PostProcessOutputs(*named)
    shapes = view.shapes
    boxes = [n for n, shape in enumerate(shapes) if len(shape) == 3 and shape[::2] == (1, 4)]
    if len(boxes) != 1:
        return None
    most = shapes[boxes[0]][1]
    rows = [n for n, shape in enumerate(shapes) if shape == (1, most)]
    counts = [n for n, shape in enumerate(shapes) if shape in ((1,), ()) and n not in rows]
    if len(rows) != 2 or len(counts) != 1 or most < 2:
        return None
    first, second = (view.resolve(Ambiguity(number, kind="classes")) for number in rows)
    # The order of the op's outputs, unless the model specifies another.
    is_turned = first is False or (first is None and second is True)
    classes, scores = rows[::-1] if is_turned else rows
    return PostProcessOutputs(boxes[0], classes, scores, counts[0])


def _ambiguities(view: View, places: PostProcessOutputs) -> Sequence[Ambiguity]:
    """Return the ambiguities: which of two rows holds classes, unless both are identified."""
    rows = (
        Ambiguity(places.classes, kind="classes", usual=True),
        Ambiguity(places.scores, kind="classes"),
    )
    is_known = post_process_outputs(view.graph) is not None or {*_NAMES} <= {*view.embedded.outputs}
    return () if is_known or any(view.resolve(each) is not None for each in rows) else rows[:1]


def _count(output: Array) -> int:
    return max(0, int(np.nan_to_num(output.reshape(-1)[0])))


def _read(view: View, places: PostProcessOutputs) -> Scene:
    sides = view.real(places.boxes).reshape(-1, 4)[:, [1, 0, 3, 2]]
    classes = view.arrays[places.classes].reshape(-1)
    scores = view.real(places.scores).reshape(-1)
    count = min(len(sides), len(classes), len(scores))
    if places.number is not None and view.arrays[places.number].size:
        count = min(count, _count(view.real(places.number)))
    certain = np.flatnonzero(scores[:count] >= view.least(LEAST_SCORE))
    boxes = detections_of(view, sides[certain], scores[certain], classes[certain])
    return Scene(boxes=boxes, outputs=frozenset(n for n in places if n is not None))


def _has_rows(numbers: int, most: float, view: View, is_asked: bool) -> bool:
    """Whether the output has rows of this many numbers, and at most `most`."""
    shape = view.shapes[0]
    is_such = len(view.outputs) == 1 and len(shape) == 3 and (shape[0], shape[2]) == (1, numbers)
    # 100 and 300 are usual.
    return is_such and shape[1] <= most and (is_asked or shape[1] % 100 == 0)


def _read_efficientdet(view: View, found: bool) -> Scene:
    """A row: index of the picture, top, left, bottom, right in input pixels, score, class."""
    rows = view.real(0)[0]
    height, width = view.input_size
    sides = rows[:, [2, 1, 4, 3]] / np.array([width, height, width, height], np.float32)
    classes = np.round(rows[:, 6]) - 1  # numbered from 1
    stay = (rows[:, 5] >= view.least(LEAST_SCORE)) & (classes >= 0)
    boxes = detections_of(view, sides[stay], rows[stay, 5], classes[stay])
    return Scene(boxes=boxes, outputs=frozenset({0}))


def _yolo10_ambiguities(view: View, found: bool) -> Sequence[Ambiguity]:
    return (Ambiguity(0, 2, 0, kind="places"),)


def _read_yolo10(view: View, found: bool) -> Scene:
    """A row: left, top, right, bottom, score and class."""
    rows = view.real(0)[0]
    (ambiguity,) = _yolo10_ambiguities(view, found)
    sides = parts(view, ambiguity, rows[:, :4])
    stay = rows[:, 4] >= view.least(UNCHOSEN)
    boxes = detections_of(view, sides[stay], rows[stay, 4], np.round(rows[stay, 5]))
    return Scene(boxes=boxes, outputs=frozenset({0}))


SSD = Head("detection:ssd", _find, _read, ambiguities=_ambiguities)
YOLO10 = Head(
    "detection:yolo10", partial(_has_rows, 6, _MOST_CHOSEN), _read_yolo10, mean=0.0, std=255.0,
    ambiguities=_yolo10_ambiguities,
)  # fmt: skip
EFFICIENTDET = Head("detection:efficientdet", partial(_has_rows, 7, math.inf), _read_efficientdet)
