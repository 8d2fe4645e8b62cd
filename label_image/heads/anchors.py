# SPDX-License-Identifier: Apache-2.0
"""Detectors with one box and scores per anchor, before non-maximum suppression.

Boxes are relative to anchors, which the file does not contain: their number identifies the
anchors that SSD and EfficientDet models are trained with.
Sources: TensorFlow's object_detection/anchor_generators (multiple_grid, multiscale_grid) and
box_coders/faster_rcnn_box_coder.py; google/automl efficientdet/tf2/anchors.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise

import numpy as np

from label_image.heads.view import (
    Ambiguity,
    Array,
    Floats,
    Head,
    View,
    as_scores,
    best_detections,
)
from label_image.scene import Scene

Size = tuple[int, int]
_SSD_LAYERS, _SSD_SCALES = 6, (0.2, 0.95)
_SSD_RATIOS = (1.0, 2.0, 1 / 2, 3.0, 1 / 3)
_PYRAMID_STRIDES = (8, 16, 32, 64, 128)
_PYRAMID_RATIOS = (1.0, 2.0, 0.5)
_PYRAMID_SCALE = 4.0  # of an anchor, in strides
_LITE_SCALE, _LITE_SIZES = 3.0, (320, 384, 448)  # EfficientDet-Lite 0 to 2
_LARGEST = 20.0  # limit of a size's logarithm


@dataclass(frozen=True, slots=True)
class AnchorScheme:
    """An anchor layout, and the scale factors of its boxes."""

    anchors: Callable[[Size], Floats]  # (n, 4): centre's y, x, height, width; relative
    scales: tuple[float, float]  # of the centre and of the size
    has_background: bool  # whether class 0 is the background


def ssd_anchors(size: Size) -> Floats:
    """Return SSD's: six layers with six anchors per cell, except the first with three."""
    low, high = _SSD_SCALES
    scales = [*np.linspace(low, high, _SSD_LAYERS), 1.0]
    layers: list[Floats] = []
    cells = -(-size[0] // 16), -(-size[1] // 16)
    for scale, following in pairwise(scales):
        sizes = [(scale, ratio) for ratio in _SSD_RATIOS]
        sizes.append((float(np.sqrt(scale * following)), 1.0))
        if not layers:
            sizes = [(0.1, 1.0), (scale, 2.0), (scale, 0.5)]
        shapes = [_shape(length, ratio, (1, 1)) for length, ratio in sizes]
        layers.append(_each((_grid(cells) + 0.5) / cells, shapes))
        cells = -(-cells[0] // 2), -(-cells[1] // 2)
    return np.concatenate(layers)


def pyramid_anchors(size: Size) -> Floats:
    """Return SSD's on a feature pyramid: six per cell, scales in the inner loop, ratios outside."""
    layers = []
    for stride in _PYRAMID_STRIDES:
        # The object detection API centres anchors in cells if the stride divides the size.
        offsets = [stride / 2 if length % stride == 0 else 0.0 for length in size]
        cells = -(-size[0] // stride), -(-size[1] // stride)
        shapes = [
            _shape(_PYRAMID_SCALE * stride * 2 ** (octave / 2), ratio, size)
            for ratio in _PYRAMID_RATIOS
            for octave in range(2)
        ]
        layers.append(_each((_grid(cells) * stride + offsets) / size, shapes))
    return np.concatenate(layers)


def efficientdet_anchors(size: Size) -> Floats:
    """Return EfficientDet's: nine per cell, scales in the outer loop, ratios in the inner."""
    scale = _LITE_SCALE if size[0] in _LITE_SIZES else _PYRAMID_SCALE
    layers = []
    for stride in _PYRAMID_STRIDES:
        cells = -(-size[0] // stride), -(-size[1] // stride)
        shapes = [
            _shape(scale * (size[0] / cells[0]) * 2 ** (octave / 3), ratio, size)
            for octave in range(3)
            for ratio in _PYRAMID_RATIOS
        ]
        layers.append(_each((_grid(cells) + 0.5) / cells, shapes))
    return np.concatenate(layers)


def _shape(length: float, ratio: float, size: Size) -> tuple[float, float]:
    """Return an anchor's height and width, relative to the input. `ratio`: width / height."""
    root = float(np.sqrt(ratio))
    return length / root / size[0], length * root / size[1]


def _grid(cells: Size) -> Array:
    """Return each cell's row and column. Shapes: (cells, 2)."""
    rows, columns = np.mgrid[: cells[0], : cells[1]]
    return np.stack([rows, columns], -1).reshape(-1, 2)


def _each(centres: Array, shapes: Sequence[tuple[float, float]]) -> Floats:
    """Return each shape at each centre. Shapes: (n, 2), (m, 2) -> (n * m, 4)."""
    places = np.repeat(centres, len(shapes), axis=0)
    sizes = np.tile(np.array(shapes), (len(centres), 1))
    return np.concatenate([places, sizes], axis=1).astype(np.float32)


KINDS = {
    "ssd_anchors": AnchorScheme(ssd_anchors, (10.0, 5.0), True),
    "fpn_anchors": AnchorScheme(pyramid_anchors, (10.0, 5.0), True),
    "efficientdet_anchors": AnchorScheme(efficientdet_anchors, (1.0, 1.0), False),
}


@cache
def _anchors(name: str, size: Size) -> Floats:
    return KINDS[name].anchors(size)


def _find(name: str, view: View, is_asked: bool) -> tuple[int, int] | None:
    """Return the indices of the outputs with boxes and with scores; None: no match."""
    shapes = [s[:1] + s[1:2] + s[3:] if len(s) == 4 and s[2] == 1 else s for s in view.shapes]
    if len(shapes) != 2 or any(len(s) != 3 or s[0] != 1 for s in shapes):
        return None
    if shapes[0][1] != shapes[1][1] or not min(view.input_size):
        return None
    fours = [number for number, shape in enumerate(shapes) if shape[2] == 4]
    if not fours:
        return None
    boxes = fours[0]  # the op's order, if there are four classes
    # Every layout has at least three anchors per 16 x 16 pixels, which bounds the memory.
    (height, width), count = view.input_size, shapes[boxes][1]
    is_enough = count >= 3 * (height // 16) * (width // 16)
    fits = is_enough and len(_anchors(name, view.input_size)) == count
    return (boxes, 1 - boxes) if fits else None


def decode_boxes(numbers: Floats, anchors: Floats, scales: tuple[float, float]) -> Floats:
    """Return left, top, right, bottom of anchor-relative boxes. Shapes: (n, 4) -> (n, 4)."""
    centre, length = (1 / scale for scale in scales)
    middle = numbers[:, :2] * centre * anchors[:, 2:] + anchors[:, :2]
    half = np.exp(np.minimum(numbers[:, 2:] * length, _LARGEST)) * anchors[:, 2:] / 2
    sides = np.concatenate([middle - half, middle + half], axis=1)
    result: Floats = sides[:, [1, 0, 3, 2]].astype(np.float32)
    return result


def _ambiguities(view: View, places: tuple[int, int]) -> Sequence[Ambiguity]:
    return (Ambiguity(places[1]),)


def _read(name: str, view: View, places: tuple[int, int]) -> Scene:
    boxes, scores = map(view.real, places)
    sides = decode_boxes(boxes.reshape(-1, 4), _anchors(name, view.input_size), KINDS[name].scales)
    (ambiguity,) = _ambiguities(view, places)
    things = as_scores(view, ambiguity, scores.reshape(len(sides), -1))
    things = things[:, 1:] if KINDS[name].has_background else things
    return Scene(boxes=best_detections(view, sides, things), outputs=frozenset(places))


# The number of classes is unknown: labels may include a background and omit classes.
HEADS = tuple(
    Head(f"detection:{name}", partial(_find, name), partial(_read, name), ambiguities=_ambiguities)
    for name in KINDS
)
