# SPDX-License-Identifier: Apache-2.0
"""SUM, MEAN, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_ANY, REDUCE_ALL; CUMSUM, ARG_MAX, ARG_MIN.

A quantised mean is a sum whose rescaling includes the division. int32 and int64 means divide
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

# Op -> macro of reduce.cl, and supported types.
_FOLDS = {
    "SUM": ("SUM", ("float32", "int32", "int64", *quantized.QUANT)),
    "REDUCE_MAX": ("MAX", ("float32", "int32", "int64", *quantized.QUANT)),
    "REDUCE_MIN": ("MIN", ("float32", "int32", "int64", *quantized.QUANT)),
    "REDUCE_PROD": ("PROD", ("float32", "int32", "int64")),
    "REDUCE_ANY": ("MAX", ("bool",)),
    "REDUCE_ALL": ("MIN", ("bool",)),
}
_MOST_TERMS = 2**15  # of an int32 MEAN: sums of the 16-bit halves fit 32 bits
_ARG_TYPES = ("uint8", "int8", "int32", "float32", "bool")
_LONGEST = 2**18  # axis that a work-item can search within its limit of loop rounds
_STEPS = 8  # elements per loop round of the fallback kernel
_CUMSUM_TYPES = {"int32": "uint", "int64": "uint2", "float32": "float"}  # unsigned sums wrap


@lowers("SUM", floats=sums(Growth.REDUCTION))
@lowers("REDUCE_MAX", "REDUCE_MIN", floats=SELECTS)
@lowers("REDUCE_PROD", floats=roundings(Growth.UNBOUNDED, 64))
@lowers("REDUCE_ANY", "REDUCE_ALL", floats=EXACT)
def lower_reduce(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Reduce a tensor along some axes. Quantised sums are rescaled.

    Raises:
        Unsupported: other types, see `reduction_of`; a maximum or minimum that would need
            rescaling.
    Source: tflite/kernels/reduce.cc, internal/reference/reduce.h
    """
    reduction = reduction_of(node)
    source, result = reduction.source, reduction.result
    fold, types = _FOLDS[node.op]
    if source.dtype not in types:
        raise Unsupported(f"{source.dtype}: only {', '.join(types)} are implemented")
    if source.dtype not in quantized.QUANT:
        return reduce(reduction, target, fold, _initial(fold, source.dtype))
    if source.dtype == "int16" and fold == "SUM" and not target.rules.saturating_sums:
        raise Unsupported("int16: tflite-runtime's sums do not saturate")
    if fold == "SUM":
        return rescaled_sum(reduction, target)
    if quantized.per_tensor(source, types) != quantized.per_tensor(result, types):
        raise Unsupported("the scale or zero point changes: TFLite does not rescale here")
    return reduce(reduction, target, fold, _initial(fold, source.dtype))


def _initial(fold: str, dtype: str) -> int:
    """Return TFLite's initial value; for floats its bits."""
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
        Unsupported: see `reduction_of`; types other than 8 bits, int16, int32, int64 and float32;
            too many terms.
    Source: tflite/kernels/internal/reference/reduce.h Mean, QuantizedMeanOrSum
    """
    reduction = reduction_of(node)
    terms, items = reduction.terms, reduction.results
    if reduction.source.dtype == "float32":
        fields = {"factor": bits(1 / terms), "terms": terms}
        return reduce(reduction, target, "SUM", 0, 2, fields)
    if reduction.source.dtype == "int64":
        return reduce(reduction, target, "SUM", 0, 1, {"terms": terms})
    if reduction.source.dtype != "int32":
        return reduce(reduction, target, "SUM", 0, 1, mean_rescaling(reduction))
    if terms > _MOST_TERMS:
        raise Unsupported(f"{terms} int32 elements per result: more than 2^15")
    params = reduction.params() | {"terms": terms, "items": items}
    launch = launch_over("mean", "mean_int32", of_size(items, 1, target), params)
    return (Alternative("plain", (launch,)),)


@lowers("CUMSUM", floats=sums(Growth.REDUCTION))
def lower_cumsum(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Compute cumulative sums, exclusive or inclusive, forwards or backwards.

    Floats are added in TFLite's order.

    Raises:
        Unsupported: an axis that is not constant, or too long for one work-item.
    Source: tflite/kernels/cumsum.cc, internal/reference/cumsum.h
    """
    source, axis_tensor, result = tensors_of(node, 2, tuple(_CUMSUM_TYPES))
    require_shape(result, source.shape)
    if axis_tensor.dtype != "int32":
        raise Unsupported(f"{axis_tensor.dtype} axis: only int32")
    axis = axis_of(scalar_of(axis_tensor, "axis"), len(source.shape))
    size = source.shape[axis]
    if size > HALF_ROUNDS:
        raise Unsupported(f"an axis of {size} elements: at most {HALF_ROUNDS}")
    lines = math.prod(source.shape) // size  # one per work-item
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
        {"ELEM": _CUMSUM_TYPES[source.dtype], "WORDS": 2 if source.dtype == "int64" else 1},
    )
    return (Alternative("plain", (launch,)),)


