# SPDX-License-Identifier: Apache-2.0
"""A run's paths: OpenCL's, the CPU's in its place, and those beside it that it is compared with."""

from __future__ import annotations

import contextlib
import logging
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import NoDeviceError
from delegate.inspect import Graph, several_devices
from label_image.chain import ChainJudge
from label_image.compare import (
    CPU,
    GPU_JUDGED,
    MOST,
    NO_REFERENCE,
    REFERENCE,
    Outcome,
    Sample,
    Totals,
    distances_between,
)
from label_image.comparison_jobs import comparison_jobs
from label_image.console import log_error
from label_image.open_path import open_path
from label_image.path import Outputs, Path
from label_image.worker import path_in_child
from tflite_opencl.common import bars, interrupts
from tflite_opencl.common.difference import NOT_QUANTISED
from tflite_opencl.common.errors import DelegateFailed, RunError, reason_of
from tflite_opencl.common.exit_codes import LOST, NO_DEVICE, SUCCESS
from tflite_opencl.common.job import Job
from tflite_opencl.common.node_kernels import Kernels
from tflite_opencl.common.runtime import Runtime

ENDED = "Ctrl-C ended the run before"

log = logging.getLogger("label_image")


class Paths(contextlib.ExitStack):
    """The paths of a run. Those beside OpenCL's have compare.py's names.

    Attributes:
        job: of the first path; `job.reference`: compare it. floats: compare with the reference
            kernels even where all outputs are floats. gpu: the OpenCL path; None: there is none,
            or it failed. beside: what it is compared with; None: nothing is. reasons: for each
            path that is missing there, why it is. untuned: OpenCL's path before, where `gpu` was
            tuned after it. totals: of all pictures so far. answer: the outputs of the one
            picture; after Ctrl-C there are none.
    """

    def __init__(
        self,
        job: Job,
        runtime: Runtime,
        graph: Graph,
        *,
        floats: bool = False,
        compares_all: bool = True,
        share: float = MOST,
    ) -> None:
        """`job.input`: the picture, or what the paths for many are warmed up with.

        `compares_all`: each picture, not a sample of them. `share`: as of `Sample`.
        """
        super().__init__()
        self.job, self.floats = job, floats
        self._runtime, self._graph = runtime, graph
        self._sample = Sample(compares_all, share)
        self._chain_judge = self.enter_context(ChainJudge(job, runtime, graph))
        self._gpu_stack = self.enter_context(contextlib.ExitStack())
        self._instead: Path | None = None  # what runs in OpenCL's place
        self.beside: dict[str, Path] | None = None
        self.reasons: dict[str, str] = {}
        self._gave_up = ""
        self._left_out = ""  # one of several devices that gave pictures which nobody compared
        self.gpu: Path | None = None
        self.untuned: Path | None = None
        self.totals = Totals()
        self.answer: Outputs = ()

    @property
    def cpu(self) -> Path | None:
        """The CPU's path, or an external delegate's."""
        return self._instead or (self.beside or {}).get(CPU)

    @property
    def reference(self) -> str:
        """Whose kernels OpenCL's outputs are compared with, for people."""
        return f"TFLite's {self._judged_by.name}" if self._judged_by else self._runtime.reference

    @property
    def other_kernels(self) -> str:
        """Which nodes others than the reference kernels judge, and why; "": none."""
        return self._judged_by.reasons if self._judged_by else ""

    @property
    def _judged_by(self) -> Kernels | None:
        judge = (self.beside or {}).get(REFERENCE)
        return judge.judged_by if judge and not self._runtime.why_not else None

    @property
    def other(self) -> str:
        """The document's name of that path."""
        is_beside = CPU in (self.beside or {})
        return "external" if self.job.external and not is_beside else "cpu"

    @property
    def speedup(self) -> float | None:
        """The time of a picture on the CPU over that on OpenCL; None: one ran too few times."""
        both = [path for path in (self.cpu, self.gpu) if path and path.has_run_enough]
        return both[0].picture_ms / both[1].picture_ms if len(both) == 2 else None

    @property
    def is_sample(self) -> bool:
        """Whether some pictures were classified by OpenCL and not compared, but others were."""
        return 0 < self.totals.compared < self.totals.classified

    @property
    def where(self) -> str:
        """Say in how many of several pictures OpenCL computed wrongly."""
        if self.job.is_timed:
            return ""
        sample = " that were compared" if self.is_sample else ""
        return f", in {self.totals.wrong} of {self.totals.compared} pictures{sample}"

    @property
    def failure(self) -> str:
        """Why OpenCL did not do it, or did it wrongly; "" = nothing to complain of."""
        why, totals = self._gave_up or self._left_out, self.totals
        if why or not totals.wrong or totals.distances is None:
            return why
        return totals.distances.wrong_text(self._device_name, self.reference) + self.where

    @property
    def _device_name(self) -> str:
        return self.gpu.device_name if self.gpu else "the device"

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

    # --- opening

    def open(self) -> None:
        """Open OpenCL's path where that is asked for, else or where that fails the CPU's.

        Raises: as `opened`, where the CPU cannot take over.
        """
        if self.job.opencl is not None:
            try:
                self.gpu = self.opened(self.job)
            except (DelegateFailed, NoDeviceError) as error:
                if self._runtime.why_not:  # the CPU cannot take over
                    raise
                self._give_up(error)
        self.answer = (self.gpu or self._open_instead()).outputs

    def open_others(self) -> None:
        """Open what OpenCL is compared with, if it is. Raises: KeyboardInterrupt: Ctrl-C."""
        if self.gpu is None or not self.job.reference:
            return
        self.beside, self.reasons, taken = {}, {}, self.gpu.delegation
        jobs = comparison_jobs(self.job, taken, self._runtime, self._graph, self.floats)
        if REFERENCE not in jobs:
            self.reasons[REFERENCE] = NOT_QUANTISED
        elif GPU_JUDGED not in jobs:
            self.beside[GPU_JUDGED] = self.gpu
        for name, job in jobs.items():
            whose = "reference" if name == REFERENCE else "CPU's"
            try:
                interrupts.check()
                with bars.waiting(f"running the {whose} kernels"):
                    self.beside[name] = self.opened(job, is_beside=True)
                interrupts.check()
            except (RunError, DelegateFailed, NoDeviceError) as error:
                self._lose(name, error)
            except KeyboardInterrupt:
                self.reasons |= {each: ENDED for each in jobs if each not in self.beside}
                raise

    def opened(self, job: Job, is_beside: bool = False) -> Path:
        """Return a job's path, which has run; `is_beside`: to compare OpenCL with.

        Raises: RunError, DelegateFailed, NoDeviceError.
        """
        stack: contextlib.ExitStack = self
        if is_beside:
            # A sample is compared picture by picture; the reference kernels run once either way.
            is_cpu = job.opencl is None and job.cpu_kernels == self.job.cpu_kernels
            job = replace(job, batch=job.batch if is_cpu and self._sample.is_all else None)
        elif job.opencl is not None:
            stack = self._gpu_stack
            is_one = job.batch is None and several_devices(job.opencl.device)
            job = replace(job, batch=1) if is_one else job
        if is_beside and job.cpu_kernels == "reference":  # which may end their process
            opening = path_in_child(job)
        else:
            opening = open_path(job, self._runtime, self._graph)
        if job.is_timed:
            with opening as path:
                return path
        path = stack.enter_context(opening)
        path.warm_up(np.repeat(job.input, job.batch or 1, axis=0), job.warmup_runs)
        return path

    def _open_instead(self) -> Path:
        """Open the path that runs in OpenCL's place."""
        self._instead = self.opened(replace(self.job, opencl=None))
        return self._instead

    def _lose(self, name: str, error: Exception) -> None:
        why = reason_of(error)
        self.reasons[name] = f"{NO_REFERENCE}: {why}" if name == REFERENCE else why

    def _give_up(self, error: DelegateFailed | NoDeviceError) -> None:
        """Go on without OpenCL, and say why."""
        log_error(error, self.job.verbose)
        who = f"{self.job.library} and the CPU run" if self.job.external else "the CPU runs"
        log.warning("%s the model instead", who)
        # The memory that the failed run holds must not slow down the next one.
        traceback.clear_frames(error.__traceback__)
        self._gave_up, self.gpu = reason_of(error), None
        self._gpu_stack.close()

    # --- comparing

    def _count(self, outcome: Outcome) -> None:
        """Count a picture; the first that OpenCL computed wrongly is complained of."""
        self.totals.add(outcome)
        if self.totals.wrong != 1 or outcome.distances is None or not outcome.is_wrong:
            return
        which = f" for {outcome.path}" if outcome.path else ""
        distances = outcome.distances
        log.error("%s", distances.wrong_text(self._device_name, self.reference, which))
        if self.cpu is not None:
            log.warning("the results%s are the CPU's", " of such pictures" if which else "")
        if self._not_compared:
            log.warning("%s: from now on each one is", self._not_compared)

    @property
    def _not_compared(self) -> str:
        """Say how many pictures were classified and not compared; "": none."""
        count = self.totals.classified - self.totals.compared
        return f"{count} pictures before were not compared" if count else ""

    def _compare(self, pixels: NDArray[Any], gpu: Sequence[Outputs]) -> list[Outcome]:
        """Return what comes of pictures; the CPU's outputs count where OpenCL's are wrong."""
        assert self.beside is not None
        begin_s = time.perf_counter()
        done = {id(self.gpu): list(gpu)}
        found: dict[str, list[Outputs]] = {}
        for name, path in [*self.beside.items()]:
            try:
                if id(path) not in done:
                    done[id(path)] = path.run(pixels)
                found[name] = done[id(path)]
            except (RunError, DelegateFailed) as error:
                del self.beside[name]
                self._lose(name, error)
        outcomes, taken = [], self.gpu.delegation if self.gpu else None
        is_promised = not (taken and taken.others) and not self.job.allows_halves
        shares = self._chain_judge.shares(taken, pixels)
        for number, ours in enumerate(gpu):
            theirs = {name: each[number] for name, each in found.items()}
            distances = distances_between(
                ours, theirs, self.reasons, self._graph, shares[number] if shares else None,
                is_promised=is_promised,
            )  # fmt: skip
            outcome = Outcome("", outputs=ours, distances=distances)
            is_ours = not outcome.is_wrong or CPU not in theirs
            outcomes.append(outcome if is_ours else replace(outcome, outputs=theirs[CPU]))
        self._sample.count(len(outcomes), time.perf_counter() - begin_s)
        self.totals.comparing_seconds = self._sample.seconds
        return outcomes
