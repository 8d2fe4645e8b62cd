# SPDX-License-Identifier: Apache-2.0
"""Mean average precision: values of pycocotools 2.0.11 for the same boxes, and its corner cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from label_image.precision import OVERLAPS, Found, MeanPrecision, Truth

Boxes = Sequence[tuple[Any, ...]]
# (category, box, score) that were found, (category, box, is a crowd) that are there.
PICTURES: Sequence[tuple[Boxes, Boxes]] = [
    (
        [
            (1, (10, 10, 20, 20), 0.9),
            (1, (40, 40, 10, 10), 0.8),
            (1, (11, 10, 20, 20), 0.7),
            (2, (0, 0, 30, 30), 0.6),
        ],
        [(1, (10, 10, 20, 20)), (1, (42, 41, 10, 10)), (2, (0, 0, 28, 31))],
    ),
    (
        [
            (1, (5, 5, 10, 10), 0.95),
            (1, (50, 50, 8, 8), 0.4),
            (2, (60, 60, 20, 20), 0.5),
            (3, (1, 1, 5, 5), 0.99),
        ],
        [(1, (50, 50, 10, 9)), (1, (0, 0, 30, 30), True), (2, (63, 60, 20, 20))],
    ),
    ([], [(1, (0, 0, 9, 9))]),
]
PYCOCOTOOLS = [0.8452970297029703] * 2 + [0.6905940594059405] * 3
PYCOCOTOOLS += [0.38118811881188114] * 4 + [0.1287128712871287]


def at_each(pictures: Sequence[tuple[Boxes, Boxes]]) -> list[float]:
    precision = MeanPrecision()
    for found, truths in pictures:
        precision.add([Found(*each) for each in found], [Truth(*each) for each in truths])
    return precision.at_each().tolist()


def test_the_precision_is_that_of_pycocotools() -> None:
    assert at_each(PICTURES) == pytest.approx(PYCOCOTOOLS, abs=1e-12)
    assert np.mean(at_each(PICTURES)) == pytest.approx(0.54158416, abs=1e-8)


def test_the_order_of_pictures_without_equal_scores_does_not_count() -> None:
    assert at_each(PICTURES[::-1]) == pytest.approx(PYCOCOTOOLS, abs=1e-12)


THING = (1, (0, 0, 10, 10))


@pytest.mark.parametrize(
    ("found", "truths", "mean"),
    [
        ([(1, (0, 0, 10, 10), 0.5)], [THING], 1.0),
        ([(2, (0, 0, 10, 10), 0.5)], [THING], 0.0),
        ([], [THING], 0.0),
        # A second box on the same thing is wrong, but comes after all things are found.
        ([(1, (0, 0, 10, 10), 0.5), (1, (0, 0, 10, 10), 0.4)], [THING], 1.0),
        # A wrong box that comes first halves the precision.
        ([(1, (0, 0, 10, 10), 0.5), (1, (50, 0, 10, 10), 0.6)], [THING], 0.5),
        # Five of six parts are common: right at the seven overlaps up to 0.8.
        ([(1, (0, 0, 10, 12), 0.5)], [THING], 0.7),
        # A crowd takes any number of boxes, which count neither way.
        ([(1, (0, 0, 2, 2), 0.9), (1, (3, 3, 2, 2), 0.8)], [(*THING, True)], np.nan),
        # A box with no area is nothing.
        ([(1, (5, 5, 0, 0), 0.9)], [(1, (5, 5, 0, 0))], 0.0),
    ],
)
def test_a_single_picture(found: Boxes, truths: Boxes, mean: float) -> None:
    assert np.mean(at_each([(found, truths)])) == pytest.approx(mean, abs=1e-9, nan_ok=True)


def test_nothing_to_find_is_no_number() -> None:
    assert np.isnan(at_each([([(1, (0, 0, 9, 9), 0.5)], [])])).all()
    assert len(at_each([])) == len(OVERLAPS)


def test_the_hundred_best_boxes_of_a_class_count() -> None:
    worse = [(1, (50, 50, 5, 5), 0.9)] * 99
    assert np.mean(at_each([([*worse, (1, (0, 0, 10, 10), 0.1)], [THING])])) == pytest.approx(0.01)
    assert np.mean(at_each([([*worse, *worse, (1, (0, 0, 10, 10), 0.1)], [THING])])) == 0
