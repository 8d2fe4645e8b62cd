# SPDX-License-Identifier: Apache-2.0
"""Ops along axes: SUM, MEAN, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_ANY, REDUCE_ALL over any.

CUMSUM, ARG_MAX and ARG_MIN along one. A mean is a sum, whose rescaling divides; integers divide
exactly.
"""

from __future__ import annotations

import math

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.float_results import EXACT, SELECTS, Growth, roundings, sums
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Defines, Launch, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.node import (
    axis_of,
    elements_of,
    require_constant,
    require_shape,
    scalar_of,
    shape_text,
    tensors_of,
)
from delegate.ops._launches.reduce import mean_rescaling, reduce, reduction_of, rescaled_sum
from delegate.ops._launches.tiles import (
    HALF_ROUNDS,
    LEAST_ELEMENTS,
    by_elements,
    by_work,
    lanes_of,
    launch_over,
    of_size,
    vectors_of,
    widest_lanes,
)
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import bits, ceil_div
from delegate.ops._registry import lowers
from delegate.target import Target

# What each computes with, and on which types.
_FOLDS = {
    "SUM": ("SUM", ("float32", "int32", "int64", *quantized.QUANT)),
    "REDUCE_MAX": ("MAX", ("float32", "int32", "int64", *quantized.QUANT)),
    "REDUCE_MIN": ("MIN", ("float32", "int32", "int64", *quantized.QUANT)),
    "REDUCE_PROD": ("PROD", ("float32", "int32", "int64")),
    "REDUCE_ANY": ("MAX", ("bool",)),
    "REDUCE_ALL": ("MIN", ("bool",)),
}
_MOST_TERMS = 2**15  # of a MEAN of int32: the sum of their halves of 16 bits fits 32 bits
_SEARCHED = ("uint8", "int8", "int32", "float32", "bool")
_LONGEST = 2**18  # an axis whose elements a work-item visits in few enough rounds
_STEPS = 8  # elements a round of the plain kernel
_RUNNING = {"int32": "uint", "int64": "uint2", "float32": "float"}  # unsigned sums wrap


