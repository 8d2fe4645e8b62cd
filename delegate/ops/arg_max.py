# SPDX-License-Identifier: Apache-2.0
"""ARG_MAX and ARG_MIN: over vectors of kept elements, over vectors of a row, plain."""

from __future__ import annotations

import math
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """A checked search along one axis."""

    source: Tensor
    result: Tensor
    length: int  # of the axis
    inner: int  # elements between neighbours along the axis
    is_min: bool

    @property
    def results(self) -> int:
        """How many places are found."""
        return math.prod(self.source.shape) // self.length


@lowers("ARG_MAX", "ARG_MIN")
def lower_arg_max(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Find the place of the largest or smallest element along an axis, the first one of several.

    Shapes:
        input (..., n, ...), constant axis of one value -> output (..., ...) of int32 or int64
    Raises:
        Unsupported: other types, an axis that is computed, out of range or too long.
    Source: tflite/kernels/arg_min_max.cc, internal/reference/arg_min_max.h
    """
    return alternatives(decode(node), target)


def decode(node: Node) -> Search:
    """Return what a node searches, checked.

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
    length, inner = source.shape[along], math.prod(source.shape[along + 1 :])
    if length > _LONGEST:
        raise Unsupported(f"axis of {length}: more than 2^18 elements")
    return Search(source, result, length, inner, node.op == "ARG_MIN")


def alternatives(search: Search, target: Target) -> tuple[Alternative, ...]:
    """Return the launches over vectors that this search allows, then the plain one."""
    gives_way = int(search.inner > 1 and target.rules.arg_max_nan_gives_way)
    kept = {"inner": search.inner, "nan_gives_way": gives_way}
    typed: Defines = {"ELEM": ELEM[search.source.dtype], "IS_MIN": int(search.is_min)}
    rounds = ceil_div(search.length, _STEPS)
    plain = _launch("arg_max", search, search.results, rounds, kept, typed, target)
    vectors: tuple[Alternative, ...] = ()
    lanes = lanes_of(search.inner, target)
    if lanes and search.length <= HALF_ROUNDS:
        blocks = ceil_div(search.inner, lanes)
        items = search.results // search.inner * blocks
        fields, defines = kept | {"blocks": blocks}, typed | vectors_of(search.inner, lanes, target)
        launch = _launch("arg_max_vector", search, items, search.length, fields, defines, target)
        vectors = (Alternative(f"vector {lanes}", (launch,)),)
    elif search.inner == 1 and target.group_items == 1:
        vectors = _rows(search, typed, target)
    return (*vectors, Alternative("plain", (plain,)))


def _rows(search: Search, typed: Defines, target: Target) -> tuple[Alternative, ...]:
    """Return the launch over vectors of a row; nothing where a row is too short."""
    dtype = search.source.dtype
    is_short = dtype not in ("int32", "float32") and search.length <= 256
    lanes = widest_lanes(search.length, target.vector_width * (2 if is_short else 1))
    if not lanes:
        return ()
    rounds = ceil_div(search.length, lanes)
    if is_short:
        # After this exclusive or, the order of unsigned bytes is that of the elements, reversed
        # for the smallest.
        flip = (128 if dtype == "int8" else 0) ^ (255 * search.is_min)
        name, fields, defines = "arg_max_row_quant8", {"flip": flip}, Defines(LANES=lanes)
    else:
        name, fields, defines = "arg_max_row", {}, typed | {"LANES": lanes}
    row = _launch(name, search, search.results, rounds, fields, defines, target)
    return (Alternative(f"row {lanes}", (row,)),)


def _launch(
    kernel: str,
    search: Search,
    items: int,
    rounds: int,
    fields: dict[str, int],
    defines: Defines,
    target: Target,
) -> Launch:
    """`rounds`: of the loop that an item makes."""
    params: Params = {"input": search.source, "output": search.result, "length": search.length}
    return launch_over(
        "arg_max",
        kernel,
        by_work(items, 2 * rounds + 8, target, HALF_ROUNDS // rounds),
        params | fields | {"items": items},
        Defines(IS_LONG=int(search.result.dtype == "int64")) | defines,
    )
