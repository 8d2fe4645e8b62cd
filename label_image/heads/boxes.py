# SPDX-License-Identifier: Apache-2.0
"""Boxes as arrays: which of many are kept, and what they are in the picture."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from label_image.heads.view import Array, Floats, View
from label_image.scene import Box

LEAST_SCORE = 0.25  # of a box that nothing has chosen before
_MOST_OVERLAP = 0.45  # of two boxes of a class, as a part of what both cover
_MOST_CANDIDATES, _MOST_BOXES = 1000, 100


def sigmoid(values: Array) -> Floats:
    """Return 1 / (1 + exp(-x)) for each value, without overflow."""
    half = np.tanh(0.5 * values.astype(np.float32))
    result: Floats = (0.5 * (half + 1)).astype(np.float32)
    return result


def as_scores(values: Floats) -> Floats:
    """Return scores of 0..1: what lies outside of it is logits."""
    if values.size and (values.min() < -1e-3 or values.max() > 1 + 1e-3):
        return sigmoid(values)
    return values


def corners(centres: Array) -> Floats:
    """Turn x, y, width, height into left, top, right, bottom. Shapes: (n, 4) -> (n, 4)."""
    middle, half = centres[:, :2], centres[:, 2:4] / 2
    return np.concatenate([middle - half, middle + half], axis=1).astype(np.float32)


def parts(view: View, sides: Floats) -> Floats:
    """Return boxes or points as parts of the picture: some models have pixels of the input.

    Those of all cells are given, so that the largest tells. Shapes: (n, 2 or 4) -> the same
    """
    height, width = view.input_size
    if sides.max(where=np.isfinite(sides), initial=0) > 2:
        return np.divide(sides, [width, height] * (sides.shape[1] // 2), dtype=np.float32)
    return sides


def kept(
    sides: Floats, scores: Floats, classes: NDArray[np.int64], least: float = LEAST_SCORE
) -> NDArray[np.int64]:
    """Return the numbers of the boxes that stay, the most certain first.

    Of boxes of the same class that overlap, the most certain one stays (non-maximum suppression).
    Shapes: sides (n, 4) as left, top, right, bottom; scores, classes (n,)
    """
    usable = np.isfinite(sides).all(axis=1) & np.isfinite(scores) & (scores >= least)
    numbers = np.flatnonzero(usable)
    left = numbers[np.argsort(-scores[numbers], kind="stable")][:_MOST_CANDIDATES]
    stay: list[int] = []
    while left.size and len(stay) < _MOST_BOXES:
        best, left = int(left[0]), left[1:]
        stay.append(best)
        rivals = classes[left] == classes[best]
        left = left[~(rivals & (_overlap(sides[best], sides[left]) > _MOST_OVERLAP))]
    return np.array(stay, np.int64)


def _overlap(one: Floats, others: Floats) -> Floats:
    """Return how much of what two boxes cover both cover, for each of the others."""
    low = np.maximum(one[:2], others[:, :2])
    high = np.minimum(one[2:], others[:, 2:])
    both = np.clip(high - low, 0, None).prod(axis=1)
    areas = np.clip(others[:, 2:] - others[:, :2], 0, None).prod(axis=1)
    all_of = areas + np.clip(one[2:] - one[:2], 0, None).prod() - both
    result: Floats = both / np.maximum(all_of, np.float32(1e-12))
    return result


def best_classes(scores: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Return each box's best score and its class. Shapes: (n, classes) -> (n,), (n,)."""
    classes = scores.argmax(axis=1)
    return scores[np.arange(len(scores)), classes], classes


def suppressed(view: View, sides: Floats, scores: Floats) -> list[Box]:
    """Return the boxes that stay of all that a model gives.

    Shapes: sides (n, 4) as left, top, right, bottom, parts of the picture; scores (n, classes)
    """
    best, classes = best_classes(scores)
    least = view.least(LEAST_SCORE)
    stay = kept(sides, best, classes, least)
    return placed(view, sides[stay], best[stay], classes[stay])


def placed(view: View, sides: Array, scores: Array, classes: Array) -> list[Box]:
    """Return boxes in the picture's pixels, cut to it; what lies outside is left out.

    Shapes: sides (n, 4) as left, top, right, bottom, parts of the picture; scores, classes (n,)
    """
    height, width = view.size
    usable = np.isfinite(sides).all(axis=1) & np.isfinite(scores) & np.isfinite(classes)
    scale: NDArray[Any] = np.array([width, height, width, height], np.float64)
    pixels = np.clip(sides.astype(np.float64) * scale, 0, scale)
    usable &= (pixels[:, 2] > pixels[:, 0]) & (pixels[:, 3] > pixels[:, 1])
    made = [
        Box(int(classes[i]) + view.first_label, float(scores[i]), *map(float, pixels[i]))
        for i in np.flatnonzero(usable)
    ]
    made.sort(key=lambda box: -box.score)
    return made
