# SPDX-License-Identifier: Apache-2.0
"""What was found in a picture, as words and as JSON."""

from __future__ import annotations

import numpy as np

from label_image.scene import Class, Point, Pose, Scene, mask_of
from tests.support.views import thing


def test_classes() -> None:
    scene = Scene(rows=[Class("blue", 0.75, 1), Class("2", 0.25, 2)], names=2)
    assert scene.lines(5) == ["0.75: 1 blue", "0.25: 2"]
    assert scene.entry(1) == {"results": [{"index": 1, "label": "blue", "score": 0.75}]}


def test_boxes() -> None:
    blue = thing(1, 0.75, 100, 0, 200, 25, label="blue")
    scene = Scene(boxes=[blue, thing(7, 0.5, 0, 0, 1, 1)], names=2)
    assert scene.lines(1) == ["0.75: 1 blue, left 100, top 0, right 200, bottom 25"]
    first, second = scene.entry(1)["detections"]
    assert first == {
        "index": 1,
        "label": "blue",
        "score": 0.75,
        "box": {"left": 100, "top": 0, "right": 200, "bottom": 25},
    }
    assert second["label"] is None
    assert Scene(boxes=[]).lines(5) == ["nothing is found"]
    assert Scene(boxes=[]).entry(5) == {"detections": []}


def test_poses() -> None:
    scene = Scene(poses=[Pose(0.5, [Point("nose", 0.75, 20.4, 10.6), Point("left eye", 0, 1, 2)])])
    assert scene.lines(5) == ["0.5: pose 1", "0.75: nose, x 20, y 11", "0: left eye, x 1, y 2"]
    assert scene.entry(5)["poses"][0]["points"][0] == {
        "name": "nose", "score": 0.75, "x": 20.4, "y": 10.6
    }  # fmt: skip


def test_shares_of_a_mask() -> None:
    mask = np.zeros((4, 2), np.int64)
    mask[:1] = 3
    scene = Scene(mask=mask_of(mask, {0: "background", 3: "3"}.__getitem__), names=1)
    assert scene.lines(5) == ["75.0 %: 0 background", "25.0 %: 3"]
    assert scene.lines(1) == ["75.0 %: 0 background"]
    assert scene.entry(1) == {
        "segments": [
            {"index": 0, "label": "background", "share": 0.75},
            {"index": 3, "label": None, "share": 0.25},
        ]
    }


def test_an_embedding() -> None:
    scene = Scene(embedding=np.array([0.6, -0.8], np.float32))
    assert scene.lines(5) == ["an embedding: 2 numbers, L2 norm 1"]
    assert np.allclose(scene.entry(5)["embedding"], [0.6, -0.8])
