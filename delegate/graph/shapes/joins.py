# SPDX-License-Identifier: Apache-2.0
"""Shapes of ops that join, part, pad, repeat or make tensors.

Source: tflite/kernels/concatenation.cc, pack.cc, unpack.cc, split.cc, split_v.cc, pad.cc,
mirror_pad.cc, tile.cc, broadcast_to.cc, fill.cc, one_hot.cc, shape.cc, rank.cc, range.cc
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from delegate.graph.ir import Node
from delegate.graph.shapes.rule import Rule, Shape, axis_of, broadcast, integer, integers, shape


def _with(sizes: Shape, axis: int, size: int) -> Shape:
    return (*sizes[:axis], size, *sizes[axis + 1 :])


def _concatenation(node: Node) -> list[Shape]:
    shapes = [shape(node, position) for position in range(len(node.inputs))]
    axis = axis_of(node.options["axis"], len(shapes[0]))
    if len({_with(each, axis, 0) for each in shapes}) > 1:
        raise ValueError("sizes that do not fit")
    return [_with(shapes[0], axis, sum(each[axis] for each in shapes))]


def _pack(node: Node) -> list[Shape]:
    shapes = {shape(node, position) for position in range(len(node.inputs))}
    (sizes,) = shapes
    axis = axis_of(node.options["axis"], len(sizes) + 1)
    return [(*sizes[:axis], len(node.inputs), *sizes[axis:])]


def _unpack(node: Node) -> list[Shape]:
    sizes = shape(node)
    axis = axis_of(node.options["axis"], len(sizes))
    if sizes[axis] != len(node.outputs):
        raise ValueError("another number of outputs")
    return [(*sizes[:axis], *sizes[axis + 1 :])] * len(node.outputs)


def _split(node: Node) -> list[Shape]:
    sizes, count = shape(node, 1), len(node.outputs)
    axis = axis_of(integer(node, 0), len(sizes))
    if node.options["num_splits"] != count or sizes[axis] % count:
        raise ValueError("parts of several sizes")
    return [_with(sizes, axis, sizes[axis] // count)] * count


def _split_v(node: Node) -> list[Shape]:
    sizes, parts = shape(node), integers(node, 1)
    axis = axis_of(integer(node, 2), len(sizes))
    rest = sizes[axis] - sum(part for part in parts if part != -1)
    if parts.count(-1) == 1:
        parts[parts.index(-1)] = rest
    elif rest:
        raise ValueError("parts that do not add up")
    return [_with(sizes, axis, part) for part in parts]


def _padded(sizes: Shape, pads: Sequence[int]) -> list[int]:
    rows = zip(sizes, pads[::2], pads[1::2], strict=True)
    return [size + before + after for size, before, after in rows]


def _pad(node: Node) -> list[list[int]]:
    return [_padded(shape(node), integers(node, 1))]


def _tile(node: Node) -> list[list[int]]:
    rows = zip(shape(node), integers(node, 1), strict=True)
    return [[size * times for size, times in rows]]


def _broadcast_to(node: Node) -> list[list[int]]:
    sizes = integers(node, 1)
    if broadcast(shape(node), tuple(sizes)) != tuple(sizes):
        raise ValueError("it does not broadcast to that")
    return [sizes]


def _fill(node: Node) -> list[list[int]]:
    return [integers(node, 0)]


def _one_hot(node: Node) -> list[Shape]:
    sizes, depth = shape(node), integer(node, 1)
    axis = axis_of(node.options["axis"], len(sizes) + 1)
    return [(*sizes[:axis], depth, *sizes[axis:])]


def _shape(node: Node) -> list[Shape]:
    return [(len(shape(node)),)]


def _rank(node: Node) -> list[Shape]:
    return [()]


def _range(node: Node) -> list[Shape]:
    start, limit, delta = (integer(node, position) for position in range(3))
    return [(len(range(start, limit, delta)),)]


RULES: Mapping[str, Rule] = {
    "BROADCAST_TO": _broadcast_to,
    "CONCATENATION": _concatenation,
    "FILL": _fill,
    "MIRROR_PAD": _pad,
    "ONE_HOT": _one_hot,
    "PACK": _pack,
    "PAD": _pad,
    "PADV2": _pad,
    "RANGE": _range,
    "RANK": _rank,
    "SHAPE": _shape,
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "TILE": _tile,
    "UNPACK": _unpack,
}
