# SPDX-License-Identifier: Apache-2.0
"""YOLOs: a row of numbers a box, which begins with its centre, width and height.

v5 has three boxes a cell, v8 and later one. YOLOX counts its boxes from their cells. v10 has chosen
its boxes: left, top, right, bottom, score and class.
Sources: ultralytics/yolov5 models/yolo.py (Detect); ultralytics nn/modules/head.py (Detect,
v10Detect); Megvii-BaseDetection/YOLOX yolox/models/yolo_head.py (decode_outputs).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from label_image.heads.boxes import LEAST_SCORE, as_scores, corners, placed, suppressed
from label_image.heads.grids import cells, strides_of
from label_image.heads.view import Array, Floats, Head, View
from label_image.scene import Scene

_PER_CELL = {"yolo5": 3, "yolo8": 1, "yolox": 1}  # boxes
_BEFORE = {"yolo5": 5, "yolo8": 4, "yolox": 5}  # numbers before the scores: the fifth is "a thing"
_X_CLASSES = 80  # COCO's: so many tell YOLOX from a v8 in the same order
_MASKS = 32  # numbers of a box that come after its scores, where a second output has masks
_MOST_CHOSEN = 1000  # boxes that a v10 may choose; 300 are usual


def rows_of(view: View, outputs: Sequence[Array]) -> Floats:
    """Return a row of real numbers a box, in whichever order the output has them."""
    values = view.real(0, outputs[0])[0]
    is_first = _boxes_first(view.shapes[0], view.input_size, _per_cell(view))
    rows: Floats = values if is_first else values.T
    return rows


def parts(view: View, sides: Floats) -> Floats:
    """Return boxes or points as parts of the picture: some models have pixels of the input.

    Those of all cells are given, so that the largest tells. Shapes: (n, 2 or 4) -> the same
    """
    height, width = view.input_size
    if sides.max(where=np.isfinite(sides), initial=0) > 2:
        return np.divide(sides, [width, height] * (sides.shape[1] // 2), dtype=np.float32)
    return sides


def has_cells(view: View, per_cell: int, least: int) -> bool:
    """Whether the first output has so many boxes a cell, with `least` numbers or more each."""
    shape = view.shapes[0]
    if len(shape) != 3 or shape[0] != 1:
        return False
    first = _boxes_first(shape, view.input_size, per_cell)
    return first is not None and shape[2 if first else 1] >= least


def _boxes_first(shape: Sequence[int], size: tuple[int, int], per_cell: int) -> bool | None:
    """Whether boxes come before numbers in (1, boxes, numbers); None: neither is so many boxes."""
    for place in (1, 2):
        if strides_of(size, shape[place], per_cell) is not None:
            return place == 1
    return None


def _per_cell(view: View) -> int:
    return 1 if has_cells(view, 1, 1) else _PER_CELL["yolo5"]


def _numbers(view: View) -> int:
    """Return how many numbers a box has."""
    shape = view.shapes[0]
    return shape[2 if _boxes_first(shape, view.input_size, _per_cell(view)) else 1]


def _mask_numbers(view: View) -> int:
    """Return how many numbers of a box are for masks, which a second output has."""
    height, width = view.input_size
    sizes = ((1, height // 4, width // 4, _MASKS), (1, _MASKS, height // 4, width // 4))
    return _MASKS if len(view.outputs) == 2 and view.shapes[1] in sizes else 0


def _classes(kind: str, view: View) -> int:
    return _numbers(view) - _BEFORE[kind] - _mask_numbers(view)


def _fits(kind: str, view: View, is_asked: bool) -> bool:
    masks = _mask_numbers(view)
    if len(view.outputs) != (2 if masks else 1):
        return False
    if not has_cells(view, _PER_CELL[kind], _BEFORE[kind] + masks + 1):
        return False
    if kind != "yolox" or is_asked:
        return True
    return view.shapes[0][2] == _numbers(view) == 5 + (len(view.labels) or _X_CLASSES)


def _read(kind: str, view: View, outputs: Sequence[Array]) -> Scene:
    rows = rows_of(view, outputs)
    before = _BEFORE[kind]
    scores = as_scores(rows[:, before : before + _classes(kind, view)])
    if before == 5:
        scores = scores * as_scores(rows[:, 4:5])
    centres = rows[:, :4]
    if kind == "yolox":
        strides = strides_of(view.input_size, len(rows))
        assert strides is not None
        places, lengths = cells(view.input_size, strides)
        sizes = np.exp(np.clip(rows[:, 2:4], -20, 20))
        centres = np.concatenate([rows[:, :2] + places, sizes], axis=1) * lengths
    boxes = suppressed(view, corners(parts(view, centres)), scores)
    return Scene(boxes=boxes, outputs=frozenset(range(len(view.outputs))))


def _head(kind: str) -> Head:
    def fits(view: View, is_asked: bool) -> bool:
        return _fits(kind, view, is_asked)

    def read(view: View, outputs: Sequence[Array]) -> Scene:
        return _read(kind, view, outputs)

    def classes(view: View) -> int | None:
        return _classes(kind, view)

    return Head(f"detection:{kind}", fits, read, classes, 0.0, 1.0 if kind == "yolox" else 255.0)


def _has_chosen(view: View, is_asked: bool) -> bool:
    shape = view.shapes[0]
    is_such = len(view.outputs) == 1 and len(shape) == 3 and (shape[0], shape[2]) == (1, 6)
    return is_such and shape[1] <= _MOST_CHOSEN and (is_asked or shape[1] % 100 == 0)


def _read_chosen(view: View, outputs: Sequence[Array]) -> Scene:
    rows = view.real(0, outputs[0])[0]
    sides = parts(view, rows[:, :4])
    certain = rows[:, 4] >= view.least(LEAST_SCORE)
    boxes = placed(view, sides[certain], rows[certain, 4], np.round(rows[certain, 5]))
    return Scene(boxes=boxes, outputs=frozenset({0}))


HEADS = (
    _head("yolo5"),
    _head("yolox"),
    _head("yolo8"),
    Head("detection:yolo10", _has_chosen, _read_chosen, mean=0.0, std=255.0),
)
