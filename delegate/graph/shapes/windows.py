# SPDX-License-Identifier: Apache-2.0
"""Shapes of convolutions, of pools, of matrix products and of resized pictures.

Source: tflite/kernels/padding.h ComputeOutSize; conv.cc, depthwise_conv.cc, transpose_conv.cc,
pooling.cc, fully_connected.cc, batch_matmul.cc, resize_bilinear.cc
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from delegate.graph.ir import Node
from delegate.graph.shapes.rule import Rule, Shape, broadcast, integers, shape


def _out_size(node: Node, size: int, window: int, axis: str) -> int:
    """Return how many places a window has along an axis, "h" or "w"."""
    stride = node.options[f"stride_{axis}"]
    dilation = node.options.get(f"dilation_{axis}_factor", 1)
    reach = (window - 1) * dilation + 1
    if min(stride, dilation, window) < 1:
        raise ValueError("no window")
    if node.options["padding"] == "SAME":
        return int((size + stride - 1) // stride)
    if node.options["padding"] != "VALID" or size < reach:
        raise ValueError("no place for the window")
    return int((size + stride - reach) // stride)


def _slid(node: Node, rows: int, columns: int, channels: int) -> list[Shape]:
    """Return the shape that a window of this size gives, as it slides over the first input."""
    batch, height, width, _ = shape(node)
    return [
        (
            batch,
            _out_size(node, height, rows, "h"),
            _out_size(node, width, columns, "w"),
            channels,
        )
    ]


def _conv_2d(node: Node) -> list[Shape]:
    channels, rows, columns, _ = shape(node, 1)
    return _slid(node, rows, columns, channels)


def _depthwise_conv_2d(node: Node) -> list[Shape]:
    _, rows, columns, channels = shape(node, 1)
    return _slid(node, rows, columns, channels)


def _transpose_conv(node: Node) -> list[list[int]]:
    batch, height, width, channels = integers(node, 0)
    return [[batch, height, width, channels]]


def _pool_2d(node: Node) -> list[Shape]:
    rows, columns = node.options["filter_height"], node.options["filter_width"]
    return _slid(node, rows, columns, shape(node)[3])


def _fully_connected(node: Node) -> list[Shape]:
    source, (units, inputs) = shape(node, 0), shape(node, 1)
    if node.options.get("weights_format", "DEFAULT") != "DEFAULT":
        raise ValueError("shuffled weights")
    if node.options.get("keep_num_dims"):
        return [(*source[:-1], units)]
    return [(math.prod(source) // inputs, units)]


def _batch_matmul(node: Node) -> list[Shape]:
    left, right = shape(node, 0), shape(node, 1)
    rank = max(len(left), len(right))
    left, right = ((1,) * (rank - len(each)) + each for each in (left, right))
    rows = left[-1] if node.options.get("adj_x") else left[-2]
    columns = right[-2] if node.options.get("adj_y") else right[-1]
    return [(*broadcast(left[:-2], right[:-2]), rows, columns)]


def _resize(node: Node) -> list[Shape]:
    (batch, _, _, channels), (height, width) = shape(node), integers(node, 1)
    return [(batch, height, width, channels)]


RULES: Mapping[str, Rule] = {
    "AVERAGE_POOL_2D": _pool_2d,
    "BATCH_MATMUL": _batch_matmul,
    "CONV_2D": _conv_2d,
    "DEPTHWISE_CONV_2D": _depthwise_conv_2d,
    "FULLY_CONNECTED": _fully_connected,
    "L2_POOL_2D": _pool_2d,
    "MAX_POOL_2D": _pool_2d,
    "RESIZE_BILINEAR": _resize,
    "RESIZE_NEAREST_NEIGHBOR": _resize,
    "TRANSPOSE_CONV": _transpose_conv,
}
