# SPDX-License-Identifier: Apache-2.0
"""The cells that convolutional heads predict for: level after level, row after row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from label_image.heads.view import Floats

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
