# SPDX-License-Identifier: Apache-2.0
"""Detectors that count their boxes from anchors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from label_image.heads import anchors
from tests.support.model import t
from tests.support.views import name_of, scene_of_arrays, view_of

Floats = NDArray[np.float32]
SIZE = (100, 200)

COUNTS = [
    (anchors.ssd_anchors, 300, 1917),
    (anchors.ssd_anchors, 320, 2034),
    (anchors.pyramid_anchors, 320, 12804),
    (anchors.pyramid_anchors, 640, 51150),
    (anchors.efficientdet_anchors, 320, 19206),
    (anchors.efficientdet_anchors, 512, 49104),
]


@pytest.mark.parametrize(("made", "side", "count"), COUNTS)
def test_as_many_anchors_as_the_models_have(
    made: Callable[[tuple[int, int]], Floats], side: int, count: int
) -> None:
    assert made((side, side)).shape == (count, 4)


def test_anchors_are_where_models_are_trained_with_them() -> None:
    first = anchors.ssd_anchors((300, 300))[:3]
    assert np.allclose(first[:, :2], 0.5 / 19)
    assert np.allclose(first[:, 2:], [(0.1, 0.1), (0.2 / 2**0.5, 0.2 * 2**0.5),
                                      (0.2 * 2**0.5, 0.2 / 2**0.5)])  # fmt: skip
    last = anchors.ssd_anchors((300, 300))[-1]
    assert np.allclose(last, [0.5, 0.5, 0.95**0.5, 0.95**0.5])
    first = anchors.efficientdet_anchors((320, 320))[:2]
    assert np.allclose(first[0], [4 / 320, 4 / 320, 24 / 320, 24 / 320])
    assert np.allclose(first[1, 2:], [24 / 2**0.5 / 320, 24 * 2**0.5 / 320])
    assert np.allclose(anchors.efficientdet_anchors((512, 512))[0, 2:], 32 / 512)
    first = anchors.pyramid_anchors((320, 320))[:2]
    assert np.allclose(first[0], [4 / 320, 4 / 320, 32 / 320, 32 / 320])
    assert np.allclose(first[1, 2:], 32 * 2**0.5 / 320)


@pytest.mark.parametrize(
    ("name", "made", "scales", "background"),
    [
        ("ssd_anchors", anchors.ssd_anchors, (10, 5), 1),
        ("fpn_anchors", anchors.pyramid_anchors, (10, 5), 1),
        ("efficientdet_anchors", anchors.efficientdet_anchors, (1, 1), 0),
    ],
)
def test_boxes_are_counted_from_anchors(
    name: str,
    made: Callable[[tuple[int, int]], Floats],
    scales: tuple[float, float],
    background: int,
) -> None:
    all_of = made((64, 64))
    number = int(np.abs(all_of[:, :2] - 0.5).sum(axis=1).argmin())
    y, x, height, width = all_of[number]
    boxes = np.zeros((1, len(all_of), 4), np.float32)
    wanted = (0.5, 0.5, 0.5, 0.25)  # middle and size, parts of the picture
    boxes[0, number, :2] = scales[0] * np.array([(wanted[0] - y) / height, (wanted[1] - x) / width])
    boxes[0, number, 2:] = scales[1] * np.log([wanted[2] / height, wanted[3] / width])
    scores = np.zeros((1, len(all_of), 5 + background), np.float32)
    scores[0, :, 0] = 1.0 if background else 0.0
    scores[0, number, 2 + background] = 0.75
    facts = {"fed": t((1, 64, 64, 3)), "size": SIZE}
    for first, second in ((boxes, scores), (scores, boxes)):
        scene = scene_of_arrays(first, second, **facts)
        assert name_of(view_of([t(first.shape), t(second.shape)])) == f"detection:{name}"
        (box,) = scene.boxes or ()
        assert (box.index, box.score) == (2, 0.75)
        expected = {"left": 75, "top": 25, "right": 125, "bottom": 75}
        assert box.box._asdict() == pytest.approx(expected, abs=1e-3)


def test_another_number_of_anchors_is_not_read() -> None:
    assert name_of(view_of([t((1, 1918, 4)), t((1, 1918, 91))], t((1, 300, 300, 3)))) is None
    assert name_of(view_of([t((1, 1917, 4)), t((1, 1917, 91))], t((1, 300, 300, 3)))) is not None
