# SPDX-License-Identifier: Apache-2.0
"""RESIZE_NEAREST_NEIGHBOR: a copy of pixels, over vectors of their bytes, plain."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from delegate.graph.ir import Node
from delegate.launch import Alternative, Constant, Defines, Launch, Params
from delegate.ops._launches.resize import Resize, over_runs, resize_of
from delegate.ops._launches.tiles import widest_lanes
from delegate.ops._launches.types import moved_type
from delegate.ops._registry import lowers
from delegate.target import Target

_TYPES = ("uint8", "int8", "int16", "float32")
_NEWER_TYPES = ("int32", "bool", "float16")  # not of tflite-runtime's kernels


@lowers("RESIZE_NEAREST_NEIGHBOR")
def lower_resize_nearest_neighbor(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Scale an NHWC tensor to another height and width, each pixel a copy of one.

    Shapes:
        input (n, h, w, c), constant size (2,) -> output (n, oh, ow, c)
    Raises:
        Unsupported: see `resize_of`.
    Source: tflite/kernels/internal/reference/resize_nearest_neighbor.h
    """
    newer = _NEWER_TYPES if target.rules.resizes_newer_types else ()
    resize = resize_of(node, (*_TYPES, *newer))
    depth = resize.source.shape[3]
    plain = _launch(resize, 1, depth, moved_type(resize.source), target)
    count = depth * np.dtype(resize.source.dtype).itemsize
    lanes = widest_lanes(count, 4 if target.group_items > 1 else 16)
    if not lanes:
        return (Alternative("plain", (plain,)),)
    vector = _launch(resize, lanes, count, "uchar", target)
    return (Alternative(f"vector {lanes}", (vector,)), Alternative("plain", (plain,)))


def _launch(resize: Resize, lanes: int, units: int, elem: str, target: Target) -> Launch:
    """`units`: of type `elem` that a pixel has."""
    _, in_h, in_w, _ = resize.source.shape
    params: Params = {
        "rows": _table(resize, 1, in_w * units),
        "columns": _table(resize, 2, units),
        "in_picture": in_h * in_w * units,
    }
    defines: Defines = {"ELEM": elem, "LANES": lanes}
    op = "resize_nearest_neighbor"
    return over_runs(op, resize, params, ("units", units), lanes, 2, defines, target)


def _table(resize: Resize, axis: int, step: int) -> Constant:
    """An int a row or column of the output: the offset of its own in the input.

    `step`: units between neighbours.
    """

    def pack() -> NDArray[np.int32]:
        size, count = resize.source.shape[axis], resize.result.shape[axis]
        aligned = resize.align_corners and count > 1
        steps, over = (size - 1, count - 1) if aligned else (size, count)
        scale = np.float32(steps) / np.float32(over)
        half = np.float32(0.5)
        places = np.arange(count, dtype=np.float32)
        places = (places + half if resize.half_pixel_centers else places) * scale
        # C's round(): floats that are not negative.
        whole = np.floor(places)
        if resize.align_corners:
            whole += places - whole >= half
        offsets: NDArray[np.int32] = whole.clip(0, size - 1).astype(np.int32) * np.int32(step)
        return offsets

    return Constant(4 * resize.result.shape[axis], pack)
