# SPDX-License-Identifier: Apache-2.0
"""What came of each of several pictures, and of all together."""

from __future__ import annotations

from dataclasses import dataclass, replace

from label_image.compare import Difference
from label_image.path import Outputs


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one picture."""

    path: str
    error: str = ""  # why it could not be read; "" = it was classified
    # The OpenCL path's; the CPU's where there is none, or where it computes wrongly.
    outputs: Outputs = ()
    gpu_to_reference: Difference | None = None  # None: not compared
    cpu_to_reference: Difference | None = None
    gpu_to_cpu: Difference | None = None

    @property
    def is_wrong(self) -> bool:
        """Whether the OpenCL path's outputs are not the reference kernels'."""
        return self.gpu_to_reference is not None and bool(self.gpu_to_reference.quanta)


@dataclass(slots=True)
class Totals:
    """What all pictures together came to."""

    classified: int = 0
    unreadable: int = 0
    wrong: int = 0  # pictures whose OpenCL outputs are not the reference kernels'
    decoding_seconds: float = 0.0  # of all processes together
    processes: int = 0  # that decoded
    gpu_to_reference: Difference | None = None  # the largest of all pictures; None: not compared
    cpu_to_reference: Difference | None = None
    gpu_to_cpu: Difference | None = None

    def add(self, outcome: Outcome) -> None:
        """Count one picture more."""
        if outcome.error:
            self.unreadable += 1
            return
        self.classified += 1
        self.wrong += outcome.is_wrong
        self.gpu_to_reference = _larger(self.gpu_to_reference, outcome.gpu_to_reference)
        self.cpu_to_reference = _larger(self.cpu_to_reference, outcome.cpu_to_reference)
        self.gpu_to_cpu = _larger(self.gpu_to_cpu, outcome.gpu_to_cpu)


def _larger(one: Difference | None, other: Difference | None) -> Difference | None:
    if one is None or other is None:
        return one or other
    if one.quanta is None or other.quanta is None:
        larger = one if one.quanta is None else other
    else:
        larger = max(one, other, key=lambda difference: difference.quanta or 0)
    if len(one.each) != len(other.each):
        return larger
    pairs = zip(one.each, other.each, strict=True)
    each = tuple(None if a is None or b is None else max(a, b) for a, b in pairs)
    return replace(larger, each=each)
