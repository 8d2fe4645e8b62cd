# SPDX-License-Identifier: Apache-2.0
"""What detectors and segmenters found: which models they are, words, JSON."""

from __future__ import annotations

import numpy as np
import pytest

from delegate import Tensor, read_model
from label_image.scene import Box, Scene, detector_of, found_only, is_mask, scene_of
from tests.support.model import t
from tests.support.nets import conv_pool
from tests.support.scenes import detector, segmenter

PICTURE = t((1, 64, 32, 3), "uint8", 0.5, 0)
LABELS = ["green", "blue"]
FOUND = Box(1, 0.75, 0.5, 0.0, 1.0, 0.25)


def test_a_detector_s_outputs_are_found_by_its_node() -> None:
    found = detector_of(read_model(detector()))
    assert found is not None
    assert (found.boxes, found.classes, found.scores, found.count) == (0, 1, 2, 3)
    assert detector_of(read_model(segmenter())) is None
    assert detector_of(conv_pool()) is None


MASKS = [
    ("a class a pixel", t((1, 64, 32), "int64"), True),
    ("with a last axis", t((1, 64, 32, 1), "int32"), True),
    ("scores a pixel", t((1, 64, 32, 21)), True),
    ("smaller scores", t((1, 8, 4, 21), "uint8", 0.5), True),
    ("features", t((1, 2, 2, 1280)), False),
    ("a depth map", t((1, 64, 32, 1)), False),
    ("a quantised plane", t((1, 64, 32, 1), "uint8", 0.5), False),
    ("a picture", t((1, 64, 32, 3)), False),
    ("a row of scores", t((1, 1001)), False),
    ("keypoints", t((1, 1, 17, 3)), False),
    ("two at once", t((2, 64, 32), "int32"), False),
    ("truth values", t((1, 64, 32), "bool"), False),
]


@pytest.mark.parametrize(("output", "expected"), [m[1:] for m in MASKS], ids=[m[0] for m in MASKS])
def test_which_outputs_are_masks(output: Tensor, expected: bool) -> None:
    assert is_mask([output], PICTURE) == expected
    assert not is_mask([output, output], PICTURE)
    assert not is_mask([output], t((1, 640)))


def test_three_channels_are_classes_where_labels_are_given() -> None:
    assert is_mask([t((1, 64, 32, 3))], PICTURE, has_labels=True)


def outputs(count: float) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    """Return what a detector's last node gives: two found, two of whatever the memory held."""
    boxes = np.array([[[0, 0, 1, 0.5], [0, 0.5, 0.25, 1], [9, 9, 9, 9], [np.nan] * 4]], np.float32)
    classes = np.array([[0, 1, 7, 7]], np.float32)
    scores = np.array([[0.5, 0.75, 0.9, 3e37]], np.float32)
    return [boxes, classes, scores, np.array([count], np.float32)]


def scene(count: float, labels: list[str]) -> Scene:
    graph = read_model(detector())
    found = scene_of(graph, outputs(count), graph.outputs, graph.inputs[0], labels)
    assert found is not None
    return found


def test_what_a_detector_found_is_the_most_certain_first() -> None:
    found = scene(2, LABELS)
    assert found.boxes == [FOUND, Box(0, 0.5, 0.0, 0.0, 0.5, 1.0)]
    assert found.lines(LABELS, 1, (100, 200)) == [
        "0.75: 1 blue, left 100, top 0, right 200, bottom 25"
    ]
    assert found.lines([], 5)[0] == "0.75: 1, left 0.500, top 0.000, right 1.000, bottom 0.250"
    assert found.entry(LABELS)["detections"][0] == {
        "index": 1,
        "label": "blue",
        "score": 0.75,
        "box": {"left": 0.5, "top": 0.0, "right": 1.0, "bottom": 0.25},
    }
    assert found.outputs == {0, 1, 2, 3}


def test_labels_that_count_the_background_count_from_one() -> None:
    labels = ["???", "green", "blue"]
    assert [box.index for box in scene(2, labels).boxes] == [2, 1]


@pytest.mark.parametrize("count", [0, -1, 99])
def test_no_count_leads_outside(count: int) -> None:
    found = scene(count, LABELS)
    assert len(found.boxes) == (3 if count == 99 else 0)  # the one without numbers is left out
    if not found.boxes:
        assert found.lines(LABELS, 5) == ["nothing is found"]
        assert found.entry(LABELS) == {"detections": []}


def test_what_was_not_found_is_zero() -> None:
    graph = read_model(detector())
    boxes, classes, scores, count = found_only(graph, outputs(2))
    assert not boxes[:, 2:].any()
    assert (classes.tolist(), scores.tolist()) == ([[0, 1, 0, 0]], [[0.5, 0.75, 0, 0]])
    assert count.tolist() == [2]
    same = outputs(2)
    assert all(a is b for a, b in zip(found_only(conv_pool(), same), same, strict=True))


def test_a_segmenter_s_shares() -> None:
    scores = np.zeros((1, 4, 2, 5), np.int8)
    scores[..., 0], scores[0, :1, :, 3] = 1, 2
    tensor = t(scores.shape, "int8", 0.5)
    graph = read_model(segmenter())
    found = scene_of(graph, [scores], [tensor], t((1, 8, 4, 3), "uint8"), [])
    assert found is not None
    assert found.lines(["background"], 5) == ["75.0 %: 0 background", "25.0 %: 3"]
    assert found.lines([], 1) == ["75.0 %: 0"]
    assert found.entry(["background"]) == {
        "segments": [
            {"index": 0, "label": "background", "share": 0.75},
            {"index": 3, "label": None, "share": 0.25},
        ]
    }