@lowers("ARG_MAX", "ARG_MIN", floats=EXACT)
def lower_arg_max(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Return the index of the first maximum or minimum along an axis.

    Shapes:
        input (..., n, ...), constant axis of one value -> output (..., ...) of int32 or int64
    Raises:
        Unsupported: other types, an axis that is not constant, out of range or too long.
    Source: tflite/kernels/arg_min_max.cc, internal/reference/arg_min_max.h
    """
    source, result, along = _arg_operands(node)
    length, inner = source.shape[along], math.prod(source.shape[along + 1 :])
    results = elements_of(source) // length
    is_min, is_long = int(node.op == "ARG_MIN"), int(result.dtype == "int64")

    def launch(kernel: str, items: int, rounds: int, extra: Params, defines: Defines) -> Launch:
        """`rounds`: loop rounds of an item."""
        tiling = by_work(items, 2 * rounds + 8, target, HALF_ROUNDS // rounds)
        params: Params = {"input": source, "output": result, "length": length, **extra}
        types = Defines(IS_LONG=is_long) | defines
        return launch_over("arg_max", kernel, tiling, params | {"items": items}, types)

    replaces_nan = int(inner > 1 and target.rules.arg_max_nan_gives_way)
    base: Params = {"inner": inner, "nan_gives_way": replaces_nan}
    typed: Defines = {"ELEM": ELEM[source.dtype], "IS_MIN": is_min}
    fallback = Alternative(
        "plain", (launch("arg_max", results, ceil_div(length, _STEPS), base, typed),)
    )
    lanes = lanes_of(inner, target)
    if lanes and length <= HALF_ROUNDS:
        blocks = ceil_div(inner, lanes)
        items, defines = results // inner * blocks, typed | vectors_of(inner, lanes, target)
        vector = launch("arg_max_vector", items, length, base | {"blocks": blocks}, defines)
        return Alternative(f"vector {lanes}", (vector,)), fallback
    # Vectors along the row, unless it is too short.
    is_short = source.dtype not in ("int32", "float32") and length <= 256
    lanes = widest_lanes(length, target.vector_width * (2 if is_short else 1))
    if inner > 1 or target.group_items > 1 or not lanes:
        return (fallback,)
    rounds = ceil_div(length, lanes)
    if is_short:
        # XOR with this maps elements to unsigned bytes in order; in reverse order for the minimum.
        flip = (128 if source.dtype == "int8" else 0) ^ (255 * is_min)
        fields, lanes_define = Params(flip=flip), Defines(LANES=lanes)
        row = launch("arg_max_row_quant8", results, rounds, fields, lanes_define)
    else:
        row = launch("arg_max_row", results, rounds, {}, typed | {"LANES": lanes})
    return Alternative(f"row {lanes}", (row,)), fallback


def _arg_operands(node: Node) -> tuple[Tensor, Tensor, int]:
    """Return a node's tensors and axis after checking them.

    Raises:
        Unsupported: see `lower_arg_max`.
    """
    source, axis, result = tensors_of(node, 2)
    if source.dtype not in _ARG_TYPES:
        raise Unsupported(f"{source.dtype}: only {', '.join(_ARG_TYPES)} are implemented")
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
