# SPDX-License-Identifier: Apache-2.0
"""Detectors that have chosen their boxes: by their op, by metadata, by shapes, by rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate.inspect import read_model
from label_image.embedded_metadata import EmbeddedMetadata
from label_image.heads.final_boxes import post_process_outputs, zero_unused_rows
from label_image.heads.view import View
from label_image.scene import Scene
from tests.support.model import graph_of, op, t
from tests.support.nets import conv_pool
from tests.support.scenes import detector, segmenter
from tests.support.views import name_of, scene_of, scene_of_arrays, thing, view_of

LABELS = ["green", "blue"]
SIZE = (100, 200)
SHAPES = [t((1, 4, 4)), t((1, 4)), t((1, 4)), t((1,))]


def outputs(count: float) -> list[NDArray[np.float32]]:
    """Return what a detector's last node gives: two found, two of whatever the memory held."""
    boxes = np.array([[[0, 0, 1, 0.5], [0, 0.5, 0.25, 1], [9, 9, 9, 9], [np.nan] * 4]], np.float32)
    classes = np.array([[0, 1, 7, 7]], np.float32)
    scores = np.array([[0.5, 0.75, 0.9, 3e37]], np.float32)
    return [boxes, classes, scores, np.array([count], np.float32)]


def scene(count: float, labels: list[str]) -> Scene:
    graph = read_model(detector())
    view = View(graph, graph.outputs, graph.inputs[0], labels, size=SIZE)
    return scene_of(view, *outputs(count))


def test_outputs_are_found_by_the_op() -> None:
    places = post_process_outputs(read_model(detector()))
    assert places is not None
    assert places == (0, 1, 2, 3)
    assert post_process_outputs(read_model(segmenter())) is None
    assert post_process_outputs(conv_pool()) is None


def test_what_is_found_is_the_most_certain_first_in_pixels() -> None:
    found = scene(2, LABELS)
    assert found.boxes == [
        thing(1, 0.75, 100, 0, 200, 25, label="blue"),
        thing(0, 0.5, 0, 0, 100, 100, label="green"),
    ]
    assert found.outputs == {0, 1, 2, 3}


def test_labels_that_count_the_background_count_from_one() -> None:
    found = scene(2, ["???", "green", "blue"])
    assert [box.index for box in found.boxes or ()] == [2, 1]


@pytest.mark.parametrize("count", [0, -1, 99, np.nan])
def test_no_count_leads_outside(count: float) -> None:
    # Of four, one is without numbers and one lies outside of the picture.
    assert len(scene(count, LABELS).boxes or ()) == (2 if count == 99 else 0)


def test_boxes_are_cut_to_the_picture() -> None:
    boxes = np.array([[[-0.5, -1, 0.5, 2], [0.5, 0.5, 0.5, 0.75]]], np.float32)
    rows = [np.array([[0, 1]], np.float32), np.array([[0.5, 0.25]], np.float32)]
    found = scene_of_arrays(boxes, *rows, np.array([2], np.float32), size=SIZE)
    assert found.boxes == [thing(0, 0.5, 0, 0, 200, 50)]


def test_four_outputs_are_known_by_their_shapes() -> None:
    assert name_of(view_of(SHAPES)) == "detection:ssd"
    assert name_of(view_of(SHAPES[:3])) is None
    assert name_of(view_of([*SHAPES[:3], t((1, 2))])) is None


@pytest.mark.parametrize("of_class", ["detection_classes", "CAST"])
def test_which_of_two_rows_has_classes_follows_from_the_model(of_class: str) -> None:
    boxes, classes, scores, count = outputs(2)
    expected = scene_of_arrays(boxes, classes, scores, count).boxes
    assert len(expected or ()) == 2
    for whole in (classes, np.zeros_like(classes)):
        for order in ([scores, boxes, count, whole], [count, whole, scores, boxes]):
            tensors = [t(each.shape, name=of_class if each is whole else "") for each in order]
            view = view_of(tensors)
            if of_class == "CAST":  # of numbers that an op has counted
                numbers = t(whole.shape, "int64")
                place = next(n for n, each in enumerate(order) if each is whole)
                nodes = [
                    op("CUSTOM_OP", [view.input],
                       [numbers, *tensors[:place], *tensors[place + 1 :]], is_custom=True),
                    op("CAST", [numbers], [tensors[place]]),
                ]  # fmt: skip
                view = View(graph_of(nodes, [view.input], tensors), tensors, view.input)
            found = scene_of(view, *order).boxes or ()
            assert [box.score for box in found] == [box.score for box in expected or ()]


def test_names_in_metadata_say_which_is_which() -> None:
    names = ["score", "location", "number of detections", "category"]
    boxes, _, _, count = outputs(1)
    ones: NDArray[Any] = np.ones((1, 4), np.float32)
    found = scene_of_arrays(ones, boxes, count, 0 * ones, embedded=EmbeddedMetadata(outputs=names))
    assert [(box.index, box.score) for box in found.boxes or ()] == [(0, 1.0)]


def test_what_was_not_found_is_zero() -> None:
    graph = read_model(detector())
    boxes, classes, scores, count = zero_unused_rows(graph, outputs(2))
    assert not boxes[:, 2:].any()
    assert (classes.tolist(), scores.tolist()) == ([[0, 1, 0, 0]], [[0.5, 0.75, 0, 0]])
    assert count.tolist() == [2]
    same = outputs(2)
    assert all(a is b for a, b in zip(zero_unused_rows(conv_pool(), same), same, strict=True))


def test_efficientdet_s_chosen_boxes() -> None:
    made = np.zeros((1, 100, 7), np.float32)
    made[0, 0] = (0, 16, 16, 48, 48, 0.75, 3)
    made[0, 1] = (0, 0, 0, 32, 16, 0.5, 1)
    scene = scene_of_arrays(made, size=(100, 200))
    assert scene.boxes == [thing(2, 0.75, 50, 25, 150, 75), thing(0, 0.5, 0, 0, 50, 50)]
    labelled = scene_of_arrays(made, size=(100, 200), labels=["???", "a"])
    assert [box.index for box in labelled.boxes or ()] == [3, 1]
