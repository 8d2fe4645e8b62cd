# SPDX-License-Identifier: Apache-2.0
"""Reductions over any axes, merged into as few dimensions as possible."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Defines, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.node import elements_of, require_constant, shape_text, tensors_of
from delegate.ops._launches.broadcast import padded
from delegate.ops._launches.tiles import (
    Tiling,
    by_work,
    lanes_of,
    launch_over,
    most_rounds,
    vectors_of,
)
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import bits, ceil_div, fixed_point
from delegate.target import Target

_DIMENSIONS = 3  # kernels loop over so many kept, and so many reduced, dimensions
_ROUNDS = most_rounds(1, 10_000)  # of all loops together
_DIGITS = 64  # loop rounds of an int64 division
_STEPS = 8  # elements per round of the innermost loop
_SHARED_ITEMS = 4  # results of a work-group whose work-items share the terms
_LEAST_SHARED, _MOST_SHARED = 64, 2**14  # terms, and results: more keep a GPU busy by themselves


@dataclass(frozen=True, slots=True)
class Reduction:
    """A checked reduction: adjacent kept or reduced axes are merged, outermost first."""

    source: Tensor
    result: Tensor
    kept: tuple[tuple[int, int], ...]  # (size, stride)
    reduced: tuple[tuple[int, int], ...]
    is_whole: bool  # all axes are reduced, those of size 1 included

    @property
    def terms(self) -> int:
        """Elements that are reduced to one."""
        return math.prod(size for size, _ in self.reduced)

    @property
    def results(self) -> int:
        """Elements of the result."""
        return math.prod(size for size, _ in self.kept)

    def params(self) -> Params:
        """The fields kernels read, by name."""
        fields: Params = {"input": self.source, "output": self.result}
        for name, dimensions in (("kept", self.kept), ("reduced", self.reduced)):
            sizes = padded([size for size, _ in dimensions], _DIMENSIONS, 1)
            steps = padded([step for _, step in dimensions], _DIMENSIONS, 0)
            fields |= {f"{name}_{i}": size for i, size in enumerate(sizes)}
            fields |= {f"{name}_step_{i}": step for i, step in enumerate(steps)}
        return fields


def reduction_of(node: Node) -> Reduction:
    """Return a node as a record; its axes may be negative or repeated.

    Shapes:
        input (d0, d1, ...), constant axes () or (n,) -> output without those, or with them as 1
    Raises:
        Unsupported: axes that are not constant or out of range, an empty tensor, another result
            shape, types that differ.
    Source: tflite/kernels/internal/reference/reduce.h ResolveAxis
    """
    source, axes, result = tensors_of(node, 2)
    if source.dtype != result.dtype:
        raise Unsupported(f"{source.dtype} in, {result.dtype} out: they must be equal")
    if axes.dtype != "int32":
        raise Unsupported(f"{axes.dtype} axes: only int32")
    values = np.ravel(require_constant(axes, "axes")).tolist()
    rank = len(source.shape)
    if any(not -rank <= axis < rank for axis in values):
        raise Unsupported(f"axes {values} of {shape_text(source)}: each must be one of its axes")
    elements_of(source)
    reduced_axes = {axis % rank for axis in values}
    keeps_dims = bool(node.options.get("keep_dims", False))
    shape = tuple(
        1 if axis in reduced_axes else size
        for axis, size in enumerate(source.shape)
        if keeps_dims or axis not in reduced_axes
    )
    if result.shape != shape:
        computed = "x".join(map(str, shape)) or "scalar"
        raise Unsupported(f"output {shape_text(result)}: it must be {computed}")
    dimensions: list[tuple[bool, int, int]] = []  # innermost first
    step = 1
    for axis in reversed(range(rank)):
        size = source.shape[axis]
        if size == 1:
            continue
        if dimensions and dimensions[-1][0] == (axis in reduced_axes):
            is_reduced, inner, stride = dimensions.pop()
            dimensions.append((is_reduced, inner * size, stride))
        else:
            dimensions.append((axis in reduced_axes, size, step))
        step *= size
    dimensions.reverse()
    return Reduction(
        source,
        result,
        tuple((size, stride) for is_reduced, size, stride in dimensions if not is_reduced),
        tuple((size, stride) for is_reduced, size, stride in dimensions if is_reduced),
        len(reduced_axes) == rank,
    )


def reduce(
    reduction: Reduction,
    target: Target,
    fold: str,
    start: int,
    finish: int = 0,
    finishing: Mapping[str, int] | None = None,
) -> tuple[Alternative, ...]:
    """Return the alternatives of a reduction: vectors where possible, the fallback last.

    `fold`: SUM, PROD, MAX or MIN. `start`: the initial value, for floats its bits. `finish`: 0
    none; 1 the rescaling of `mean_rescaling`, for int64 a division by `terms`; 2 a product with the
    float `factor`; 3 the float rescaling of `rescaled_sum`. `finishing`: its fields.

    Raises:
        Unsupported: too many terms for a work-item, or too many dimensions.
    """
    terms, results = reduction.terms, reduction.results
    # Whether a float product overflows depends on the order.
    is_ordered = fold == "PROD" and reduction.source.dtype == "float32"
    innermost = reduction.reduced[-1] if reduction.reduced else (1, 0)
    rounds = terms // innermost[0] * (innermost[0] // _STEPS + min(innermost[0], _STEPS))
    if rounds > _ROUNDS:
        raise Unsupported(f"{terms} elements per result: too many for a work-item")
    dtype = reduction.source.dtype
    common = reduction.params() | _start_fields(start, dtype) | dict(finishing or {})
    defines: Defines = {"ELEM": ELEM[dtype], "FOLD": fold, "FINISH": finish}
    if reduction.is_whole and fold in ("MAX", "MIN") and dtype == "float32":
        # TFLite then starts with the first element, so a NaN there persists.
        defines |= {"FROM_FIRST": 1}

    def alternative(kernel: str, lanes: int, items: int, rounds: int) -> Alternative:
        tiling = by_work(items, terms + 16, target, _ROUNDS // rounds)
        along = reduction.kept[-1] if kernel == "vector" else innermost
        blocks = {"blocks": ceil_div(along[0], lanes)} if kernel == "vector" else {}
        launch = launch_over(
            "reduce",
            f"reduce_{kernel}" if lanes else "reduce_int64" if dtype == "int64" else "reduce",
            tiling,
            common | blocks | {"items": items},
            # All strides but the innermost are multiples of the innermost size.
            defines | (vectors_of(along[0], lanes, target) if lanes else {}),
        )
        return Alternative(f"{kernel} {lanes}" if lanes else kernel, (launch,))

    if dtype == "int64":
        return (alternative("plain", 0, results, rounds + (_DIGITS if finish else 0)),)
    variants = [] if is_ordered else _shared(reduction, target, rounds, common, defines)
    if reduction.kept and reduction.kept[-1][1] == 1:
        size = reduction.kept[-1][0]
        lanes = lanes_of(size, target)
        if lanes:
            items = results // size * ceil_div(size, lanes)
            variants.append(alternative("vector", lanes, items, rounds))
    elif innermost[1] == 1 and target.group_items == 1 and not is_ordered:
        lanes = lanes_of(innermost[0], target)
        if lanes:
            row_rounds = innermost[0] // lanes + innermost[0] % lanes
            variants.append(alternative("row", lanes, results, terms // innermost[0] * row_rounds))
    return (*variants, alternative("plain", 0, results, rounds))


def _shared(
    reduction: Reduction, target: Target, rounds: int, fields: Params, defines: Defines
) -> list[Alternative]:
    """Return the alternative whose work-groups share the terms of their results, if it gains.

    `rounds`: loop rounds for all terms of a result.
    """
    results = reduction.results
    if target.group_items == 1 or results > _MOST_SHARED or rounds > _ROUNDS // _SHARED_ITEMS:
        return []
    if not reduction.reduced or reduction.reduced[-1][0] < _LEAST_SHARED:
        return []
    tiling = Tiling(ceil_div(results, _SHARED_ITEMS), target.group_items, _SHARED_ITEMS)
    scratch: Defines = {"SCRATCH_INTS": target.group_items}
    params = fields | {"items": results}
    launch = launch_over("reduce", "reduce_shared", tiling, params, defines | scratch)
    return [Alternative("shared", (launch,))]


def _start_fields(start: int, dtype: str) -> dict[str, int]:
    """Return the fields of the initial value; for int64 two signed words."""
    if dtype != "int64":
        return {"start": start}
    low = start & 0xFFFFFFFF
    return {"start_low": low - (low >> 31 << 32), "start_high": start >> 32}


def mean_rescaling(reduction: Reduction) -> dict[str, int]:
    """Return the fields that turn a quantised sum into a mean.

    Raises:
        Unsupported: types that are not quantised, a scale ratio beyond TFLite's range.
    Source: tflite/kernels/internal/reference/reduce.h QuantizedMeanOrSum
    """
    in_scale, in_zero = quantized.per_tensor(reduction.source, quantized.QUANT)
    scale, zero = quantized.per_tensor(reduction.result, quantized.QUANT)
    multiplier, shift = quantized.multiplier_of(in_scale / scale)
    # The multiplier includes the division, with as many extra bits as fit.
    terms = reduction.terms
    extra = min(terms.bit_length() - 1, 32, 31 + shift)
    return {
        "offset": -terms * in_zero,
        "multiplier": (multiplier << extra) // terms,
        "shift": shift - extra,
        "output_zero": zero,
        **quantized.whole_range(reduction.result),
    }


def rescaled_sum(reduction: Reduction, target: Target) -> tuple[Alternative, ...]:
    """Return the alternatives of a quantised SUM.

    TFLite rescales uint8 in fixed point, with its two roundings, and signed types as float32.

    Raises:
        Unsupported: types that are not quantised, results beyond 32 bits.
    Source: tflite/kernels/reduce.cc, internal/reference/reduce.h QuantizedMeanOrSum
    """
    in_scale, in_zero = quantized.per_tensor(reduction.source, quantized.QUANT)
    scale, zero = quantized.per_tensor(reduction.result, quantized.QUANT)
    with np.errstate(over="ignore"):
        ratio = np.float32(in_scale) / np.float32(scale)
    terms, limits = reduction.terms, np.iinfo(reduction.source.dtype)
    if not float(ratio) * terms * (int(limits.max) - int(limits.min)) < 2**30:
        raise Unsupported(f"{terms} elements at a scale ratio of {ratio:g}: too large")
    limit_fields = {"output_zero": zero, **quantized.whole_range(reduction.result)}
    if reduction.source.dtype == "uint8":
        multiplier, shift = fixed_point.quantize_multiplier(float(ratio))
        scaling = {"offset": -terms * in_zero, "multiplier": multiplier, "shift": shift}
        return reduce(reduction, target, "SUM", 0, 1, scaling | limit_fields)
    bias = np.float32(-in_zero) * ratio * np.float32(terms)
    factors = {"factor": bits(float(ratio)), "bias": bits(float(bias))}
    return reduce(reduction, target, "SUM", 0, 3, factors | limit_fields)
