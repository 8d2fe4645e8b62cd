# SPDX-License-Identifier: Apache-2.0
"""RESIZE_BILINEAR: in 16-bit integers where those are exact, over vectors of channels, plain."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative, Constant, Defines, Launch, Params
from delegate.ops._launches.resize import Resize, over_runs, resize_of
from delegate.ops._launches.tiles import lanes_of, vectors_of, widest_lanes
from delegate.ops._launches.types import ELEM
from delegate.ops._registry import lowers
from delegate.target import Target

_TYPES = ("uint8", "int8", "int16", "float32")
_PARTS = 16  # a weight in so many parts makes a sum of 8-bit products fit 16 bits


@lowers("RESIZE_BILINEAR")
def lower_resize_bilinear(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Scale an NHWC tensor to another height and width, linearly between neighbouring pixels.

    uint8 and float32 are TFLite's float arithmetic, int8 and int16 its fixed point with 10
    fraction bits.

    Shapes:
        input (n, h, w, c), constant size (2,) -> output (n, oh, ow, c)
    Raises:
        Unsupported: see `resize_of`; both options; a place outside of the input, which rounding
            may give.
    Source: tflite/kernels/internal/reference/resize_bilinear.h
    """
    resize = resize_of(node, _TYPES)
    if resize.align_corners and resize.half_pixel_centers:
        raise Unsupported("align_corners and half_pixel_centers: only one of them")
    rows, columns = (_places(resize, axis) for axis in (1, 2))
    depth = resize.source.shape[3]
    found = []
    is_exact = all(_is_in_parts(weights) for _, weights in (rows, columns))
    if resize.source.dtype in ("uint8", "int8") and is_exact and target.group_items == 1:
        lanes = widest_lanes(depth, 2 * target.vector_width)
        if lanes:
            found.append(Alternative(f"short {lanes}", (_launch(resize, lanes, True, target),)))
    lanes = lanes_of(depth, target)
    if lanes:
        found.append(Alternative(f"vector {lanes}", (_launch(resize, lanes, False, target),)))
    return (*found, Alternative("plain", (_launch(resize, 1, False, target),)))


def _launch(resize: Resize, lanes: int, is_short: bool, target: Target) -> Launch:
    _, in_h, in_w, depth = resize.source.shape
    params: Params = {
        "rows": _table(resize, 1, in_w * depth, is_short),
        "columns": _table(resize, 2, depth, is_short),
        "in_pixels": in_h * in_w,
    }
    defines: Defines = {
        "ELEM": ELEM[resize.source.dtype],
        "IS_FLOAT": int(resize.source.dtype in ("uint8", "float32") and not is_short),
        "IS_SHORT": int(is_short),
        **vectors_of(depth, lanes, target),
    }
    return over_runs("resize_bilinear", resize, params, ("depth", depth), lanes, 4, defines, target)


def _places(resize: Resize, axis: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return, for each row or column of the output, the input's two it lies between.

    Shapes:
        -> ((2, out) places, (2, out) weights); the weights of integers are in 1024ths
    """
    size, count = resize.source.shape[axis], resize.result.shape[axis]
    aligned = resize.align_corners and count > 1
    if resize.source.dtype in ("uint8", "float32"):
        steps, over = (size - 1, count - 1) if aligned else (size, count)
        scale = np.float32(steps) / np.float32(over)
        numbers = np.arange(count, dtype=np.float32)
        half = np.float32(0.5)
        exact = (numbers + half) * scale - half if resize.half_pixel_centers else numbers * scale
        lower = np.maximum(np.floor(exact).astype(np.int64), 0)
        upper = np.minimum(np.ceil(exact).astype(np.int64), size - 1)
        upper_weight = exact - lower.astype(np.float32)
        lower_weight = np.float32(1) - upper_weight
    else:
        steps, over = (size - 1, count - 1) if aligned else (size, count)
        scale_10 = (1024 * steps + over // 2) // over
        fixed = np.arange(count, dtype=np.int64) * scale_10
        if resize.half_pixel_centers:
            fixed += scale_10 // 2 - 512
        lower = np.maximum(fixed, 0) // 1024
        upper = np.minimum((fixed + 1023) // 1024, size - 1)
        upper_weight = (fixed - 1024 * lower).astype(np.float32)
        lower_weight = np.float32(1024) - upper_weight
    if int(max(lower.max(), upper.max())) >= size:
        raise Unsupported(f"{size} to {count} pixels: TFLite would read outside of the input")
    places, weights = np.array([lower, upper]), np.array([lower_weight, upper_weight])
    if resize.source.dtype not in ("uint8", "float32"):
        # Integers may take a pixel for its neighbour where its weight is 0, and floats may not: 0
        # times infinity is none.
        weights[:, lower == upper] = [[1024], [0]]
        weights /= 1024
    return places, weights


def _is_in_parts(weights: NDArray[np.float32]) -> bool:
    """Tell if weights are multiples of 1/16: then the sums of both arithmetics are exact."""
    parts = weights * np.float32(_PARTS)
    return bool(np.all(parts == np.floor(parts)))


def _table(resize: Resize, axis: int, step: int, is_short: bool) -> Constant:
    """Four ints a row or column: the offsets of its two in the input, in elements; two weights.

    `step`: elements between neighbours.
    """

    def pack() -> NDArray[np.int32]:
        places, weights = _places(resize, axis)
        lower, upper = places
        if is_short:
            weights = weights.copy()
            weights[:, lower == upper] = [[1], [0]]
            numbers = (weights * _PARTS).astype(np.int32)
        elif resize.source.dtype in ("uint8", "float32"):
            numbers = np.ascontiguousarray(weights).view(np.int32)
        else:
            numbers = (weights * 1024).astype(np.int32)
        if is_short or resize.source.dtype not in ("uint8", "float32"):
            upper = np.minimum(lower + 1, resize.source.shape[axis] - 1)
        return np.stack([lower * step, upper * step, *numbers], 1).astype(np.int32)

    return Constant(16 * resize.result.shape[axis], pack)
