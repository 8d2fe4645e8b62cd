# SPDX-License-Identifier: Apache-2.0
"""Resizing of NHWC tensors: interpolation tables, and launches over runs of a row's pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.launch import Constant, Defines, Launch, Params
from delegate.ops._launches.tiles import HALF_ROUNDS, by_work, launch_over
from delegate.ops._numbers import ceil_div
from delegate.target import Target

IN_FLOATS = ("uint8", "float32")  # types that TFLite interpolates in floats
PARTS = 16  # with weights in 16ths, sums of 8-bit products fit 16 bits
_RUN = 2048  # pixels per work-item, if a work-group is one work-item
_RUN_IN_GROUP = 4


@dataclass(frozen=True, slots=True)
class Resizing:
    """A checked resizing of an NHWC tensor."""

    source: Tensor
    result: Tensor
    align_corners: bool  # the corner pixels' centres coincide
    half_pixel_centers: bool  # coordinates are those of pixel centres

    @property
    def keeps_pixels(self) -> bool:
        """Whether the result equals the input; both flags together shift coordinates."""
        is_shifted = self.align_corners and self.half_pixel_centers
        return self.source.shape == self.result.shape and not is_shifted

    def step(self, axis: int) -> tuple[int, int]:
        """Return the scale along an axis as (input pixels, output pixels)."""
        size, count = self.source.shape[axis], self.result.shape[axis]
        return (size - 1, count - 1) if self.align_corners and count > 1 else (size, count)


def interpolation_of(resize: Resizing, axis: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the two input rows or columns around each output row or column, and their weights.

    Shapes:
        -> ((2, out) indices, (2, out) weights); weights of integers are in 1024ths
    """
    size, count = resize.source.shape[axis], resize.result.shape[axis]
    steps, divisor = resize.step(axis)
    if resize.source.dtype in IN_FLOATS:
        scale = np.float32(steps) / np.float32(divisor)
        numbers = np.arange(count, dtype=np.float32)
        half = np.float32(0.5)
        exact = (numbers + half) * scale - half if resize.half_pixel_centers else numbers * scale
        lower = np.maximum(np.floor(exact).astype(np.int64), 0)
        upper = np.minimum(np.ceil(exact).astype(np.int64), size - 1)
        upper_weight = exact - lower.astype(np.float32)
        lower_weight = np.float32(1) - upper_weight
    else:
        scale_10 = (1024 * steps + divisor // 2) // divisor
        fixed = np.arange(count, dtype=np.int64) * scale_10
        if resize.half_pixel_centers:
            fixed += scale_10 // 2 - 512
        lower = np.maximum(fixed, 0) // 1024
        upper = np.minimum((fixed + 1023) // 1024, size - 1)
        upper_weight = (fixed - 1024 * lower).astype(np.float32)
        lower_weight = np.float32(1024) - upper_weight
    if int(max(lower.max(), upper.max())) >= size:
        raise Unsupported(f"{size} to {count} pixels: TFLite would read outside of the input")
    indices, weights = np.array([lower, upper]), np.array([lower_weight, upper_weight])
    if resize.source.dtype not in IN_FLOATS:
        # Integers may read any pixel whose weight is 0. Floats may not: 0 times infinity is NaN.
        weights[:, lower == upper] = [[1024], [0]]
        weights /= 1024
    return indices, weights


def interpolation_table(resize: Resizing, axis: int, step: int, is_short: bool) -> Constant:
    """Return four ints per output row or column: two input offsets in elements, and two weights.

    `step`: elements between neighbours.
    """

    def pack() -> NDArray[np.int32]:
        (lower, upper), weights = interpolation_of(resize, axis)
        is_float = resize.source.dtype in IN_FLOATS and not is_short
        if is_short:
            weights[:, lower == upper] = [[1], [0]]
        if is_float:
            numbers = np.ascontiguousarray(weights).view(np.int32)
        else:
            numbers = (weights * (PARTS if is_short else 1024)).astype(np.int32)
            upper = np.minimum(lower + 1, resize.source.shape[axis] - 1)
        return np.stack([lower * step, upper * step, *numbers], 1).astype(np.int32)

    return Constant(16 * resize.result.shape[axis], pack)


def over_runs(
    op: str,
    resize: Resizing,
    tables: Params,
    depth: tuple[str, int],
    lanes: int,
    pixel_work: int,
    defines: Defines,
    target: Target,
) -> Launch:
    """Return a launch over runs of an output row's pixels, and over blocks of `lanes` channels.

    `op`: the kernel and its file. `depth`: name of the field, and elements per pixel.
    Units:
        pixel_work: vector multiplications
    """
    name, elements = depth
    batch, out_h, out_w, _ = resize.result.shape
    run = min(out_w, _RUN_IN_GROUP if target.group_items > 1 else _RUN)
    segments, blocks = ceil_div(out_w, run), ceil_div(elements, lanes)
    items = batch * out_h * segments * blocks
    params: Params = {
        "input": resize.source,
        "output": resize.result,
        **tables,
        "out_h": out_h,
        "out_w": out_w,
        name: elements,
        "run": run,
        "segments": segments,
        "blocks": blocks,
        "items": items,
    }
    tiling = by_work(items, pixel_work * run, target, HALF_ROUNDS // run)
    return launch_over(op, op, tiling, params, defines)
