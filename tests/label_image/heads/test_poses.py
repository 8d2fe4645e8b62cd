# SPDX-License-Identifier: Apache-2.0
"""Points of bodies, made of places that are known."""

from __future__ import annotations

import numpy as np
import pytest

from label_image.embedded_metadata import EmbeddedMetadata
from label_image.heads.poses import NAMES
from label_image.scene import Point
from tests.support.model import t
from tests.support.views import name_of, scene_of_arrays, view_of

SIZE = (100, 200)
CELLS = 84


def test_movenet_of_one() -> None:
    made = np.zeros((1, 1, 17, 3), np.float32)
    made[0, 0, 0] = (0.25, 0.5, 0.85)
    made[0, 0, 16] = (1.5, -1, 0.5)
    (pose,) = scene_of_arrays(made, size=SIZE).poses or ()
    assert name_of(view_of([t(made.shape)])) == "pose:movenet"
    assert pose.score == pytest.approx((0.85 + 0.5) / 17)
    assert [point.name for point in pose.points] == list(NAMES)
    assert pose.points[0] == Point("nose", pytest.approx(0.85), 100, 25)
    assert pose.points[16] == Point("right ankle", 0.5, 0, 100)  # inside the picture


def test_movenet_of_several() -> None:
    made = np.zeros((1, 6, 56), np.float32)
    made[0, :3, 55] = 0.5, 0.75, 0.125
    made[0, 1, :3] = (0.5, 0.25, 1)
    poses = scene_of_arrays(made, size=SIZE).poses or ()
    assert [pose.score for pose in poses] == [0.75, 0.5]
    assert poses[0].points[0] == Point("nose", 1.0, 50, 50)


def test_posenet() -> None:
    scores, offsets = np.full((1, 9, 9, 17), -9, np.float32), np.zeros((1, 9, 9, 34), np.float32)
    scores[0, 4, 2, 0] = 0
    offsets[0, 4, 2, [0, 17]] = (0.5, 32.25)  # y and x
    more = [np.zeros((1, 9, 9, 32), np.float32)] * 2
    fed = t((1, 257, 257, 3))
    for outputs in ([scores, offsets], [scores, offsets, *more], [*more, offsets, scores]):
        scene = scene_of_arrays(*outputs, fed=fed, size=(257, 257))
        nose = (scene.poses or ())[0].points[0]
        assert nose == Point("nose", 0.5, pytest.approx(96.25), pytest.approx(128.5))
        assert scene.outputs == set(range(len(outputs)))


@pytest.mark.parametrize("scale", [1, 64])
def test_a_yolo_with_points_is_known_by_what_it_carries(scale: float) -> None:
    made = np.zeros((1, 5 + 51, CELLS), np.float32)
    made[0, :4] = 0.9 * scale
    made[0, 2:4] = 0.01 * scale
    for number, certainty in ((7, 0.75), (8, 0.5)):
        made[0, :4, number] = np.array([0.5, 0.5, 0.5, 0.5]) * scale
        made[0, 4, number] = certainty
        made[0, 5:8, number] = (0.25 * scale, 0.5 * scale, 0.9)
    embedded = EmbeddedMetadata(task="pose", points=(17, 3))
    assert name_of(view_of([t(made.shape)], embedded=embedded)) == "pose:yolo8"
    assert name_of(view_of([t(made.shape)])) == "detection:yolo8"
    for facts in ({"embedded": embedded}, {"task": "pose"}):
        factor = None if scale == 1 else 32.0
        (pose,) = scene_of_arrays(made, size=SIZE, factor=factor, **facts).poses or ()
        assert pose.score == 0.75
        assert pose.points[0] == Point("nose", pytest.approx(0.9), 50, 50)


def test_points_without_scores_of_another_number() -> None:
    made = np.zeros((1, CELLS, 5 + 8), np.float32)
    made[0, 3] = (0.5, 0.5, 1, 1, 0.5, *[0.25] * 8)
    embedded = EmbeddedMetadata(task="pose", points=(4, 2))
    (pose,) = scene_of_arrays(made, size=SIZE, embedded=embedded).poses or ()
    assert [point.name for point in pose.points] == ["0", "1", "2", "3"]
    assert pose.points[3] == Point("3", 1.0, 50, 25)


def test_values_without_a_number_stay_inside() -> None:
    made = np.full((1, 1, 17, 3), np.nan, np.float32)
    (pose,) = scene_of_arrays(made, size=SIZE).poses or ()
    assert pose.points[0] == Point("nose", 0, 0, 0)
