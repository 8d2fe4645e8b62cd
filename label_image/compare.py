# SPDX-License-Identifier: Apache-2.0
"""How far OpenCL's outputs are from the CPU's and TFLite's reference kernels'. It runs nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, Tensor

Outputs = Sequence[NDArray[Any]]
# The paths beside OpenCL's: TFLite's own on the CPU, its reference kernels, and OpenCL with what it
# leaves to the CPU on the reference kernels.
CPU, REFERENCE, GPU_ON_REFERENCE = "cpu", "reference", "gpu on reference"
NOT_QUANTISED = "the outputs are not quantised"
NO_REFERENCE = "the reference kernels cannot run this model"


@dataclass(frozen=True, slots=True)
class Difference:
    """How far two paths' outputs are apart."""

    quanta: int | None  # the largest, in steps of the quantised values; None: not known
    reason: str = ""  # why it is not known
    # Of each output, in steps of integers, truth values included, or as a float's own difference.
    each: Sequence[int | float | None] = field(default=(), compare=False)

    @property
    def are_floats(self) -> bool:
        """Whether all outputs are floats, and compared."""
        return bool(self.each) and all(isinstance(apart, float) for apart in self.each)

    @property
    def floats(self) -> float | None:
        """Give the largest of the float outputs; None: there are none, or they are not compared."""
        return max((apart for apart in self.each if isinstance(apart, float)), default=None)

    def larger(self, other: Difference) -> Difference:
        """Return the larger one, of each output; one that is not known counts most."""
        if self.quanta is None or other.quanta is None:
            larger = self if self.quanta is None else other
        else:
            larger = max(self, other, key=lambda difference: difference.quanta or 0)
        if len(self.each) != len(other.each):
            return larger
        pairs = zip(self.each, other.each, strict=True)
        each = tuple(None if a is None or b is None else max(a, b) for a, b in pairs)
        return replace(larger, each=each)


@dataclass(frozen=True, slots=True)
class Distances:
    """How far the paths are apart: of one picture, or the largest of many."""

    gpu_to_reference: Difference
    cpu_to_reference: Difference
    gpu_to_cpu: Difference

    @property
    def wrong_by(self) -> int:
        """Give by how many quanta OpenCL's outputs are not the reference kernels'; 0: they are."""
        return self.gpu_to_reference.quanta or 0

    def larger(self, other: Distances) -> Distances:
        """Return the larger one of each."""
        return Distances(
            self.gpu_to_reference.larger(other.gpu_to_reference),
            self.cpu_to_reference.larger(other.cpu_to_reference),
            self.gpu_to_cpu.larger(other.gpu_to_cpu),
        )


def distances_between(
    gpu: Outputs,
    others: Mapping[str, Outputs | None],
    reasons: Mapping[str, str],
    graph: Graph,
) -> Distances:
    """Return how far OpenCL's outputs and those of the paths beside it are apart.

    `others`, `reasons`: the outputs of CPU, REFERENCE and GPU_ON_REFERENCE, or why there are none.
    """

    def apart(ours: Outputs | None, *names: str) -> Difference:
        # If several are missing, the reference kernels' reason says more than the CPU's.
        reason = next((reasons[name] for name in reversed(names) if reasons.get(name)), "")
        return difference(ours, others.get(names[-1]), reason)

    return Distances(
        judged(apart(others.get(GPU_ON_REFERENCE), GPU_ON_REFERENCE, REFERENCE), graph),
        apart(others.get(CPU), CPU, REFERENCE),
        apart(gpu, CPU),
    )


def wrong_text(device: str, quanta: int, which: str = "") -> str:
    """Return what is said of a device whose outputs are not the reference kernels'."""
    return (
        f"{device} computes wrongly: its outputs{which} are up to {quanta} quanta from TFLite's "
        "reference kernels"
    )


def difference(ours: Outputs | None, theirs: Outputs | None, reason: str) -> Difference:
    """Return how far two outputs are apart; `reason`: why one of them is not there."""
    if ours is None or theirs is None:
        return Difference(None, reason)
    if [output.shape for output in ours] != [output.shape for output in theirs]:
        return Difference(None, "the outputs have different shapes")
    each = tuple(_distance(one, other) for one, other in zip(ours, theirs, strict=True))
    steps = [apart for apart in each if isinstance(apart, int)]
    if not steps:
        return Difference(None, NOT_QUANTISED, each)
    return Difference(max(steps), "", each)


def distance_entry(found: Distances | None, number: int) -> dict[str, int | float | None]:
    """Return for JSON how far OpenCL's output of this number is from the others'."""
    if found is None:
        return {}
    return {
        "max_difference_reference": _finite(found.gpu_to_reference, number),
        "max_difference_cpu": _finite(found.gpu_to_cpu, number),
    }


def _finite(found: Difference, number: int) -> int | float | None:
    apart = found.each[number] if number < len(found.each) else None
    return apart if apart is not None and math.isfinite(apart) else None


def judged(found: Difference, graph: Graph) -> Difference:
    """Return OpenCL's difference from the reference, without the outputs that prove nothing.

    Equal arithmetic gives equal integers. But a model may find indices and truth values by
    comparing floats: these may differ as floats do.
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
    return any(t is not None and t.data is None and t.dtype == "float32" for t in tensors)


def is_quantised(output: NDArray[Any]) -> bool:
    """Whether differences of this output are counted in quanta, the steps of its integers."""
    return output.dtype.kind in "biu"


def _distance(one: NDArray[Any], other: NDArray[Any]) -> int | float | None:
    """Return the largest difference; None for what has none, as strings."""
    one, other = np.atleast_1d(one), np.atleast_1d(other)
    if is_quantised(one):
        # Unsigned numbers wrap into the right answer where 64-bit ones would overflow.
        unsigned = np.dtype(f"u{one.itemsize}")
        apart = np.maximum(one, other).view(unsigned) - np.minimum(one, other).view(unsigned)
        return int(apart.max(initial=0))
    if one.dtype.kind != "f":
        return None
    with np.errstate(all="ignore"):
        gaps = np.abs(one.astype(np.float64) - other.astype(np.float64))
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    gaps = np.where(same, 0.0, np.where(np.isnan(gaps), np.inf, gaps))
    return float(gaps.max(initial=0.0))
