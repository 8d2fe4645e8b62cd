# SPDX-License-Identifier: Apache-2.0
"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR, over runs of pixels.

Bilinear in 16-bit integers where those are exact, else over vectors of channels, and plain. The
nearest neighbour is a copy of pixels, over vectors of their bytes, and plain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Defines, Launch, Params, size_bytes
from delegate.ops._checks.node import require_constant, shape_text, tensors_of
from delegate.ops._launches.tiles import (
    HALF_ROUNDS,
    by_work,
    lanes_of,
    launch_over,
    vectors_of,
    widest_lanes,
)
from delegate.ops._launches.types import ELEM, moved_type
from delegate.ops._numbers import ceil_div
from delegate.ops._registry import lowers
from delegate.target import Target

_TYPES = ("uint8", "int8", "int16", "float32")
_NEWER_TYPES = ("int32", "bool", "float16")  # nearest neighbour; not of tflite-runtime's kernels
_IN_FLOATS = ("uint8", "float32")  # TFLite's bilinear arithmetic of them
_LARGEST = 2**20  # pixels a side: places as fixed-point numbers with 10 fraction bits fit an int32
_RUN = 2048  # pixels of a work-item, where a group is one work-item
_RUN_IN_GROUP = 4
_PARTS = 16  # a weight in so many parts makes a sum of 8-bit products fit 16 bits


@dataclass(frozen=True, slots=True)
class _Resize:
    """A checked resizing of an NHWC tensor."""

    source: Tensor
    result: Tensor
    align_corners: bool  # the corners' pixels are at the same places in both
    half_pixel_centers: bool  # a pixel's place is its centre

    def step(self, axis: int) -> tuple[int, int]:
        """Return pixels of the input, and how many of the output's are as wide."""
        size, count = self.source.shape[axis], self.result.shape[axis]
        return (size - 1, count - 1) if self.align_corners and count > 1 else (size, count)


def _resize_of(node: Node, types: Sequence[str]) -> _Resize:
    """Return a node's tensors and options.

    Scales and zero points are of no account: TFLite's kernels do not look at them.

    Raises:
        Unsupported: other types, a rank or size that does not fit, a computed size.
    Source: tflite/kernels/resize_bilinear.cc, resize_nearest_neighbor.cc
    """
    source, size, result = tensors_of(node, 2)
    if source.dtype != result.dtype or source.dtype not in types:
        raise Unsupported(
            f"{source.dtype} in, {result.dtype} out: one of {', '.join(types)} is needed"
        )
    if size.dtype != "int32" or size.shape != (2,):
        raise Unsupported(f"size {size.dtype} of {shape_text(size)}: int32 of 2 is needed")
    height, width = np.ravel(require_constant(size, "height and width")).tolist()
    shapes = f"{shape_text(source)} -> {shape_text(result)}"
    if len(source.shape) != 4:
        raise Unsupported(f"shapes {shapes}: only rank 4 (NHWC)")
    batch, _, _, depth = source.shape
    if result.shape != (batch, height, width, depth):
        raise Unsupported(f"shapes {shapes}: {batch}x{height}x{width}x{depth} is computed")
    if min(*source.shape, *result.shape) < 1:
        raise Unsupported(f"shapes {shapes}: they are empty")
    if max(*source.shape, *result.shape) > _LARGEST:
        raise Unsupported(f"shapes {shapes}: more than 2^20 along a dimension")
    if max(size_bytes(source), size_bytes(result)) >= 2**31:
        raise Unsupported(f"shapes {shapes}: 2^31 bytes or more")
    flags = {name: node.options.get(name, False) for name in _Resize.__slots__[2:]}
    for name, value in flags.items():
        if value not in (False, True):
            raise Unsupported(f"{name} is {value!r}: true or false is needed")
    return _Resize(source, result, **flags)


def _over_runs(
    op: str,
    resize: _Resize,
    tables: Params,
    depth: tuple[str, int],
    lanes: int,
    pixel_work: int,
    defines: Defines,
    target: Target,
) -> Launch:
    """Return a launch over runs of an output row's pixels, and over blocks of `lanes` channels.

    `op`: the kernel and its file. `depth`: the field's name and the elements of a pixel.
    Units:
        pixel_work: multiplications of vectors
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


@lowers("RESIZE_NEAREST_NEIGHBOR")
def lower_resize_nearest_neighbor(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Scale an NHWC tensor to another height and width, each pixel a copy of one.

    Shapes:
        input (n, h, w, c), constant size (2,) -> output (n, oh, ow, c)
    Raises:
        Unsupported: types, shapes or a size that do not fit, a computed size.
    Source: tflite/kernels/internal/reference/resize_nearest_neighbor.h
    """
    newer = _NEWER_TYPES if target.rules.resizes_newer_types else ()
    resize = _resize_of(node, (*_TYPES, *newer))
    _, in_h, in_w, depth = resize.source.shape

    def launch(lanes: int, units: int, elem: str) -> Launch:
        """`units`: of type `elem` that a pixel has."""
        tables: Params = {
            "rows": _nearest(resize, 1, in_w * units),
            "columns": _nearest(resize, 2, units),
            "in_picture": in_h * in_w * units,
        }
        defines: Defines = {"ELEM": elem, "LANES": lanes}
        op = "resize_nearest_neighbor"
        return _over_runs(op, resize, tables, ("units", units), lanes, 2, defines, target)

    plain = Alternative("plain", (launch(1, depth, moved_type(resize.source)),))
    count = depth * np.dtype(resize.source.dtype).itemsize
    lanes = widest_lanes(count, 4 if target.group_items > 1 else 16)
    if not lanes:
        return (plain,)
    return Alternative(f"vector {lanes}", (launch(lanes, count, "uchar"),)), plain


