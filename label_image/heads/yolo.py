# SPDX-License-Identifier: Apache-2.0
"""YOLOs: a row of numbers a box, which begins with its centre, width and height.

v5 has three boxes a cell, v8 and later one. YOLOX counts its boxes from their cells. The cells are
level after level, row after row.
Sources: ultralytics/yolov5 models/yolo.py (Detect); ultralytics nn/modules/head.py (Detect);
Megvii-BaseDetection/YOLOX yolox/models/yolo_head.py (decode_outputs).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from label_image.heads.boxes import as_scores, corners, parts, suppressed
from label_image.heads.view import Floats, Head, View
from label_image.scene import Scene

_PER_CELL = {"yolo5": 3, "yolo8": 1, "yolox": 1}  # boxes
_BEFORE = {"yolo5": 5, "yolo8": 4, "yolox": 5}  # numbers before the scores: the fifth is "a thing"
_X_CLASSES = 80  # COCO's: so many tell YOLOX from a v8 in the same order
_MASKS = 32  # numbers of a box that come after its scores, where a second output has masks
# Strides of the levels that YOLOs have: of most, of those with a fourth level, and of tiny ones.
YOLO_STRIDES = ((8, 16, 32), (8, 16, 32, 64), (16, 32), (4, 8, 16, 32))


def level_sizes(size: tuple[int, int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Return the height and width in cells of each level of an input of this size."""
    return [(-(-size[0] // stride), -(-size[1] // stride)) for stride in strides]


def cell_count(size: tuple[int, int], strides: Sequence[int]) -> int:
    """Return how many cells all levels have."""
    return sum(height * width for height, width in level_sizes(size, strides))


def strides_of(size: tuple[int, int], count: int, per_cell: int = 1) -> Sequence[int] | None:
    """Return the strides of a YOLO that predicts so many boxes; None: no known one does.

    `per_cell`: boxes a cell.
    """
    if not min(size):
        return None
    matching = (s for s in YOLO_STRIDES if per_cell * cell_count(size, s) == count)
    return next(matching, None)


def cells(size: tuple[int, int], strides: Sequence[int]) -> tuple[Floats, Floats]:
    """Return each cell's column and row, and its stride. Shapes: (cells, 2), (cells, 1)."""
    places, lengths = [], []
    for (height, width), stride in zip(level_sizes(size, strides), strides, strict=True):
        rows, columns = np.mgrid[:height, :width]
        places.append(np.stack([columns, rows], axis=-1).reshape(-1, 2))
        lengths.append(np.full((height * width, 1), stride))
    return np.concatenate(places).astype(np.float32), np.concatenate(lengths).astype(np.float32)


def rows_of(view: View) -> Floats:
    """Return a row of real numbers a box, in whichever order the output has them."""
    values = view.real(0)[0]
    is_first = _boxes_first(view.shapes[0], view.input_size, _per_cell(view))
    rows: Floats = values if is_first else values.T
    return rows


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


def _read(kind: str, view: View, found: bool) -> Scene:
    rows = rows_of(view)
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
    std = 1.0 if kind == "yolox" else 255.0
    fits, read, classes = partial(_fits, kind), partial(_read, kind), partial(_classes, kind)
    return Head(f"detection:{kind}", fits, read, classes, 0.0, std)


HEADS = (_head("yolo5"), _head("yolox"), _head("yolo8"))
