# SPDX-License-Identifier: Apache-2.0
"""Shapes of ops that make one value of several.

Source: tflite/kernels/reduce.cc ResizeOutputTensor, arg_min_max.cc, topk_v2.cc
"""

from __future__ import annotations

from collections.abc import Mapping

from delegate.graph.ir import Node
from delegate.graph.shapes.rule import Rule, Shape, axis_of, integer, integers, shape


def _reduce(node: Node) -> list[list[int]]:
    sizes = shape(node)
    # Of a scalar TFLite ignores the axes.
    axes = {axis_of(axis, len(sizes)) for axis in integers(node, 1)} if sizes else set()
    if node.options.get("keep_dims"):
        return [[1 if axis in axes else size for axis, size in enumerate(sizes)]]
    return [[size for axis, size in enumerate(sizes) if axis not in axes]]


def _arg_max(node: Node) -> list[Shape]:
    sizes = shape(node)
    axis = axis_of(integer(node, 1), len(sizes))
    return [(*sizes[:axis], *sizes[axis + 1 :])]


def _topk_v2(node: Node) -> list[Shape]:
    sizes = shape(node)
    return [(*sizes[:-1], integer(node, 1))] * 2


_REDUCE = "MEAN REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD SUM"
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_REDUCE.split(), _reduce),
    "ARG_MAX": _arg_max,
    "ARG_MIN": _arg_max,
    "TOPK_V2": _topk_v2,
}
