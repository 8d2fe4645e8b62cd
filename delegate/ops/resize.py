# SPDX-License-Identifier: Apache-2.0
"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR, over runs of pixels.

Bilinear: 16-bit integers if they are exact, vectors of channels, and plain. Nearest neighbour:
    vectors of bytes, and plain. If no pixel changes, the output is a view.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.float_results import COPIES, Growth, sums
from delegate.graph.ir import Node
from delegate.launch import Alternative, Constant, Defines, Launch, Params, size_bytes
from delegate.ops._checks.node import require_constant, shape_text, tensors_of
from delegate.ops._launches.copy import view
from delegate.ops._launches.resizing import (
    IN_FLOATS,
    PARTS,
    Resizing,
    interpolation_of,
    interpolation_table,
    over_runs,
)
from delegate.ops._launches.tiles import lanes_of, vectors_of, widest_lanes
from delegate.ops._launches.types import ELEM, copy_type
from delegate.ops._registry import lowers
from delegate.target import Target

_TYPES = ("uint8", "int8", "int16", "float32")
_NEWER_TYPES = ("int32", "bool", "float16")  # nearest neighbour; not in tflite-runtime
_LARGEST = 2**20  # pixels a side: coordinates with 10 fraction bits fit an int32


def _resize_of(node: Node, types: Sequence[str]) -> Resizing:
    """Return a node's tensors and options after checking them.

    Scales and zero points are ignored, as in TFLite.

    Raises:
        Unsupported: other types, an invalid rank or size, a size that is not constant.
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
        expected = f"{batch}x{height}x{width}x{depth}"
        raise Unsupported(f"shapes {shapes}: the output must be {expected}")
    if min(*source.shape, *result.shape) < 1:
        raise Unsupported(f"shapes {shapes}: they are empty")
    if max(*source.shape, *result.shape) > _LARGEST:
        raise Unsupported(f"shapes {shapes}: more than 2^20 along a dimension")
    if max(size_bytes(source), size_bytes(result)) >= 2**31:
        raise Unsupported(f"shapes {shapes}: 2^31 bytes or more")
    flags = {name: node.options.get(name, False) for name in Resizing.__slots__[2:]}
    for name, value in flags.items():
        if value not in (False, True):
            raise Unsupported(f"{name} is {value!r}: true or false is needed")
    return Resizing(source, result, **flags)


@lowers("RESIZE_NEAREST_NEIGHBOR", floats=COPIES)
def lower_resize_nearest_neighbor(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Resize an NHWC tensor by copying the nearest pixels.

    Shapes:
        input (n, h, w, c), constant size (2,) -> output (n, oh, ow, c)
    Raises:
        Unsupported: other types, an invalid shape or size, a size that is not constant.
    """
    newer = _NEWER_TYPES if target.rules.resizes_newer_types else ()
    resize = _resize_of(node, (*_TYPES, *newer))
    if resize.keeps_pixels:
        return view(resize.source, resize.result)
    _, in_h, in_w, depth = resize.source.shape

    def launch(lanes: int, units: int, elem: str) -> Launch:
        """`units`: elements of type `elem` per pixel."""
        tables: Params = {
            "rows": _nearest(resize, 1, in_w * units),
            "columns": _nearest(resize, 2, units),
            "in_picture": in_h * in_w * units,
        }
        defines: Defines = {"ELEM": elem, "LANES": lanes}
        op = "resize_nearest_neighbor"
        return over_runs(op, resize, tables, ("units", units), lanes, 2, defines, target)

    fallback = Alternative("plain", (launch(1, depth, copy_type(resize.source)),))
    count = depth * np.dtype(resize.source.dtype).itemsize
    lanes = widest_lanes(count, 4 if target.group_items > 1 else 16)
    if not lanes:
        return (fallback,)
    return Alternative(f"vector {lanes}", (launch(lanes, count, "uchar"),)), fallback


def _nearest(resize: Resizing, axis: int, step: int) -> Constant:
    """Return the input offset of each output row or column, an int each.

    `step`: units between neighbours.
    """

    def pack() -> NDArray[np.int32]:
        steps, over = resize.step(axis)
        scale = np.float32(steps) / np.float32(over)
        half = np.float32(0.5)
        coordinates = np.arange(resize.result.shape[axis], dtype=np.float32)
        coordinates = (coordinates + half if resize.half_pixel_centers else coordinates) * scale
        # C's round(): floats that are not negative.
        whole = np.floor(coordinates)
        if resize.align_corners:
            whole += coordinates - whole >= half
        last = resize.source.shape[axis] - 1
        offsets: NDArray[np.int32] = whole.clip(0, last).astype(np.int32) * np.int32(step)
        return offsets

    return Constant(4 * resize.result.shape[axis], pack)


@lowers("RESIZE_BILINEAR", floats=sums(Growth.STEADY))
def lower_resize_bilinear(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Resize an NHWC tensor with bilinear interpolation.

    uint8 and float32 use float arithmetic as in TFLite, int8 and int16 fixed point with 10 fraction
    bits.

    Shapes:
        input (n, h, w, c), constant size (2,) -> output (n, oh, ow, c)
    Raises:
        Unsupported: other types, an invalid shape or size, a size that is not constant; both flags;
            coordinates that TFLite rounds to outside of the input.
    Source: tflite/kernels/internal/reference/resize_bilinear.h
    """
    resize = _resize_of(node, _TYPES)
    if resize.align_corners and resize.half_pixel_centers:
        raise Unsupported("align_corners and half_pixel_centers: only one of them")
    # Not for floats: TFLite adds 0 times a neighbour, which is NaN if that is infinite.
    if resize.keeps_pixels and resize.source.dtype != "float32":
        return view(resize.source, resize.result)
    # Both arithmetics are exact if all weights are multiples of 1/16.
    sixteenths = [interpolation_of(resize, axis)[1] * np.float32(PARTS) for axis in (1, 2)]
    is_exact = all(bool(np.all(each == np.floor(each))) for each in sixteenths)
    _, in_h, in_w, depth = resize.source.shape

    def of_lanes(name: str, lanes: int) -> Alternative:
        is_short = name == "short"
        tables: Params = {
            "rows": interpolation_table(resize, 1, in_w * depth, is_short),
            "columns": interpolation_table(resize, 2, depth, is_short),
            "in_pixels": in_h * in_w,
        }
        defines: Defines = {
            "ELEM": ELEM[resize.source.dtype],
            "IS_FLOAT": int(resize.source.dtype in IN_FLOATS and not is_short),
            "IS_SHORT": int(is_short),
            **vectors_of(depth, lanes, target),
        }
        op, of = "resize_bilinear", ("depth", depth)
        launch = over_runs(op, resize, tables, of, lanes, 4, defines, target)
        return Alternative(name if lanes == 1 else f"{name} {lanes}", (launch,))

    kernels = []
    if resize.source.dtype in ("uint8", "int8") and is_exact and target.group_items == 1:
        kernels.append(("short", widest_lanes(depth, 2 * target.vector_width)))
    kernels.append(("vector", lanes_of(depth, target)))
    return (*(of_lanes(name, lanes) for name, lanes in kernels if lanes), of_lanes("plain", 1))
