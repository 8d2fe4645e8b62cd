# SPDX-License-Identifier: Apache-2.0
"""Mean average precision of boxes, as COCO's own evaluation defines it.

Source: cocodataset/cocoapi, PythonAPI/pycocotools/cocoeval.py: iouType "bbox", area "all", 100
detections per class and picture. Neither reads files nor knows names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Thresholds of intersection over union.
OVERLAPS = np.linspace(0.5, 0.95, 10)
_RECALLS = np.linspace(0.0, 1.0, 101)
_MOST = 100

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Thing:
    """An object in a picture, or a detection."""

    category: int
    box: Sequence[float]  # left, top, width, height
    score: float = 1.0  # of a detection
    is_crowd: bool = False  # several objects in one box: detections there are ignored


# Of a category in a picture: the number of objects, the scores of the detections, and two
# (overlaps, detections) masks: whether each is a hit and whether it is ignored.
_Matched = tuple[int, Array, NDArray[np.bool_], NDArray[np.bool_]]


class MeanPrecision:
    """The mean average precision over all added pictures."""

    def __init__(self) -> None:
        self._categories: dict[int, list[_Matched]] = defaultdict(list)

    def add(self, found: Sequence[Thing], truths: Sequence[Thing]) -> None:
        for number in {each.category for each in (*found, *truths)}:
            ours = [each for each in found if each.category == number]
            ours = sorted(ours, key=lambda each: -each.score)[:_MOST]
            theirs = [each for each in truths if each.category == number]
            theirs = sorted(theirs, key=lambda each: each.is_crowd)
            things = sum(not each.is_crowd for each in theirs)
            scores = np.array([each.score for each in ours])
            self._categories[number].append((things, scores, *_matched(ours, theirs)))

    def at_each(self) -> Array:
        """Return the mean over categories at each of OVERLAPS; nan: there are no objects.

        Shapes: (overlaps,)
        """
        categories = (zip(*each, strict=True) for each in self._categories.values())
        rows = [
            _precisions(sum(things), *(np.concatenate(part, axis=-1) for part in parts))
            for things, *parts in categories
            if sum(things)
        ]
        return np.mean(rows, axis=0) if rows else np.full(len(OVERLAPS), np.nan)


def _matched(
    found: Sequence[Thing], truths: Sequence[Thing]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return for each overlap which detections are hits, and which are ignored.

    Each detection, in order of score, takes the free object with the greatest overlap.
    `truths`: crowds last, which may be taken any number of times.
    Shapes: (overlaps, detections) each
    """
    common = _overlaps(found, truths)
    are_crowds = np.array([each.is_crowd for each in truths], bool)
    hits = np.zeros((len(OVERLAPS), len(found)), bool)
    ignored = np.zeros_like(hits)
    for row, least in enumerate(OVERLAPS):
        free = np.ones(len(truths), bool)
        for number, shares in enumerate(common):
            fitting = free & (shares >= least)
            # A crowd is taken only if no other object matches; of equal ones, the last.
            fitting = fitting & ~are_crowds if (fitting & ~are_crowds).any() else fitting
            if fitting.any():
                best = np.flatnonzero(fitting & (shares == shares[fitting].max()))[-1]
                hits[row, number], ignored[row, number] = not are_crowds[best], are_crowds[best]
                free[best] = are_crowds[best]
    return hits, ignored


def _overlaps(found: Sequence[Thing], truths: Sequence[Thing]) -> Array:
    """Return each pair's intersection over union; over the detection's area for crowds.

    Shapes: (found, truths)
    """
    ours = np.array([each.box for each in found], np.float64).reshape(-1, 1, 4)
    theirs = np.array([each.box for each in truths], np.float64).reshape(1, -1, 4)
    ends = np.minimum(ours[..., :2] + ours[..., 2:], theirs[..., :2] + theirs[..., 2:])
    sides = np.maximum(ends - np.maximum(ours[..., :2], theirs[..., :2]), 0)
    common = sides.prod(-1)
    own = ours[..., 2:].prod(-1)
    either = own + theirs[..., 2:].prod(-1) - common
    whole = np.where([each.is_crowd for each in truths], own, either)
    return np.asarray(np.divide(common, whole, out=np.zeros_like(common), where=whole > 0))


def _precisions(
    things: int, scores: Array, hits: NDArray[np.bool_], ignored: NDArray[np.bool_]
) -> Array:
    """Return the area under the precision-recall curve at each overlap, from 101 points."""
    order = np.argsort(-scores, kind="stable")
    hits, ignored = hits[:, order], ignored[:, order]
    right, wrong = hits.cumsum(1), (~hits & ~ignored).cumsum(1)
    precisions = right / (right + wrong + np.spacing(1))
    areas = []
    for precision, recall in zip(precisions, right / things, strict=True):
        envelope = np.maximum.accumulate(precision[::-1])[::-1]
        areas.append(np.append(envelope, 0.0)[np.searchsorted(recall, _RECALLS)].mean())
    return np.array(areas)
