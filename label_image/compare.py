# SPDX-License-Identifier: Apache-2.0
"""Differences between outputs of OpenCL, the CPU and TFLite's reference kernels. Runs nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from delegate.inspect import Graph
from label_image.run_result import Outputs
from tflite_opencl.harness.chain import Shares
from tflite_opencl.oracle.difference import Difference, difference, judged

# Paths besides OpenCL's: TFLite on the CPU, the reference kernels, and OpenCL with its CPU nodes
# on the same kernels that the reference uses for them.
CPU, REFERENCE, GPU_JUDGED = "cpu", "reference", "gpu judged"
NO_REFERENCE = "the reference kernels cannot run this model"

FIRST = 8  # pictures at the start
_EACH = 101  # then about one in a hundred: a prime, so that every position in a batch is sampled
MOST = 0.1  # of wall-clock time,
_MOST_S = 1.0  # or this long, whichever is more


class Distances(NamedTuple):
    """Differences between the paths: of one picture, or the largest of many."""

    gpu_to_reference: Difference
    cpu_to_reference: Difference
    gpu_to_cpu: Difference
    is_promised: bool = True  # OpenCL's path is bit-exact by contract: no other delegate runs
    shares: Shares | None = None  # with two delegates, each alone; None: there are no two

    @property
    def wrong_by(self) -> int:
        """The largest difference from the reference kernels in quanta; 0: bit-exact.

        With another delegate: the difference of OpenCL's own nodes, given the inputs they received.
        """
        if self.is_promised:
            return self.gpu_to_reference.quanta or 0
        return self.shares.own.quanta or 0 if self.shares else 0

    def wrong_text(self, device: str, reference: str, which: str = "") -> str:
        """Return the message about a device whose outputs differ from these reference kernels'."""
        apart = f"up to {self.wrong_by} quanta from {reference}"
        return f"{device} computes wrongly: its outputs{which} are {apart}"

    def larger(self, other: Distances) -> Distances:
        first, second, third = (a.larger(b) for a, b in zip(self[:3], other[:3], strict=True))
        both = self.shares and other.shares and self.shares.larger(other.shares)
        return Distances(first, second, third, self.is_promised, both)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome for one picture."""

    path: str
    error: str = ""  # why it could not be read, on one line; "": it could
    # The OpenCL path's; the CPU's if there is no OpenCL path, or if its results are wrong.
    outputs: Outputs = ()
    distances: Distances | None = None  # None: not compared
    size: Sequence[int] | None = None  # the picture's height and width
    seconds: float = 0.0  # decoding time, in one process
    warnings: Sequence[str] = ()
    not_finite: str = ""  # which results are NaN or infinite; "": none

    @property
    def is_wrong(self) -> bool:
        """Whether the OpenCL path's outputs differ from the reference kernels'."""
        return self.distances is not None and self.distances.wrong_by > 0


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals over all pictures."""

    classified: int = 0
    unreadable: int = 0
    wrong: int = 0  # pictures whose OpenCL outputs differ from the reference kernels'
    decoding_seconds: float = 0.0  # summed over all processes
    processes: int = 0  # number of decoding processes
    distances: Distances | None = None  # the largest of all pictures; None: not compared
    compared: int = 0  # of the classified pictures
    comparing_seconds: float = 0.0
    seconds: float = 0.0  # wall-clock time since the first picture

    def plus(
        self, outcome: Outcome, decoding: float = 0.0, processes: int = 0, seconds: float = 0.0
    ) -> Totals:
        """Return the totals with one more picture, which took this many seconds to decode."""
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
        """Mean decoding time of a picture in one process, unreadable pictures included."""
        return 1e3 * self.decoding_seconds / max(1, self.classified + self.unreadable)


class Sample:
    """Selects the pictures to compare: all, or the first few and then a sample, as time permits.

    Attributes:
        is_all: compare all from now on. seconds: time spent on comparing so far.
    """

    def __init__(self, is_all: bool, share: float = MOST) -> None:
        """`share`: of wall-clock time that comparing may take, after the first second."""
        self.is_all = is_all
        self._share = share
        self.seconds = 0.0
        self._compared = 0
        self._begin_s = time.perf_counter()

    def takes(self, number: int) -> bool:
        """Whether to compare the picture with this number, from 0; always true for the first."""
        if self.is_all or not self._compared:
            return True
        if number >= FIRST and number % _EACH:
            return False
        with_it = self.seconds * (1 + 1 / self._compared)
        return with_it <= max(_MOST_S, self._share * (time.perf_counter() - self._begin_s))

    def count(self, pictures: int, seconds: float) -> None:
        """Count compared pictures and the time spent on them."""
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
    """Return the differences between OpenCL's outputs and those of the other paths.

    `others`, `reasons`: the outputs of CPU, REFERENCE and GPU_JUDGED, or why they are missing.
    """

    def apart(ours: Outputs | None, *names: str) -> Difference:
        # If several are missing, the reference kernels' reason is more useful than the CPU's.
        reason = next((reasons[name] for name in reversed(names) if reasons.get(name)), "")
        return difference(ours, others.get(names[-1]), reason)

    return Distances(
        judged(apart(others.get(GPU_JUDGED), GPU_JUDGED, REFERENCE), graph),
        apart(others.get(CPU), CPU, REFERENCE),
        apart(gpu, CPU),
        is_promised,
        shares,
    )


def distance_entry(distances: Distances | None, number: int) -> dict[str, int | float | None]:
    """Return, for JSON, the differences of OpenCL's output with this number."""
    if distances is None:
        return {}
    return {
        "max_difference_reference": _finite(distances.gpu_to_reference, number),
        "max_difference_cpu": _finite(distances.gpu_to_cpu, number),
    }


def _finite(difference: Difference, number: int) -> int | float | None:
    apart = difference.each[number] if number < len(difference.each) else None
    return apart if apart is not None and math.isfinite(apart) else None
