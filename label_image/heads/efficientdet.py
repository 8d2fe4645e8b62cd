# SPDX-License-Identifier: Apache-2.0
"""EfficientDets that have chosen their boxes: (1, n, 7), in pixels of the input.

A row: the picture's number, top, left, bottom, right, score and class, from 1.
Source: google/automl efficientdet/tf2/postprocess.py (generate_detections)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from label_image.heads.boxes import placed
from label_image.heads.view import Array, Head, View
from label_image.scene import Scene
from tflite_opencl.common.labels import LEAST_SCORE


def _fits(view: View, is_asked: bool) -> bool:
    shape = view.shapes[0]
    if len(view.outputs) != 1 or len(shape) != 3 or (shape[0], shape[2]) != (1, 7):
        return False
    return is_asked or shape[1] % 100 == 0  # 100 are usual


def _read(view: View, outputs: Sequence[Array]) -> Scene:
    rows = view.real(0, outputs[0])[0]
    rows = rows[rows[:, 5] >= view.least(LEAST_SCORE)]
    height, width = view.input_size
    sides = rows[:, [2, 1, 4, 3]] / np.array([width, height, width, height], np.float32)
    classes = np.round(rows[:, 6]) - 1
    is_thing = classes >= 0
    boxes = placed(view, sides[is_thing], rows[is_thing, 5], classes[is_thing])
    return Scene(boxes=boxes, outputs=frozenset({0}))


HEAD = Head("detection:efficientdet", _fits, _read)
