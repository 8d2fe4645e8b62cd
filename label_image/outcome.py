# SPDX-License-Identifier: Apache-2.0
"""What came of each of several pictures, and of all together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from label_image.compare import Distances
from label_image.path import Outputs


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one picture."""

    path: str
    error: str = ""  # why it could not be read; "" = it was classified
    # The OpenCL path's; the CPU's where there is none, or where it computes wrongly.
    outputs: Outputs = ()
    distances: Distances | None = None  # None: not compared
    size: Sequence[int] | None = None  # the picture's height and width

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
        """Count one picture more."""
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
        """Give the pictures a second by the clock."""
        return self.classified / self.seconds if self.seconds else 0.0

    @property
    def decoding_ms(self) -> float:
        """Give the time that a process took for a picture, readable or not."""
        return 1e3 * self.decoding_seconds / max(1, self.classified + self.unreadable)
