# SPDX-License-Identifier: Apache-2.0
"""ARG_MAX and ARG_MIN: over vectors of kept elements, over vectors of a row, plain."""

from __future__ import annotations

import math

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Defines, Launch, Params
from delegate.ops._checks.node import elements_of, require_constant, shape_text, tensors_of
from delegate.ops._launches.tiles import (
    HALF_ROUNDS,
    by_work,
    lanes_of,
    launch_over,
    vectors_of,
    widest_lanes,
)
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import ceil_div
from delegate.ops._registry import lowers
from delegate.target import Target

_TYPES = ("uint8", "int8", "int32", "float32", "bool")
_LONGEST = 2**18  # an axis whose elements a work-item visits in few enough rounds
_STEPS = 8  # elements a round of the plain kernel


@lowers("ARG_MAX", "ARG_MIN")
def lower_arg_max(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Find the place of the largest or smallest element along an axis, the first one of several.

    Shapes:
        input (..., n, ...), constant axis of one value -> output (..., ...) of int32 or int64
    Raises:
        Unsupported: other types, an axis that is computed, out of range or too long.
    Source: tflite/kernels/arg_min_max.cc, internal/reference/arg_min_max.h
    """
    source, result, along = _decoded(node)
    length, inner = source.shape[along], math.prod(source.shape[along + 1 :])
    results = elements_of(source) // length
    is_min, is_long = int(node.op == "ARG_MIN"), int(result.dtype == "int64")

    def launch(kernel: str, items: int, rounds: int, own: Params, defines: Defines) -> Launch:
        """`rounds`: of the loop that an item makes."""
        tiling = by_work(items, 2 * rounds + 8, target, HALF_ROUNDS // rounds)
        params: Params = {"input": source, "output": result, "length": length, **own}
        types = Defines(IS_LONG=is_long) | defines
        return launch_over("arg_max", kernel, tiling, params | {"items": items}, types)

    gives_way = int(inner > 1 and target.rules.arg_max_nan_gives_way)
    kept: Params = {"inner": inner, "nan_gives_way": gives_way}
    typed: Defines = {"ELEM": ELEM[source.dtype], "IS_MIN": is_min}
    plain = Alternative(
        "plain", (launch("arg_max", results, ceil_div(length, _STEPS), kept, typed),)
    )
    lanes = lanes_of(inner, target)
    if lanes and length <= HALF_ROUNDS:
        blocks = ceil_div(inner, lanes)
        items, defines = results // inner * blocks, typed | vectors_of(inner, lanes, target)
        vector = launch("arg_max_vector", items, length, kept | {"blocks": blocks}, defines)
        return Alternative(f"vector {lanes}", (vector,)), plain
    # Over vectors of a row, unless it is too short.
    is_short = source.dtype not in ("int32", "float32") and length <= 256
    lanes = widest_lanes(length, target.vector_width * (2 if is_short else 1))
    if inner > 1 or target.group_items > 1 or not lanes:
        return (plain,)
    rounds = ceil_div(length, lanes)
    if is_short:
        # After this exclusive or, the order of unsigned bytes is that of the elements, reversed
        # for the smallest.
        flip = (128 if source.dtype == "int8" else 0) ^ (255 * is_min)
        own, lone = Params(flip=flip), Defines(LANES=lanes)
        row = launch("arg_max_row_quant8", results, rounds, own, lone)
    else:
        row = launch("arg_max_row", results, rounds, {}, typed | {"LANES": lanes})
    return Alternative(f"row {lanes}", (row,)), plain


def _decoded(node: Node) -> tuple[Tensor, Tensor, int]:
    """Return a node's tensors and its axis, checked.

    Raises:
        Unsupported: see `lower_arg_max`.
    """
    source, axis, result = tensors_of(node, 2)
    if source.dtype not in _TYPES:
        raise Unsupported(f"{source.dtype}: only {', '.join(_TYPES)} are implemented")
    if result.dtype not in ("int32", "int64"):
        raise Unsupported(f"output {result.dtype}: int32 or int64 is needed")
    if axis.dtype not in ("int32", "int64"):
        raise Unsupported(f"axis {axis.dtype}: int32 or int64 is needed")
    values = np.ravel(require_constant(axis, "axes")).tolist()
    rank = len(source.shape)
    if len(values) != 1 or not -rank <= values[0] < rank:
        raise Unsupported(f"axis {values} of {shape_text(source)}: one of its axes is needed")
    along = values[0] % rank
    elements_of(source)
    if result.shape != source.shape[:along] + source.shape[along + 1 :]:
        raise Unsupported(
            f"{shape_text(source)} -> {shape_text(result)}: all but axis {along} must stay"
        )
    elements_of(result)
    if source.shape[along] > _LONGEST:
        raise Unsupported(f"axis of {source.shape[along]}: more than 2^18 elements")
    return source, result, along
