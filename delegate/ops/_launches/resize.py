# SPDX-License-Identifier: Apache-2.0
"""What the two resizing ops share: the node, checked, and launches over runs of pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Defines, Launch, Params, size_bytes
from delegate.ops._checks.node import require_constant, shape_text, tensors_of
from delegate.ops._launches.tiles import HALF_ROUNDS, by_work, launch_over
from delegate.ops._numbers import ceil_div
from delegate.target import Target

_LARGEST = 2**20  # pixels a side: places as fixed-point numbers with 10 fraction bits fit an int32
_RUN = 2048  # pixels of a work-item, where a group is one work-item
_RUN_IN_GROUP = 4


@dataclass(frozen=True, slots=True)
class Resize:
    """A checked resizing of an NHWC tensor."""

    source: Tensor
    result: Tensor
    align_corners: bool  # the corners' pixels are at the same places in both
    half_pixel_centers: bool  # a pixel's place is its centre


def resize_of(node: Node, types: Sequence[str]) -> Resize:
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
    align_corners = _flag(node.options, "align_corners")
    half_pixel_centers = _flag(node.options, "half_pixel_centers")
    return Resize(source, result, align_corners, half_pixel_centers)


def _flag(options: Mapping[str, Any], name: str) -> bool:
    value = options.get(name, False)
    if value not in (False, True):
        raise Unsupported(f"{name} is {value!r}: true or false is needed")
    return bool(value)


def over_runs(
    op: str,
    resize: Resize,
    params: Params,
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
    sizes = {
        "out_h": out_h,
        "out_w": out_w,
        name: elements,
        "run": run,
        "segments": segments,
        "blocks": blocks,
        "items": items,
    }
    tiling = by_work(items, pixel_work * run, target, HALF_ROUNDS // run)
    tensors: Params = {"input": resize.source, "output": resize.result}
    return launch_over(op, op, tiling, tensors | params | sizes, defines)
