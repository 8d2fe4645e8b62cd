# SPDX-License-Identifier: Apache-2.0
"""Differences between the outputs of two runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, Tensor

Outputs = Sequence[NDArray[Any]]
NOT_QUANTISED = "the outputs are not quantised"


@dataclass(frozen=True, slots=True)
class Difference:
    """The differences between two paths' outputs."""

    quanta: int | None  # the largest, in steps of the quantised values; None: unknown
    reason: str = ""  # why it is unknown
    # Of each output: in steps of integers, booleans included, or as a difference of floats.
    each: Sequence[int | float | None] = field(default=(), compare=False)

    @property
    def are_floats(self) -> bool:
        """Whether all outputs are floats and were compared."""
        return bool(self.each) and all(isinstance(apart, float) for apart in self.each)

    @property
    def floats(self) -> float | None:
        """The largest difference of float outputs; None: there are none, or not compared."""
        return max((apart for apart in self.each if isinstance(apart, float)), default=None)

    def larger(self, other: Difference) -> Difference:
        """Return the larger difference of each output; unknown counts as largest."""
        if self.quanta is None or other.quanta is None:
            larger = self if self.quanta is None else other
        else:
            larger = max(self, other, key=lambda difference: difference.quanta or 0)
        if len(self.each) != len(other.each):
            return larger
        pairs = zip(self.each, other.each, strict=True)
        each = tuple(None if a is None or b is None else max(a, b) for a, b in pairs)
        return replace(larger, each=each)


def difference(ours: Outputs | None, theirs: Outputs | None, reason: str) -> Difference:
    """Return the differences between two outputs; `reason`: why one of them is missing."""
    if ours is None or theirs is None:
        return Difference(None, reason)
    if [output.shape for output in ours] != [output.shape for output in theirs]:
        return Difference(None, "the outputs have different shapes")
    each = tuple(_distance(one, other) for one, other in zip(ours, theirs, strict=True))
    steps = [apart for apart in each if isinstance(apart, int)]
    if not steps:
        return Difference(None, NOT_QUANTISED, each)
    return Difference(max(steps), "", each)


def is_quantised(output: NDArray[Any]) -> bool:
    """Whether differences of this output are counted in quanta, the steps of its integers."""
    return output.dtype.kind in "biu"


def _distance(one: NDArray[Any], other: NDArray[Any]) -> int | float | None:
    """Return the largest difference; None for types without one, such as strings."""
    if is_quantised(one):
        return int(distances(one, other).max(initial=0))
    return float(distances(one, other).max(initial=0.0)) if one.dtype.kind in "fc" else None


def distances(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """Return elementwise distances: unsigned integers, or floats.

    If only one of two values is NaN, they are infinitely far apart.
    """
    if is_quantised(one):
        # Unsigned subtraction wraps to the right result where 64-bit integers would overflow.
        most, least = np.asarray(np.maximum(one, other)), np.asarray(np.minimum(one, other))
        unsigned = np.dtype(f"u{one.itemsize}")
        return np.asarray(most.view(unsigned) - least.view(unsigned))
    wide = np.complex128 if one.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        apart = np.abs(one.astype(wide) - other.astype(wide))
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))


def judged(found: Difference, graph: Graph) -> Difference:
    """Return OpenCL's differences from the reference, without outputs that prove nothing.

    Bit-exact arithmetic gives equal integers. But if a model derives indices and booleans from
    float comparisons, these may differ as floats do.
    """
    if not any(_has_floats(node.inputs) and _has_floats(node.outputs) for node in graph.nodes):
        return found
    steps = [
        (apart, tensor.quantization is not None)
        for apart, tensor in zip(found.each, graph.outputs, strict=False)
        if isinstance(apart, int)
    ]
    proven = [apart for apart, is_quantised in steps if is_quantised]
    doubtful = max((apart for apart, is_quantised in steps if not is_quantised), default=0)
    if not doubtful:
        return found
    if proven:
        return Difference(max(proven), "", found.each)
    reason = f"integers that floats decide are up to {doubtful} apart, which rounding may explain"
    return Difference(None, reason, found.each)


def _has_floats(tensors: Sequence[Tensor | None]) -> bool:
    computed = [each for each in tensors if each is not None and each.data is None]
    return any(each.dtype in ("float16", "float32") for each in computed)