def _nearest(resize: _Resize, axis: int, step: int) -> Constant:
    """An int a row or column of the output: the offset of its own in the input.

    `step`: units between neighbours.
    """

    def pack() -> NDArray[np.int32]:
        steps, over = resize.step(axis)
        scale = np.float32(steps) / np.float32(over)
        half = np.float32(0.5)
        places = np.arange(resize.result.shape[axis], dtype=np.float32)
        places = (places + half if resize.half_pixel_centers else places) * scale
        # C's round(): floats that are not negative.
        whole = np.floor(places)
        if resize.align_corners:
            whole += places - whole >= half
        last = resize.source.shape[axis] - 1
        offsets: NDArray[np.int32] = whole.clip(0, last).astype(np.int32) * np.int32(step)
        return offsets

    return Constant(4 * resize.result.shape[axis], pack)


@lowers("RESIZE_BILINEAR")
def lower_resize_bilinear(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Scale an NHWC tensor to another height and width, linearly between neighbouring pixels.

    uint8 and float32 are TFLite's float arithmetic, int8 and int16 its fixed point with 10
    fraction bits.

    Shapes:
        input (n, h, w, c), constant size (2,) -> output (n, oh, ow, c)
    Raises:
        Unsupported: types, shapes or a size that do not fit, a computed size; both options; a place
            outside of the input, which rounding may give.
    Source: tflite/kernels/internal/reference/resize_bilinear.h
    """
    resize = _resize_of(node, _TYPES)
    if resize.align_corners and resize.half_pixel_centers:
        raise Unsupported("align_corners and half_pixel_centers: only one of them")
    # Sums of both arithmetics are exact where weights are multiples of 1/16.
    parts = [_lines(resize, axis)[1] * np.float32(_PARTS) for axis in (1, 2)]
    is_exact = all(bool(np.all(each == np.floor(each))) for each in parts)
    _, in_h, in_w, depth = resize.source.shape

    def way(name: str, lanes: int) -> Alternative:
        is_short = name == "short"
        tables: Params = {
            "rows": _between(resize, 1, in_w * depth, is_short),
            "columns": _between(resize, 2, depth, is_short),
            "in_pixels": in_h * in_w,
        }
        defines: Defines = {
            "ELEM": ELEM[resize.source.dtype],
            "IS_FLOAT": int(resize.source.dtype in _IN_FLOATS and not is_short),
            "IS_SHORT": int(is_short),
            **vectors_of(depth, lanes, target),
        }
        op, of = "resize_bilinear", ("depth", depth)
        launch = _over_runs(op, resize, tables, of, lanes, 4, defines, target)
        return Alternative(name if lanes == 1 else f"{name} {lanes}", (launch,))

    found = []
    if resize.source.dtype in ("uint8", "int8") and is_exact and target.group_items == 1:
        found.append(("short", widest_lanes(depth, 2 * target.vector_width)))
    found.append(("vector", lanes_of(depth, target)))
    return (*(way(name, lanes) for name, lanes in found if lanes), way("plain", 1))


def _lines(resize: _Resize, axis: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return, for each row or column of the output, the input's two it lies between.

    Shapes:
        -> ((2, out) places, (2, out) weights); the weights of integers are in 1024ths
    """
    size, count = resize.source.shape[axis], resize.result.shape[axis]
    steps, over = resize.step(axis)
    if resize.source.dtype in _IN_FLOATS:
        scale = np.float32(steps) / np.float32(over)
        numbers = np.arange(count, dtype=np.float32)
        half = np.float32(0.5)
        exact = (numbers + half) * scale - half if resize.half_pixel_centers else numbers * scale
        lower = np.maximum(np.floor(exact).astype(np.int64), 0)
        upper = np.minimum(np.ceil(exact).astype(np.int64), size - 1)
        upper_weight = exact - lower.astype(np.float32)
        lower_weight = np.float32(1) - upper_weight
    else:
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
    if resize.source.dtype not in _IN_FLOATS:
        # Integers may take a pixel for its neighbour where its weight is 0, and floats may not: 0
        # times infinity is none.
        weights[:, lower == upper] = [[1024], [0]]
        weights /= 1024
    return places, weights


def _between(resize: _Resize, axis: int, step: int, is_short: bool) -> Constant:
    """Four ints a row or column: the offsets of its two in the input, in elements; two weights.

    `step`: elements between neighbours.
    """

    def pack() -> NDArray[np.int32]:
        (lower, upper), weights = _lines(resize, axis)
        is_float = resize.source.dtype in _IN_FLOATS and not is_short
        if is_short:
            weights[:, lower == upper] = [[1], [0]]
        if is_float:
            numbers = np.ascontiguousarray(weights).view(np.int32)
        else:
            numbers = (weights * (_PARTS if is_short else 1024)).astype(np.int32)
            upper = np.minimum(lower + 1, resize.source.shape[axis] - 1)
        return np.stack([lower * step, upper * step, *numbers], 1).astype(np.int32)

    return Constant(16 * resize.result.shape[axis], pack)
