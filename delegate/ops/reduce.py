# SPDX-License-Identifier: Apache-2.0
"""SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_ANY and REDUCE_ALL over any axes."""

from __future__ import annotations

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks import quantized
from delegate.ops._launches.reduce import reduce, reduction_of, rescaled_sum
from delegate.ops._numbers import bits
from delegate.ops._registry import lowers
from delegate.target import Target

# What each computes with, and on which types.
_FOLDS = {
    "SUM": ("SUM", ("float32", "int32", *quantized.QUANT)),
    "REDUCE_MAX": ("MAX", ("float32", "int32", *quantized.QUANT)),
    "REDUCE_MIN": ("MIN", ("float32", "int32", *quantized.QUANT)),
    "REDUCE_PROD": ("PROD", ("float32", "int32")),
    "REDUCE_ANY": ("MAX", ("bool",)),
    "REDUCE_ALL": ("MIN", ("bool",)),
}


@lowers("SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL")
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
