# SPDX-License-Identifier: Apache-2.0
"""Anchor-free detectors and YOLOs, whose boxes are relative to grid cells.

YOLOs give one row of numbers per box, starting with its centre, width and height. v5 has three
boxes per cell, v8 and later one. YOLOX's boxes are relative to their cells. Cells are ordered by
level, then row.
CenterNets give one heat map per class, whose peaks are object centres, and their sizes. Three
outputs have the same height and width: class scores, widths and heights, and the offset of each
centre from its cell's top left corner; the last two in cells, x before y.
Sources: ultralytics/yolov5 models/yolo.py (Detect); ultralytics nn/modules/head.py (Detect);
Megvii-BaseDetection/YOLOX yolox/models/yolo_head.py (decode_outputs); xingyizhou/CenterNet
src/lib/models/decode.py (ctdet_decode).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from label_image.heads.view import (
    LEAST_SCORE,
    Ambiguity,
    Floats,
    Head,
    View,
    as_scores,
    best_detections,
    corners,
    detections_of,
    parts,
)
from label_image.scene import Scene

_PER_CELL = {"yolo5": 3, "yolo8": 1, "yolox": 1}  # boxes per cell
_BEFORE = {"yolo5": 5, "yolo8": 4, "yolox": 5}  # numbers before the scores; the fifth is objectness
_X_CLASSES = 80  # COCO's: this count tells YOLOX from a v8 in the same order
_MASKS = 32  # mask coefficients after a box's scores, if a second output has prototype masks
# Strides of YOLO levels: of most models, of those with a fourth level, and of tiny ones.
_YOLO_STRIDES = ((8, 16, 32), (8, 16, 32, 64), (16, 32), (4, 8, 16, 32))
_MOST_PEAKS = 100
_OFFSET_WORDS = ("off", "reg")  # in the names of CenterNets' offset outputs
_SIZE_WORDS = ("wh", "size", "scale")


def strides_of(size: tuple[int, int], count: int) -> Sequence[int] | None:
    """Return the strides of a YOLO with this many cells; None: unknown."""
    if not min(size):
        return None
    for strides in _YOLO_STRIDES:
        if sum(-(-size[0] // s) * -(-size[1] // s) for s in strides) == count:
            return strides
    return None


def cells(size: tuple[int, int], strides: Sequence[int]) -> tuple[Floats, Floats]:
    """Return each cell's column and row, and its stride. Shapes: (cells, 2), (cells, 1)."""
    places, lengths = [], []
    for stride in strides:
        rows, columns = np.mgrid[: -(-size[0] // stride), : -(-size[1] // stride)]
        places.append(np.stack([columns, rows], axis=-1).reshape(-1, 2))
        lengths.append(np.full((rows.size, 1), stride))
    return np.concatenate(places).astype(np.float32), np.concatenate(lengths).astype(np.float32)


def order_of(view: View, *per_cell: int) -> tuple[bool, int] | None:
    """Return whether boxes come before their numbers in the first output, and the count of numbers.

    `per_cell`: boxes per cell, tried in order. None: the number of boxes does not match.
    """
    shape = view.shapes[0]
    if len(shape) != 3 or shape[0] != 1:
        return None
    for each in per_cell:
        for place in (1, 2):
            cells, rest = divmod(shape[place], each)
            if not rest and strides_of(view.input_size, cells) is not None:
                return place == 1, shape[3 - place]
    return None


def rows_of(view: View) -> Floats:
    """Return one row of real numbers per box, whichever order the output has."""
    values = view.real(0)[0]
    order = order_of(view, 1, 3)
    rows: Floats = values if order is not None and order[0] else values.T
    return rows


def _mask_numbers(view: View) -> int:
    """Return the number of mask coefficients per box, if a second output has masks."""
    height, width = view.input_size
    sizes = ((1, height // 4, width // 4, _MASKS), (1, _MASKS, height // 4, width // 4))
    return _MASKS if len(view.outputs) == 2 and view.shapes[1] in sizes else 0


def _classes(kind: str, view: View) -> int | None:
    order = order_of(view, 1, 3)
    return None if order is None else order[1] - _BEFORE[kind] - _mask_numbers(view)


def _fits(kind: str, view: View, is_asked: bool) -> bool:
    masks = _mask_numbers(view)
    order = order_of(view, _PER_CELL[kind])
    if order is None or len(view.outputs) != (2 if masks else 1):
        return False
    boxes_first, numbers = order
    if numbers <= _BEFORE[kind] + masks:
        return False
    is_sure = boxes_first and numbers == 5 + (len(view.labels) or _X_CLASSES)
    return is_asked or is_sure or kind != "yolox"


def of_columns(view: View, place: int, kind: str = "scores") -> Ambiguity:
    """Return the meaning of one number of each box, whichever order the output has."""
    order = order_of(view, 1, 3)
    return Ambiguity(0, 2 if order is None or order[0] else 1, place, kind)


def _ambiguities(kind: str, view: View, found: bool) -> Sequence[Ambiguity]:
    """Return the possible meanings of scores, objectness if present, and boxes."""
    before = _BEFORE[kind]
    scores = [of_columns(view, before)] + [of_columns(view, 4)] * (before == 5)
    return scores + [of_columns(view, 0, kind="places")] * (kind != "yolox")


def _read(kind: str, view: View, found: bool) -> Scene:
    rows = rows_of(view)
    before = _BEFORE[kind]
    own, *others = _ambiguities(kind, view, found)
    scores = as_scores(view, own, rows[:, before : rows.shape[1] - _mask_numbers(view)])
    if before == 5:
        scores = scores * as_scores(view, others[0], rows[:, 4:5])
    if kind == "yolox":
        strides = strides_of(view.input_size, len(rows))
        assert strides is not None
        places, lengths = cells(view.input_size, strides)
        sizes = np.exp(np.clip(rows[:, 2:4], -20, 20))
        centres = np.concatenate([rows[:, :2] + places, sizes], axis=1) * lengths
        height, width = view.input_size
        centres /= np.array([width, height, width, height], np.float32)
    else:
        centres = parts(view, others[-1], rows[:, :4])
    boxes = best_detections(view, corners(centres), scores)
    return Scene(boxes=boxes, outputs=frozenset(range(len(view.outputs))))


YOLOS = tuple(
    Head(
        f"detection:{kind}", partial(_fits, kind), partial(_read, kind), partial(_classes, kind),
        mean=0.0, std=1.0 if kind == "yolox" else 255.0, ambiguities=partial(_ambiguities, kind),
    )
    for kind in ("yolo5", "yolox", "yolo8")
)  # fmt: skip


def _find_maps(view: View, is_asked: bool) -> tuple[int, int, int] | None:
    """Return the indices of the outputs with scores, sizes and offsets."""
    shapes = view.shapes
    if len(shapes) != 3 or any(len(s) != 4 or s[:3] != (1, *shapes[0][1:3]) for s in shapes):
        return None
    pairs = [number for number, shape in enumerate(shapes) if shape[3] == 2]
    if len(pairs) == 3:
        pairs = pairs[1:]  # two classes, whose output comes first
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


def _map_classes(view: View) -> int | None:
    places = _find_maps(view, True)
    return None if places is None else view.shapes[places[0]][3]


def peaks(scores: Floats) -> Floats:
    """Return the local maxima of each class's scores, 0 elsewhere. Shapes: (h, w, c)."""
    height, width, _ = scores.shape
    around = np.pad(scores, ((1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    largest = scores
    for y in range(3):
        for x in range(3):
            largest = np.maximum(largest, around[y : y + height, x : x + width])
    result: Floats = np.where(scores == largest, scores, np.float32(0))
    return result


def _map_means(view: View, places: tuple[int, int, int]) -> Sequence[Ambiguity]:
    return (Ambiguity(places[0]),)


def _read_maps(view: View, places: tuple[int, int, int]) -> Scene:
    scores, sizes, offsets = (view.real(number)[0] for number in places)
    (ambiguity,) = _map_means(view, places)
    found = peaks(as_scores(view, ambiguity, scores))
    height, width, _ = found.shape
    best = np.argsort(-found, axis=None, kind="stable")[:_MOST_PEAKS]
    y, x, classes = np.unravel_index(best, found.shape)
    certain = found[y, x, classes] >= view.least(LEAST_SCORE)
    y, x, classes = y[certain], x[certain], classes[certain]
    middles = offsets[y, x] + np.stack([x, y], axis=1)
    centres = np.concatenate([middles, sizes[y, x]], axis=1)
    sides = corners(centres) / np.array([width, height, width, height], np.float32)
    boxes = detections_of(view, sides, found[y, x, classes], classes)
    return Scene(boxes=boxes, outputs=frozenset(places))


CENTERNET = Head(
    "detection:centernet", _find_maps, _read_maps, _map_classes, ambiguities=_map_means
)
