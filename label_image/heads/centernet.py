# SPDX-License-Identifier: Apache-2.0
"""CenterNets: a heat map a class, whose peaks are the centres of things, with their sizes.

Three outputs of the same height and width: scores of classes, widths and heights, and how far each
centre is right of and below its cell's corner; the last two in cells, x before y.
Source: xingyizhou/CenterNet src/lib/models/decode.py (ctdet_decode)
"""

from __future__ import annotations

import numpy as np

from label_image.heads.view import LEAST_SCORE, Floats, Head, View, as_scores, corners, placed
from label_image.scene import Scene

_MOST_PEAKS = 100
_OFFSET_WORDS = ("off", "reg")  # in names of the output with offsets
_SIZE_WORDS = ("wh", "size", "scale")


def _find(view: View, is_asked: bool) -> tuple[int, int, int] | None:
    """Return the numbers of the outputs with scores, sizes and offsets."""
    shapes = view.shapes
    if len(shapes) != 3 or any(len(s) != 4 or s[:3] != (1, *shapes[0][1:3]) for s in shapes):
        return None
    pairs = [number for number, shape in enumerate(shapes) if shape[3] == 2]
    if len(pairs) == 3:
        pairs = pairs[1:]  # two classes, which come first
    if len(pairs) != 2:
        return None
    (scores,) = {0, 1, 2} - set(pairs)
    sizes, offsets = pairs
    names = [view.outputs[number].name.lower() for number in pairs]
    if any(word in names[0] for word in _OFFSET_WORDS) or any(
        word in names[1] for word in _SIZE_WORDS
    ):
        sizes, offsets = offsets, sizes
    height, width = view.input_size
    _, rows, columns, _ = shapes[scores]
    fits = is_asked or (rows > 1 and height % rows == 0 and width % columns == 0)
    return (scores, sizes, offsets) if fits else None


def _classes(view: View) -> int | None:
    places = _find(view, True)
    return None if places is None else view.shapes[places[0]][3]


def peaks(scores: Floats) -> Floats:
    """Return the scores that no neighbour of their class exceeds, others 0. Shapes: (h, w, c)."""
    height, width, _ = scores.shape
    around = np.pad(scores, ((1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    largest = scores
    for y in range(3):
        for x in range(3):
            largest = np.maximum(largest, around[y : y + height, x : x + width])
    result: Floats = np.where(scores == largest, scores, np.float32(0))
    return result


def _read(view: View, places: tuple[int, int, int]) -> Scene:
    scores, sizes, offsets = (view.real(number)[0] for number in places)
    found = peaks(as_scores(scores))
    height, width, _ = found.shape
    best = np.argsort(-found, axis=None, kind="stable")[:_MOST_PEAKS]
    y, x, classes = np.unravel_index(best, found.shape)
    certain = found[y, x, classes] >= view.least(LEAST_SCORE)
    y, x, classes = y[certain], x[certain], classes[certain]
    middles = offsets[y, x] + np.stack([x, y], axis=1)
    centres = np.concatenate([middles, sizes[y, x]], axis=1)
    sides = corners(centres) / np.array([width, height, width, height], np.float32)
    boxes = placed(view, sides, found[y, x, classes], classes)
    return Scene(boxes=boxes, outputs=frozenset(places))


HEAD = Head("detection:centernet", _find, _read, _classes)
