# SPDX-License-Identifier: Apache-2.0
"""A run's paths: OpenCL's, or the CPU's in its place; and those that it is compared with."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from numpy.typing import NDArray

from delegate import NoDeviceError
from delegate.inspect import Graph
from label_image.compare import (
    CPU,
    GPU_ON_REFERENCE,
    NO_REFERENCE,
    REFERENCE,
    Distances,
    distances_between,
    wrong_text,
)
from label_image.errors import gave_up
from label_image.path import Outputs
from tflite_opencl.common import bars, interrupts
from tflite_opencl.common.difference import NOT_QUANTISED
from tflite_opencl.common.errors import DelegateFailed, RunError, reason_of
from tflite_opencl.common.exit_codes import LOST, NO_DEVICE, SUCCESS
from tflite_opencl.common.job import Delegation, Job

ENDED = "Ctrl-C ended the run before"

log = logging.getLogger("label_image")


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


class Path(Protocol):
    """A path that can run pictures, or has run one."""

    @property
    def delegation(self) -> Delegation | None:
        """What the OpenCL delegate took."""

    def run(self, pixels: NDArray[Any]) -> list[Outputs]:
        """Return each picture's outputs."""


P = TypeVar("P", bound=Path)


@dataclass(frozen=True, slots=True)
class Comparison(Generic[P]):
    """The CPU's path beside OpenCL's, and the largest distances between the paths."""

    cpu: P | None  # None: it failed
    cpu_failure: str
    distances: Distances | None  # None: there was nothing to compare


