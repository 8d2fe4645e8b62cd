# SPDX-License-Identifier: Apache-2.0
"""How far OpenCL's outputs are from the CPU's and TFLite's reference kernels'. It runs nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from delegate.inspect import Graph
from label_image.path import Outputs
from tflite_opencl.harness.chain import Shares
from tflite_opencl.oracle.difference import Difference, difference, judged

# The paths beside OpenCL's: TFLite's own on the CPU, the kernels that judge, and OpenCL with what
# it leaves to the CPU on the kernels that the judge has for that part, too.
CPU, REFERENCE, GPU_JUDGED = "cpu", "reference", "gpu judged"
NO_REFERENCE = "the reference kernels cannot run this model"

FIRST = 8  # pictures at the start
_EACH = 101  # then about one in a hundred: a prime, so that each place in a batch has its turn
MOST = 0.1  # of the time by the clock,
_MOST_S = 1.0  # or so long, whichever is more


class Distances(NamedTuple):
    """How far the paths are apart: of one picture, or the largest of many."""

    gpu_to_reference: Difference
    cpu_to_reference: Difference
    gpu_to_cpu: Difference
    is_promised: bool = True  # that OpenCL's path gives the reference's integers: no other delegate
    shares: Shares | None = None  # of two delegates, each alone; None: there are none

    @property
    def wrong_by(self) -> int:
        """Give by how many quanta OpenCL's outputs are not the reference kernels'; 0: they are.

        Beside another delegate they are those of OpenCL's own nodes, on what reached them.
        """
        if self.is_promised:
            return self.gpu_to_reference.quanta or 0
        return self.shares.own.quanta or 0 if self.shares else 0

    def wrong_text(self, device: str, reference: str, which: str = "") -> str:
        """Return what is said of a device whose outputs are not these reference kernels'."""
        apart = f"up to {self.wrong_by} quanta from {reference}"
        return f"{device} computes wrongly: its outputs{which} are {apart}"

    def larger(self, other: Distances) -> Distances:
        first, second, third = (a.larger(b) for a, b in zip(self[:3], other[:3], strict=True))
        both = self.shares and other.shares and self.shares.larger(other.shares)
        return Distances(first, second, third, self.is_promised, both)


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
    not_finite: str = ""  # which results are no numbers; "": none

    @property
    def is_wrong(self) -> bool:
        """Whether the OpenCL path's outputs are not the reference kernels'."""
        return self.distances is not None and self.distances.wrong_by > 0


@dataclass(frozen=True, slots=True)
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

    def plus(
        self, outcome: Outcome, decoding: float = 0.0, processes: int = 0, seconds: float = 0.0
    ) -> Totals:
        """Return the totals with one more picture; its decoding took so many seconds."""
        is_read, distances = not outcome.error, outcome.distances
        largest = self.distances.larger(distances) if self.distances and distances else distances
        return Totals(
            self.classified + is_read, self.unreadable + (not is_read),
            self.wrong + outcome.is_wrong, self.decoding_seconds + decoding,
            processes or self.processes, largest or self.distances,
            self.compared + (distances is not None), self.comparing_seconds,
            seconds or self.seconds,
        )  # fmt: skip

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

    def __init__(self, is_all: bool, share: float = MOST) -> None:
        """`share`: of the time by the clock that comparing may take, after the first second."""
        self.is_all = is_all
        self._share = share
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
        return with_it <= max(_MOST_S, self._share * (time.perf_counter() - self._begin_s))

    def count(self, pictures: int, seconds: float) -> None:
        """Count pictures that were compared, and the time that it took."""
        self._compared += pictures
        self.seconds += seconds


def distances_between(
    gpu: Outputs,
    others: Mapping[str, Outputs | None],
    reasons: Mapping[str, str],
    graph: Graph,
    shares: Shares | None = None,
    *,
    is_promised: bool = True,
) -> Distances:
    """Return how far OpenCL's outputs and those of the paths beside it are apart.

    `others`, `reasons`: the outputs of CPU, REFERENCE and GPU_JUDGED, or why there are none.
    """

    def apart(ours: Outputs | None, *names: str) -> Difference:
        # If several are missing, the reference kernels' reason says more than the CPU's.
        reason = next((reasons[name] for name in reversed(names) if reasons.get(name)), "")
        return difference(ours, others.get(names[-1]), reason)

    return Distances(
        judged(apart(others.get(GPU_JUDGED), GPU_JUDGED, REFERENCE), graph),
        apart(others.get(CPU), CPU, REFERENCE),
        apart(gpu, CPU),
        is_promised,
        shares,
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
