# SPDX-License-Identifier: Apache-2.0
"""EfficientDet's chosen boxes."""

from __future__ import annotations

import numpy as np

from label_image.scene import Box
from tests.support.views import scene_of_arrays


def test_efficientdet_s_chosen_boxes() -> None:
    made = np.zeros((1, 100, 7), np.float32)
    made[0, 0] = (0, 16, 16, 48, 48, 0.75, 3)
    made[0, 1] = (0, 0, 0, 32, 16, 0.5, 1)
    scene = scene_of_arrays(made, size=(100, 200))
    assert scene.boxes == [Box(2, 0.75, 50, 25, 150, 75), Box(0, 0.5, 0, 0, 50, 50)]
    labelled = scene_of_arrays(made, size=(100, 200), labels=["???", "a"])
    assert [box.index for box in labelled.boxes or ()] == [3, 1]
