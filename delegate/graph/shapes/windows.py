# SPDX-License-Identifier: Apache-2.0
"""Shapes of convolutions, pools, matrix products, resized pictures and blocks of pixels.

Source: tflite/kernels/padding.h ComputeOutSize; conv.cc, depthwise_conv.cc, transpose_conv.cc,
conv3d.cc, conv3d_transpose.cc, pooling.cc, fully_connected.cc, batch_matmul.cc,
resize_bilinear.cc, depth_to_space.cc, space_to_depth.cc, batch_to_space_nd.cc, space_to_batch_nd.cc
"""

from __future__ import annotations

import math
from dataclasses import replace

from delegate.graph.ir import Node
from delegate.graph.mediapipe import (
    MAX_POOLING,
    MAX_UNPOOLING,
    TRANSPOSE_CONV_BIAS,
    pooling_of,
    transposed_shape,
)
from delegate.graph.pool_3d import POOLS_3D, pool_3d_of
from delegate.graph.reduced_windows import axes_of
from delegate.graph.shapes.rule import Shape, broadcast, integers, output, outputs, pairs, shape


def _out_size(node: Node, size: int, window: int, axis: str) -> int:
    """Return the number of window positions along an axis, "d", "h" or "w"."""
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


def _slid(node: Node, rows: int, columns: int, channels: int) -> Shape:
    """Return the output shape of a window of this size that slides over the first input."""
    batch, height, width, _ = shape(node)
    sizes = _out_size(node, height, rows, "h"), _out_size(node, width, columns, "w")
    return (batch, *sizes, channels)


@output("CONV_2D")
def _conv_2d(node: Node) -> Shape:
    channels, rows, columns, _ = shape(node, 1)
    return _slid(node, rows, columns, channels)


@output("DEPTHWISE_CONV_2D")
def _depthwise_conv_2d(node: Node) -> Shape:
    _, rows, columns, channels = shape(node, 1)
    return _slid(node, rows, columns, channels)


@output("CONV_3D")
def _conv_3d(node: Node) -> Shape:
    (batch, *sizes, _), (*kernel, _, channels) = shape(node), shape(node, 1)
    axes = zip(sizes, kernel, "dhw", strict=True)
    return (batch, *(_out_size(node, size, window, axis) for size, window, axis in axes), channels)


@output("CONV_3D_TRANSPOSE")
def _conv_3d_transpose(node: Node) -> Shape:
    batch, depth, height, width, channels = integers(node, 0)
    return batch, depth, height, width, channels


@output("TRANSPOSE_CONV")
def _transpose_conv(node: Node) -> Shape:
    batch, height, width, channels = integers(node, 0)
    return batch, height, width, channels


@outputs(TRANSPOSE_CONV_BIAS, is_custom=True)
def _transpose_conv_bias(node: Node) -> list[Shape]:
    return [transposed_shape(node)]


@outputs(MAX_POOLING, is_custom=True)
def _max_pooling(node: Node) -> list[Shape]:
    pooled = tuple(_pool_2d(replace(node, options=pooling_of(node))))
    return [pooled, pooled]


@outputs(MAX_UNPOOLING, is_custom=True)
def _max_unpooling(node: Node) -> list[Shape]:
    (batch, height, width, channels), options = shape(node), pooling_of(node)
    sizes = height * options["filter_height"], width * options["filter_width"]
    return [(batch, *sizes, channels)]


@outputs(" ".join(POOLS_3D), is_custom=True)
def _pool_3d(node: Node) -> list[Shape]:
    (batch, *sizes, channels), options = shape(node), pool_3d_of(node)
    of_node = replace(node, options=options)
    axes = zip(sizes, "dhw", strict=True)
    places = (_out_size(of_node, size, options[f"filter_{a}"], a) for size, a in axes)
    return [(batch, *places, channels)]


@output("AVERAGE_POOL_2D L2_POOL_2D MAX_POOL_2D")
def _pool_2d(node: Node) -> Shape:
    rows, columns = node.options["filter_height"], node.options["filter_width"]
    return _slid(node, rows, columns, shape(node)[3])


@output("REDUCE_WINDOW STABLEHLO_REDUCE_WINDOW")
def _reduce_window(node: Node) -> list[int]:
    return [axis.places for axis in axes_of(node)]


@output("FULLY_CONNECTED")
def _fully_connected(node: Node) -> Shape:
    source, (units, inputs) = shape(node, 0), shape(node, 1)
    if node.options.get("weights_format", "DEFAULT") != "DEFAULT":
        raise ValueError("shuffled weights")
    if node.options.get("keep_num_dims"):
        return (*source[:-1], units)
    return math.prod(source) // inputs, units


@output("BATCH_MATMUL")
def _batch_matmul(node: Node) -> Shape:
    left, right = shape(node, 0), shape(node, 1)
    rank = max(len(left), len(right))
    left, right = ((1,) * (rank - len(each)) + each for each in (left, right))
    rows = left[-1] if node.options.get("adj_x") else left[-2]
    columns = right[-2] if node.options.get("adj_y") else right[-1]
    return (*broadcast(left[:-2], right[:-2]), rows, columns)


@output("RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR")
def _resize(node: Node) -> Shape:
    (batch, _, _, channels), (height, width) = shape(node), integers(node, 1)
    return batch, height, width, channels


@output("DEPTH_TO_SPACE")
def _depth_to_space(node: Node) -> Shape:
    (batch, height, width, channels), block = shape(node), node.options["block_size"]
    return batch, height * block, width * block, channels // (block * block)


@output("SPACE_TO_DEPTH")
def _space_to_depth(node: Node) -> Shape:
    (batch, height, width, channels), block = shape(node), node.options["block_size"]
    return batch, height // block, width // block, channels * block * block


@output("SPACE_TO_BATCH_ND")
def _space_to_batch_nd(node: Node) -> Shape:
    (batch, *sizes), blocks = shape(node), integers(node, 1)
    count = len(blocks)
    rows = zip(sizes[:count], blocks, pairs(node, 2), strict=True)
    padded = [(size + sum(pad), block) for size, block, pad in rows]
    if any(size % block for size, block in padded):
        raise ValueError("blocks that do not divide the sizes")
    spatial = [size // block for size, block in padded]
    return (batch * math.prod(blocks), *spatial, *sizes[count:])


@output("BATCH_TO_SPACE_ND")
def _batch_to_space_nd(node: Node) -> Shape:
    (batch, *sizes), blocks = shape(node), integers(node, 1)
    count = len(blocks)
    rows = zip(sizes[:count], blocks, pairs(node, 2), strict=True)
    spatial = [size * block - sum(crop) for size, block, crop in rows]
    if batch % math.prod(blocks):
        raise ValueError("blocks that do not divide the batch")
    return (batch // math.prod(blocks), *spatial, *sizes[count:])