@lowers("SUM", floats=sums(Growth.REDUCTION))
@lowers("REDUCE_MAX", "REDUCE_MIN", floats=SELECTS)
@lowers("REDUCE_PROD", floats=roundings(Growth.UNBOUNDED, 64))
@lowers("REDUCE_ANY", "REDUCE_ALL", floats=EXACT)
def lower_reduce(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Fold the elements along some axes into one.

    A quantised sum is rescaled at its end.

    Raises:
        Unsupported: other types, see `reduction_of`; a largest or smallest that would be rescaled.
    Source: tflite/kernels/reduce.cc, internal/reference/reduce.h
    """
    reduction = reduction_of(node)
    source, result = reduction.source, reduction.result
    fold, types = _FOLDS[node.op]
    if source.dtype not in types:
        raise Unsupported(f"{source.dtype}: only {', '.join(types)} are implemented")
    if source.dtype not in quantized.QUANT:
        return reduce(reduction, target, fold, _start(fold, source.dtype))
    if source.dtype == "int16" and fold == "SUM" and not target.rules.saturating_sums:
        raise Unsupported("int16: tflite-runtime's sums do not saturate")
    if fold == "SUM":
        return rescaled_sum(reduction, target)
    if quantized.per_tensor(source, types) != quantized.per_tensor(result, types):
        raise Unsupported("the scale or zero point changes: TFLite does not rescale here")
    return reduce(reduction, target, fold, _start(fold, source.dtype))


def _start(fold: str, dtype: str) -> int:
    """Return what TFLite begins with, for floats its bits."""
    if fold in ("SUM", "PROD"):
        start = int(fold == "PROD")
        return bits(start) if dtype == "float32" else start
    if dtype == "float32":
        limits = np.finfo(np.float32)
        return bits(float(limits.min if fold == "MAX" else limits.max))
    if dtype == "bool":
        return int(fold == "MIN")
    bounds = np.iinfo(dtype)
    return int(bounds.min if fold == "MAX" else bounds.max)


@lowers("MEAN", floats=sums(Growth.STEADY))
def lower_mean(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Average a tensor's elements along some axes.

    Raises:
        Unsupported: see `reduction_of`; other types than 8 bits, int16, int32, int64 and float32;
            more terms than fit.
    Source: tflite/kernels/internal/reference/reduce.h Mean, QuantizedMeanOrSum
    """
    reduction = reduction_of(node)
    terms, items = reduction.terms, reduction.results
    if reduction.source.dtype == "float32":
        return reduce(reduction, target, "SUM", 0, 2, {"factor": bits(1 / terms)})
    if reduction.source.dtype == "int64":
        return reduce(reduction, target, "SUM", 0, 1, {"terms": terms})
    if reduction.source.dtype != "int32":
        return reduce(reduction, target, "SUM", 0, 1, mean_rescaling(reduction))
    if terms > _MOST_TERMS:
        raise Unsupported(f"{terms} int32 elements for one of the result: more than 2^15")
    params = reduction.params() | {"terms": terms, "items": items}
    launch = launch_over("mean", "mean_int32", of_size(items, 1, target), params)
    return (Alternative("plain", (launch,)),)


@lowers("CUMSUM", floats=sums(Growth.REDUCTION))
def lower_cumsum(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Add up the elements before each one, with itself or without, forwards or backwards.

    Floats are added in TFLite's order.

    Raises:
        Unsupported: a computed axis, an axis too long for one work-item.
    Source: tflite/kernels/cumsum.cc, internal/reference/cumsum.h
    """
    source, where, result = tensors_of(node, 2, tuple(_RUNNING))
    require_shape(result, source.shape)
    if where.dtype != "int32":
        raise Unsupported(f"{where.dtype} axis: only int32")
    axis = axis_of(scalar_of(where, "axis"), len(source.shape))
    size = source.shape[axis]
    if size > HALF_ROUNDS:
        raise Unsupported(f"an axis of {size} elements: at most {HALF_ROUNDS}")
    lines = math.prod(source.shape) // size  # a work-item has one of them
    launch = launch_over(
        "cumsum",
        "cumsum",
        by_elements(lines, target, max(1, LEAST_ELEMENTS // size), max(1, HALF_ROUNDS // size)),
        {
            "input": source,
            "output": result,
            "size": size,
            "inner": math.prod(source.shape[axis + 1 :]),
            "is_exclusive": int(bool(node.options.get("exclusive", False))),
            "is_reverse": int(bool(node.options.get("reverse", False))),
            "elements": lines,
        },
        {"ELEM": _RUNNING[source.dtype], "WORDS": 2 if source.dtype == "int64" else 1},
    )
    return (Alternative("plain", (launch,)),)


@lowers("ARG_MAX", "ARG_MIN", floats=EXACT)
def lower_arg_max(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Find the place of the largest or smallest element along an axis, the first one of several.

    Shapes:
        input (..., n, ...), constant axis of one value -> output (..., ...) of int32 or int64
    Raises:
        Unsupported: other types, an axis that is computed, out of range or too long.
    Source: tflite/kernels/arg_min_max.cc, internal/reference/arg_min_max.h
    """
    source, result, along = _searched(node)
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
    fallback = Alternative(
        "plain", (launch("arg_max", results, ceil_div(length, _STEPS), kept, typed),)
    )
    lanes = lanes_of(inner, target)
    if lanes and length <= HALF_ROUNDS:
        blocks = ceil_div(inner, lanes)
        items, defines = results // inner * blocks, typed | vectors_of(inner, lanes, target)
        vector = launch("arg_max_vector", items, length, kept | {"blocks": blocks}, defines)
        return Alternative(f"vector {lanes}", (vector,)), fallback
    # Over vectors of a row, unless it is too short.
    is_short = source.dtype not in ("int32", "float32") and length <= 256
    lanes = widest_lanes(length, target.vector_width * (2 if is_short else 1))
    if inner > 1 or target.group_items > 1 or not lanes:
        return (fallback,)
    rounds = ceil_div(length, lanes)
    if is_short:
        # After this exclusive or, the order of unsigned bytes is that of the elements, reversed
        # for the smallest.
        flip = (128 if source.dtype == "int8" else 0) ^ (255 * is_min)
        own, lone = Params(flip=flip), Defines(LANES=lanes)
        row = launch("arg_max_row_quant8", results, rounds, own, lone)
    else:
        row = launch("arg_max_row", results, rounds, {}, typed | {"LANES": lanes})
    return Alternative(f"row {lanes}", (row,)), fallback


def _searched(node: Node) -> tuple[Tensor, Tensor, int]:
    """Return a node's tensors and its axis, checked.

    Raises:
        Unsupported: see `lower_arg_max`.
    """
    source, axis, result = tensors_of(node, 2)
    if source.dtype not in _SEARCHED:
        raise Unsupported(f"{source.dtype}: only {', '.join(_SEARCHED)} are implemented")
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
