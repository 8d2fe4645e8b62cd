# SPDX-License-Identifier: Apache-2.0
"""The paths that OpenCL is compared with, and which of many pictures are compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from numpy.typing import NDArray

from delegate import NoDeviceError
from delegate.inspect import Graph
from label_image.compare import (
    CPU,
    GPU_ON_REFERENCE,
    NO_REFERENCE,
    NOT_QUANTISED,
    REFERENCE,
    Distances,
    distances_between,
)
from label_image.errors import DelegateFailed, RunError, reason_of
from label_image.job import Delegation, Job
from label_image.path import Outputs

_FIRST = 8  # pictures at the start
_EACH = 101  # then about one in a hundred: a prime, so that each place in a batch has its turn
_MOST = 0.1  # of the time by the clock,
_MOST_S = 1.0  # or so long, whichever is more


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
        if not self.is_start(number) and number % _EACH:
            return False
        with_it = self.seconds * (1 + 1 / self._compared)
        return with_it <= max(_MOST_S, _MOST * (time.perf_counter() - self._begin_s))

    def is_start(self, number: int) -> bool:
        """Whether the picture of this number is one of the first."""
        return number < _FIRST

    def count(self, pictures: int, seconds: float) -> None:
        """Count pictures that were compared, and the time that it took."""
        self._compared += pictures
        self.seconds += seconds


class Path(Protocol):
    """A path that can run pictures, or has run one."""

    @property
    def delegation(self) -> Delegation | None:
        """What the OpenCL delegate took."""

    def run(self, pixels: NDArray[Any]) -> list[Outputs]:
        """Return each picture's outputs."""


P = TypeVar("P", bound=Path)


class Others(Generic[P]):
    """The paths, by their names of compare.py."""

    def __init__(
        self, job: Job, gpu: P, graph: Graph, floats: bool, opened: Callable[[Job], P]
    ) -> None:
        """`opened`: gives the path of a job. `floats`: run the reference kernels for them, too."""
        assert gpu.delegation is not None
        self._graph = graph
        self._paths: dict[str, P] = {}
        # For each path that is missing, why it is.
        self._reasons: dict[str, str] = {}
        on_reference = job.cpu_kernels == "reference"
        own = replace(job, quiet=True, profile_rows=0, traces=False)
        cpu = replace(own, opencl=None)
        once: dict[str, Any] = {"cpu_kernels": "reference", "warmup_runs": 0, "count": 1}
        once["longer_s"] = 0.0
        jobs = {CPU: cpu}
        if not floats and not any(
            each.dtype.startswith(("bool", "int", "uint")) for each in graph.outputs
        ):
            self._reasons[REFERENCE] = NOT_QUANTISED
        else:
            if not on_reference:
                jobs[REFERENCE] = replace(cpu, **once)
            # The CPU's part of the nodes would otherwise bring its own difference.
            if not on_reference and gpu.delegation.delegated < len(gpu.delegation.verdicts):
                jobs[GPU_ON_REFERENCE] = replace(own, **once)
            else:
                self._paths[GPU_ON_REFERENCE] = gpu
        for name, each in jobs.items():
            try:
                self._paths[name] = opened(each)
            except (RunError, DelegateFailed, NoDeviceError) as error:
                self._lose(name, error)
        if on_reference and REFERENCE not in self._reasons and self.cpu is not None:
            self._paths[REFERENCE] = self.cpu

    @property
    def cpu(self) -> P | None:
        """The CPU's path; None: it failed."""
        return self._paths.get(CPU)

    @property
    def cpu_failure(self) -> str:
        """Why there is no CPU path."""
        return self._reasons.get(CPU, "")

    def compare(
        self, pixels: NDArray[Any], gpu: P, outputs: Sequence[Outputs]
    ) -> list[tuple[Distances, Outputs | None]]:
        """Return how far OpenCL's outputs for each picture are from the others'; and the CPU's."""
        done = {id(gpu): list(outputs)}
        found: dict[str, list[Outputs]] = {}
        for name, path in list(self._paths.items()):
            try:
                if id(path) not in done:
                    done[id(path)] = path.run(pixels)
                found[name] = done[id(path)]
            except (RunError, DelegateFailed) as error:
                del self._paths[name]
                self._lose(name, error)
        compared = []
        for number, ours in enumerate(outputs):
            theirs = {name: each[number] for name, each in found.items()}
            distances = distances_between(ours, theirs, self._reasons, self._graph)
            compared.append((distances, theirs.get(CPU)))
        return compared

    def _lose(self, name: str, error: Exception) -> None:
        why = reason_of(error)
        self._reasons[name] = f"{NO_REFERENCE}: {why}" if name == REFERENCE else why
