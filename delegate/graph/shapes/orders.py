# SPDX-License-Identifier: Apache-2.0
"""Shapes of ops that see the same values in another order or under other sizes.

Source: tflite/kernels/reshape.cc, squeeze.cc, expand_dims.cc, transpose.cc, depth_to_space.cc,
space_to_depth.cc, batch_to_space_nd.cc, space_to_batch_nd.cc
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from delegate.graph.ir import Node
from delegate.graph.shapes.rule import Rule, Shape, axis_of, integer, integers, shape


def _reshape(node: Node) -> list[list[int]]:
    sizes = _wanted(node)
    rest = math.prod(size for size in sizes if size != -1)
    elements = math.prod(shape(node))
    if sizes.count(-1) == 1 and rest > 0:
        sizes[sizes.index(-1)] = elements // rest
    if math.prod(sizes) != elements:
        raise ValueError("another number of elements")
    return [sizes]


def _wanted(node: Node) -> list[int]:
    given = node.inputs[1] if len(node.inputs) == 2 else None
    if given is not None and given.data is None:
        raise ValueError("a computed shape")
    # TFLite takes the option where the input is no vector of int32.
    if given is not None and given.dtype == "int32" and len(given.shape) == 1:
        return integers(node, 1)
    sizes = list(node.options["new_shape"])
    return [] if sizes == [0] else sizes  # how old converters write a scalar


def _squeeze(node: Node) -> list[list[int]]:
    sizes = shape(node)
    dropped = {axis_of(axis, len(sizes)) for axis in node.options["squeeze_dims"]}
    if any(sizes[axis] != 1 for axis in dropped):
        raise ValueError("only a size of 1 is dropped")
    dropped = dropped or {axis for axis, size in enumerate(sizes) if size == 1}
    return [[size for axis, size in enumerate(sizes) if axis not in dropped]]


def _expand_dims(node: Node) -> list[Shape]:
    sizes = shape(node)
    axis = axis_of(integer(node, 1), len(sizes) + 1)
    return [(*sizes[:axis], 1, *sizes[axis:])]


def _transpose(node: Node) -> list[list[int]]:
    sizes, order = shape(node), integers(node, 1)
    if len(order) != len(sizes):
        raise ValueError("an axis is left out")
    return [[sizes[axis_of(axis, len(sizes))] for axis in order]]


def _depth_to_space(node: Node) -> list[Shape]:
    (batch, height, width, channels), block = shape(node), node.options["block_size"]
    return [(batch, height * block, width * block, channels // (block * block))]


def _space_to_depth(node: Node) -> list[Shape]:
    (batch, height, width, channels), block = shape(node), node.options["block_size"]
    return [(batch, height // block, width // block, channels * block * block)]


def _space_to_batch_nd(node: Node) -> list[Shape]:
    (batch, *sizes), blocks, pads = shape(node), integers(node, 1), integers(node, 2)
    count = len(blocks)
    padded = [
        size + before + after
        for size, before, after in zip(sizes[:count], pads[::2], pads[1::2], strict=True)
    ]
    if any(size % block for size, block in zip(padded, blocks, strict=True)):
        raise ValueError("blocks that do not divide the sizes")
    spatial = [size // block for size, block in zip(padded, blocks, strict=True)]
    return [(batch * math.prod(blocks), *spatial, *sizes[count:])]


def _batch_to_space_nd(node: Node) -> list[Shape]:
    (batch, *sizes), blocks, crops = shape(node), integers(node, 1), integers(node, 2)
    count = len(blocks)
    spatial = [
        size * block - before - after
        for size, block, before, after in zip(
            sizes[:count], blocks, crops[::2], crops[1::2], strict=True
        )
    ]
    if batch % math.prod(blocks):
        raise ValueError("blocks that do not divide the batch")
    return [(batch // math.prod(blocks), *spatial, *sizes[count:])]


RULES: Mapping[str, Rule] = {
    "BATCH_TO_SPACE_ND": _batch_to_space_nd,
    "DEPTH_TO_SPACE": _depth_to_space,
    "EXPAND_DIMS": _expand_dims,
    "RESHAPE": _reshape,
    "SPACE_TO_BATCH_ND": _space_to_batch_nd,
    "SPACE_TO_DEPTH": _space_to_depth,
    "SQUEEZE": _squeeze,
    "TRANSPOSE": _transpose,
}
