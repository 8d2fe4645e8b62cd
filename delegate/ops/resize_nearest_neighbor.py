# SPDX-License-Identifier: Apache-2.0
"""RESIZE_NEAREST_NEIGHBOR: a copy of pixels, over vectors of their bytes, plain."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from delegate.graph.ir import Node
from delegate.launch import Alternative, Constant, Launch
from delegate.ops._checks.resize import Resize, resize_of
from delegate.ops._launches.tiles import HALF_ROUNDS, by_work
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
    batch, in_h, in_w, depth = resize.source.shape
    _, out_h, out_w, _ = resize.result.shape
    bytes_an_element = np.dtype(resize.source.dtype).itemsize

    def alternative(name: str, lanes: int, units: int, elem: str) -> Alternative:
        run = min(out_w, 4 if target.group_items > 1 else 2048)
        segments, blocks = -(-out_w // run), -(-units // lanes)
        items = batch * out_h * segments * blocks
        tiling = by_work(items, 2 * run, target, HALF_ROUNDS // run)
        launch = Launch(
            "resize_nearest_neighbor",
            "resize_nearest_neighbor",
            tiles=tiling.tiles,
            group_items=tiling.group_items,
            params={
                "input": resize.source,
                "output": resize.result,
                "rows": _table(resize, 1, in_w * units),
                "columns": _table(resize, 2, units),
                "in_picture": in_h * in_w * units,
                "out_h": out_h,
                "out_w": out_w,
                "units": units,
                "run": run,
                "segments": segments,
                "blocks": blocks,
                "items": items,
                "tile_items": tiling.tile_items,
            },
            reads=(resize.source,),
            writes=(resize.result,),
            defines={"ELEM": elem, "LANES": lanes},
        )
        return Alternative(name, (launch,))

    units = depth * bytes_an_element
    widest = 4 if target.group_items > 1 else 16
    lanes = max((n for n in (16, 8, 4) if n <= min(widest, units)), default=0)
    plain = alternative("plain", 1, depth, moved_type(resize.source))
    vector = (alternative(f"vector {lanes}", lanes, units, "uchar"),) if lanes else ()
    return (*vector, plain)


def _table(resize: Resize, axis: int, step: int) -> Constant:
    """An int a row or column of the output: the offset of its own in the input.

    `step`: what lies between neighbours.
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
