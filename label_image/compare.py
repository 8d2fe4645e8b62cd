# SPDX-License-Identifier: Apache-2.0
"""How far OpenCL's outputs are from the CPU's and TFLite's reference kernels'. It runs nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from delegate.inspect import Graph, Tensor
from label_image.path import Outputs
from tflite_opencl.common.difference import Difference, difference

# The paths beside OpenCL's: TFLite's own on the CPU, its reference kernels, and OpenCL with what it
# leaves to the CPU on the reference kernels.
CPU, REFERENCE, GPU_ON_REFERENCE = "cpu", "reference", "gpu on reference"
NO_REFERENCE = "the reference kernels cannot run this model"

FIRST = 8  # pictures at the start
_EACH = 101  # then about one in a hundred: a prime, so that each place in a batch has its turn
_MOST = 0.1  # of the time by the clock,
_MOST_S = 1.0  # or so long, whichever is more


class Distances(NamedTuple):
    """How far the paths are apart: of one picture, or the largest of many."""

    gpu_to_reference: Difference
    cpu_to_reference: Difference
    gpu_to_cpu: Difference
    is_promised: bool = True  # that OpenCL's path gives the reference's integers: no other delegate

    @property
    def wrong_by(self) -> int:
        """Give by how many quanta OpenCL's outputs are not the reference kernels'; 0: they are."""
        return self.gpu_to_reference.quanta or 0 if self.is_promised else 0

    def larger(self, other: Distances) -> Distances:
        first, second, third = (a.larger(b) for a, b in zip(self[:3], other[:3], strict=True))
        return Distances(first, second, third, self.is_promised)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one picture."""

    path: str
    error: str = ""  # why it could not be read, as one line; "" = it could
    # The OpenCL path's; the CPU's where there is none, or where it computes wrongly.
    outputs: Outputs = ()
    distances: Distances | None = None  # None: not compared
    size: Sequence[int] | None = None  # the picture's height and width
    seconds: float = 0.0  # of decoding, in one process
    warnings: Sequence[str] = ()

    @property
    def is_wrong(self) -> bool:
        """Whether the OpenCL path's outputs are not the reference kernels'."""
        return self.distances is not None and self.distances.wrong_by > 0


@dataclass(slots=True)
class Totals:
    """What all pictures together came to."""

    classified: int = 0
    unreadable: int = 0
    wrong: int = 0  # pictures whose OpenCL outputs are not the reference kernels'
    decoding_seconds: float = 0.0  # of all processes together
    processes: int = 0  # that decoded
    distances: Distances | None = None  # the largest of all pictures; None: not compared
    compared: int = 0  # of those that were classified
    comparing_seconds: float = 0.0
    seconds: float = 0.0  # by the clock, from the first picture on

    def add(self, outcome: Outcome) -> None:
        if outcome.error:
            self.unreadable += 1
            return
        self.classified += 1
        self.wrong += outcome.is_wrong
        if outcome.distances is not None:
            self.compared += 1
            so_far = self.distances or outcome.distances
            self.distances = so_far.larger(outcome.distances)

    @property
    def per_second(self) -> float:
        return self.classified / self.seconds if self.seconds else 0.0

    @property
    def decoding_ms(self) -> float:
        """Give the time that a process took for a picture, readable or not."""
        return 1e3 * self.decoding_seconds / max(1, self.classified + self.unreadable)


class Sample:
    """Which pictures are compared: all; or the first and some of the others, as there is time.

    Attributes:
        is_all: whether all are, from now on. seconds: what comparing took so far.
    """

    def __init__(self, is_all: bool) -> None:
        self.is_all = is_all
        self.seconds = 0.0
        self._compared = 0
        self._begin_s = time.perf_counter()

    def takes(self, number: int) -> bool:
        """Whether to compare the picture of this number, from 0; the first one always."""
        if self.is_all or not self._compared:
            return True
        if number >= FIRST and number % _EACH:
            return False
        with_it = self.seconds * (1 + 1 / self._compared)
        return with_it <= max(_MOST_S, _MOST * (time.perf_counter() - self._begin_s))

    def count(self, pictures: int, seconds: float) -> None:
        """Count pictures that were compared, and the time that it took."""
        self._compared += pictures
        self.seconds += seconds


def distances_between(
    gpu: Outputs,
    others: Mapping[str, Outputs | None],
    reasons: Mapping[str, str],
    graph: Graph,
    is_promised: bool = True,
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
        is_promised,
    )


def wrong_text(device: str, quanta: int, which: str = "") -> str:
    """Return what is said of a device whose outputs are not the reference kernels'."""
    return (
        f"{device} computes wrongly: its outputs{which} are up to {quanta} quanta from TFLite's "
        "reference kernels"
    )


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
