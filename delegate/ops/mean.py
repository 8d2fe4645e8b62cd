# SPDX-License-Identifier: Apache-2.0
"""MEAN over any axes: a sum, whose rescaling divides; integers divide exactly."""

from __future__ import annotations

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative, Launch
from delegate.ops._launches.reduce import Reduction, mean_rescaling, reduce, reduction_of
from delegate.ops._launches.tiles import launch_over, of_size
from delegate.ops._numbers import bits
from delegate.ops._registry import lowers
from delegate.target import Target

_MOST_TERMS = 2**15  # of int32: the sum of their halves of 16 bits fits 32 bits


@lowers("MEAN")
def lower_mean(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Average a tensor's elements along some axes.

    Raises:
        Unsupported: see `reduction_of`; other types than 8 bits, int16, int32 and float32.
    Source: tflite/kernels/internal/reference/reduce.h Mean, QuantizedMeanOrSum
    """
    return alternatives(reduction_of(node), target)


def alternatives(reduction: Reduction, target: Target) -> tuple[Alternative, ...]:
    """Return the launches of a sum that its end divides, or of int32 this op's own.

    Raises:
        Unsupported: types other than these, more terms than fit.
    """
    dtype = reduction.source.dtype
    if dtype == "float32":
        return reduce(reduction, target, "SUM", 0, 2, {"factor": bits(1 / reduction.terms)})
    if dtype == "int32":
        return (Alternative("plain", (_integers(reduction, target),)),)
    return reduce(reduction, target, "SUM", 0, 1, mean_rescaling(reduction))


def _integers(reduction: Reduction, target: Target) -> Launch:
    terms, items = reduction.terms, reduction.results
    if terms > _MOST_TERMS:
        raise Unsupported(f"{terms} int32 elements for one of the result: more than 2^15")
    sizes = {"terms": terms, "items": items}
    return launch_over("mean", "mean_int32", of_size(items, 1, target), reduction.params() | sizes)
