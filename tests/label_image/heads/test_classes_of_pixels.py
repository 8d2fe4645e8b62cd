# SPDX-License-Identifier: Apache-2.0
"""Which outputs are masks, and the classes of their pixels."""

from __future__ import annotations

import numpy as np
import pytest

from delegate.inspect import Tensor
from tests.support.model import t
from tests.support.views import name_of, scene_of_arrays, view_of

PICTURE = t((1, 64, 32, 3), "uint8", 0.5, 0)
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
    def is_mask(*outputs: Tensor, fed: Tensor = PICTURE) -> bool:
        return name_of(view_of(outputs, fed)) == "segmentation"

    assert is_mask(output) == expected
    assert not is_mask(output, output)
    assert not is_mask(output, fed=t((1, 640)))


def test_three_channels_are_classes_where_labels_are_given() -> None:
    colours = [t((1, 64, 32, 3))]
    assert name_of(view_of(colours, PICTURE, are_labels_given=True)) == "segmentation"
    assert name_of(view_of(colours, PICTURE), "segmentation") == "segmentation"


def test_a_pixel_s_class_is_that_of_its_best_score() -> None:
    scores = np.zeros((1, 4, 2, 5), np.int8)
    scores[..., 0], scores[0, :1, :, 3] = 1, 2
    mask = scene_of_arrays(scores, fed=t((1, 8, 4, 3), "uint8")).mask
    assert mask is not None
    assert mask.classes.tolist() == [[3, 3], [0, 0], [0, 0], [0, 0]]