class Paths(Generic[P]):
    """The paths; what they are is up to `opened`. Those beside OpenCL's have compare.py's names.

    Attributes:
        job: of the first path; `job.reference`: compare it. gpu: the OpenCL path; None: there is
            none, or it failed. floats: compare with the reference kernels even where all outputs
            are floats. totals: of all pictures so far.
    """

    def __init__(self, job: Job, graph: Graph) -> None:
        self.job, self._graph = job, graph
        self.floats = False
        self._instead: P | None = None  # what runs in OpenCL's place
        self._beside: dict[str, P] | None = None  # None: nothing is compared
        self._reasons: dict[str, str] = {}  # for each path that is missing, why it is
        self._gave_up = ""
        self.gpu: P | None = None
        self.totals = Totals()

    def opened(self, job: Job, is_beside: bool = False) -> P:
        """Return a job's path; `is_beside`: to compare OpenCL with.

        Raises: RunError, DelegateFailed, NoDeviceError.
        """
        raise NotImplementedError

    @property
    def cpu(self) -> P | None:
        """The CPU's path, or an external delegate's."""
        return self._instead or (self._beside or {}).get(CPU)

    @property
    def comparison(self) -> Comparison[P] | None:
        """What OpenCL is compared with, and how far it is away; None: it is not compared."""
        if self._beside is None:
            return None
        why = self._reasons.get(CPU, "")
        return Comparison(self._beside.get(CPU), why, self.totals.distances)

    @property
    def where(self) -> str:
        """Say in which of several pictures OpenCL computed wrongly."""
        return ""

    @property
    def failure(self) -> str:
        """Why OpenCL did not do it, or did it wrongly; "" = nothing to complain of."""
        totals = self.totals
        if self._gave_up or not totals.wrong or totals.distances is None:
            return self._gave_up
        return wrong_text(self._device_name, totals.distances.wrong_by) + self.where

    @property
    def _device_name(self) -> str:
        taken = self.gpu.delegation if self.gpu else None
        return taken.device if taken else "the device"

    def open(self) -> None:
        """Open OpenCL's path where that is asked for, else or where that fails the CPU's.

        Raises: as `opened`, where the CPU cannot take over.
        """
        if self.job.opencl is not None:
            try:
                self.gpu = self.opened(self.job)
            except (DelegateFailed, NoDeviceError) as error:
                self.give_up(error)
        if self.gpu is None:
            self.open_instead()

    def open_instead(self) -> P:
        """Open the path that runs in OpenCL's place."""
        self._instead = self.opened(replace(self.job, opencl=None))
        return self._instead

    def open_others(self) -> None:
        """Open what OpenCL is compared with, if it is. Raises: KeyboardInterrupt: Ctrl-C."""
        if self.gpu is None or not self.job.reference:
            return
        self._beside, self._reasons = {}, {}
        for name, job in (jobs := self._jobs_beside(self.gpu)).items():
            kernels = "reference" if job.cpu_kernels == "reference" else "CPU's"
            try:
                interrupts.check()
                with bars.waiting(f"running the {kernels} kernels"):
                    self._beside[name] = self.opened(job, is_beside=True)
                interrupts.check()
            except (RunError, DelegateFailed, NoDeviceError) as error:
                self._lose(name, error)
            except KeyboardInterrupt:
                self._reasons |= {each: ENDED for each in jobs if each not in self._beside}
                raise
        on_reference = self.job.cpu_kernels == "reference" and REFERENCE not in self._reasons
        if on_reference and CPU in self._beside:
            self._beside[REFERENCE] = self._beside[CPU]

    def _jobs_beside(self, gpu: P) -> dict[str, Job]:
        """Return the jobs of the paths to open; OpenCL's own may be one of them already."""
        assert self._beside is not None
        assert gpu.delegation is not None
        own = replace(self.job, quiet=True, profile_rows=0, traces=False)
        cpu = replace(own, opencl=None)
        dtypes = tuple(each.dtype for each in self._graph.outputs)
        if not self.floats and not any(d.startswith(("bool", "int", "uint")) for d in dtypes):
            self._reasons[REFERENCE] = NOT_QUANTISED
            return {CPU: cpu}
        self._beside[GPU_ON_REFERENCE] = gpu
        if self.job.cpu_kernels == "reference":
            return {CPU: cpu}
        once: dict[str, Any] = {"cpu_kernels": "reference", "warmup_runs": 0, "count": 1}
        once["longer_s"] = 0.0
        jobs = {CPU: cpu, REFERENCE: replace(cpu, **once)}
        if gpu.delegation.delegated == len(gpu.delegation.verdicts):
            return jobs
        # The CPU's part of the nodes would otherwise bring its own difference.
        del self._beside[GPU_ON_REFERENCE]
        return jobs | {GPU_ON_REFERENCE: replace(own, **once)}

    def compared(self, pixels: NDArray[Any], gpu: Sequence[Outputs]) -> list[Outcome]:
        """Return what comes of pictures; the CPU's outputs count where OpenCL's are wrong."""
        assert self._beside is not None
        done = {id(self.gpu): list(gpu)}
        found: dict[str, list[Outputs]] = {}
        for name, path in [*self._beside.items()]:
            try:
                if id(path) not in done:
                    done[id(path)] = path.run(pixels)
                found[name] = done[id(path)]
            except (RunError, DelegateFailed) as error:
                del self._beside[name]
                self._lose(name, error)
        outcomes = []
        for number, ours in enumerate(gpu):
            theirs = {name: each[number] for name, each in found.items()}
            distances = distances_between(ours, theirs, self._reasons, self._graph)
            outcome = Outcome("", outputs=ours, distances=distances)
            is_ours = not outcome.is_wrong or CPU not in theirs
            outcomes.append(outcome if is_ours else replace(outcome, outputs=theirs[CPU]))
        return outcomes

    def _lose(self, name: str, error: Exception) -> None:
        why = reason_of(error)
        self._reasons[name] = f"{NO_REFERENCE}: {why}" if name == REFERENCE else why

    def complain(self, outcome: Outcome) -> None:
        """Say that OpenCL computed wrongly; `outcome.path`: for this one of several pictures."""
        assert outcome.distances is not None
        which = f" for {outcome.path}" if outcome.path else ""
        log.error("%s", wrong_text(self._device_name, outcome.distances.wrong_by, which))
        if self.cpu is not None:
            log.warning("the results%s are the CPU's", " of such pictures" if which else "")

    def exit_code(self) -> int:
        """Return the exit code of a run with results; say at last where most nodes were lost."""
        if self.failure:
            return NO_DEVICE
        taken = self.gpu.delegation if self.gpu else None
        if taken is None or 2 * taken.lost <= len(taken.verdicts):
            return SUCCESS
        log.error(
            "the CPU ran %d of %d nodes, because child processes died of their OpenCL kernels: "
            "`tflite-opencl info --bans` says which are left out, and --lift_bans tries them again",
            taken.lost, len(taken.verdicts),
        )  # fmt: skip
        return LOST

    def give_up(self, error: DelegateFailed | NoDeviceError) -> None:
        """Go on without OpenCL."""
        self._gave_up, self.gpu = gave_up(error, self.job.verbose), None
