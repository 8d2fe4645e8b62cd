# SPDX-License-Identifier: Apache-2.0
"""A run's paths: OpenCL's, the CPU's as its fallback, and those that it is compared with."""

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
    Distances,
    Outcome,
    Sample,
    Totals,
    distances_between,
)
from label_image.comparison_jobs import comparison_jobs
from label_image.console import log_error
from label_image.judgement import Judgement
from label_image.open_path import open_path
from label_image.path import Outputs, Path
from label_image.worker import path_in_child
from tflite_opencl.console import bars, interrupts
from tflite_opencl.console.errors import DelegateFailed, RunError, reason_of
from tflite_opencl.harness.job import Job
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.oracle.difference import NOT_QUANTISED, Difference
from tflite_opencl.oracle.finite import not_finite

ENDED = "Ctrl-C ended the run before"

log = logging.getLogger("label_image")


class Paths(contextlib.ExitStack):
    """Opens a run's paths, keeps them open, and compares their outputs.

    Attributes:
        judgement: the state so far. floats: compare with the reference kernels even if all outputs
            are floats.
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
        is_quiet: bool = False,
    ) -> None:
        """`job.input`: the picture, or the warm-up input of the paths for many.

        `compares_all`: each picture, not a sample of them. `share`: as for `Sample`. `is_quiet`:
        the caller reports NaN and infinite results.
        """
        super().__init__()
        self.job, self.graph, self.floats = job, graph, floats
        self.judgement = Judgement(job, runtime)
        self.sample = Sample(compares_all, share)
        self._runtime, self._is_quiet = runtime, is_quiet
        self._chain_judge = self.enter_context(ChainJudge(job, runtime, graph))
        self._gpu_stack = self.enter_context(contextlib.ExitStack())

    # --- opening

    def open(self) -> None:
        """Open OpenCL's path if requested, otherwise or if that fails the CPU's.

        Raises: as `run`, if there is no fallback to the CPU.
        """
        gpu = None
        if self.job.opencl is not None:
            try:
                gpu = self.run(self.job)
                self.judgement = replace(self.judgement, gpu=gpu)
            except (DelegateFailed, NoDeviceError) as error:
                if self._runtime.why_not:  # there is no CPU fallback
                    raise
                self.give_up(error)
        path = gpu or self.open_substitute()
        self.judgement = replace(self.judgement, answer=path.outputs)

    def open_others(self) -> None:
        """Open the paths to compare OpenCL with, if any. Raises: KeyboardInterrupt: Ctrl-C."""
        gpu = self.judgement.gpu
        if gpu is None or not self.job.reference:
            return
        jobs = comparison_jobs(self.job, gpu.delegation, self._runtime, self.graph, self.floats)
        reasons = {} if REFERENCE in jobs else {REFERENCE: NOT_QUANTISED}
        is_judged = REFERENCE in jobs and GPU_JUDGED not in jobs
        beside = {GPU_JUDGED: gpu} if is_judged else {}
        self.judgement = replace(self.judgement, beside=beside, reasons=reasons)
        for name, job in jobs.items():
            whose = "reference" if name == REFERENCE else "CPU's"
            try:
                interrupts.check()
                with bars.waiting(f"running the {whose} kernels"):
                    beside = {**beside, name: self.run(job, is_beside=True)}
                self.judgement = replace(self.judgement, beside=beside)
                interrupts.check()
            except (RunError, DelegateFailed, NoDeviceError) as error:
                self._lose(name, error)
            except KeyboardInterrupt:
                ended = {each: ENDED for each in jobs if each not in beside}
                reasons = {**self.judgement.reasons, **ended}
                self.judgement = replace(self.judgement, reasons=reasons)
                raise

    def run(self, job: Job, is_beside: bool = False) -> Path:
        """Return a path that has run its job; `is_beside`: for comparison with OpenCL.

        Raises: RunError, DelegateFailed, NoDeviceError.
        """
        stack: contextlib.ExitStack = self
        if is_beside:
            # A sample is compared picture by picture; one run of the reference kernels is enough.
            is_cpu = job.opencl is None and job.cpu_kernels == self.job.cpu_kernels
            job = replace(job, batch=job.batch if is_cpu and self.sample.is_all else None)
        elif job.opencl is not None:
            stack = self._gpu_stack
            is_one = job.batch is None and several_devices(job.opencl.device)
            job = replace(job, batch=1) if is_one else job
        if is_beside and job.cpu_kernels == "reference":  # these kernels may abort their process
            opening = path_in_child(job)
        else:
            opening = open_path(job, self._runtime, self.graph)
        if job.is_timed:
            with opening as path:
                return path
        path = stack.enter_context(opening)
        path.warm_up(np.repeat(job.input, job.batch or 1, axis=0), job.warmup_runs)
        return path

    def open_substitute(self) -> Path:
        """Open the fallback path."""
        path = self.run(replace(self.job, opencl=None))
        self.judgement = replace(self.judgement, substitute=path)
        return path

    def _lose(self, name: str, error: Exception) -> None:
        """Continue without a path that OpenCL is compared with, and record why."""
        known, why = self.judgement, reason_of(error)
        why = f"{NO_REFERENCE}: {why}" if name == REFERENCE else why
        beside = {each: path for each, path in (known.beside or {}).items() if each != name}
        self.judgement = replace(known, beside=beside, reasons={**known.reasons, name: why})

    def give_up(self, error: DelegateFailed | NoDeviceError) -> None:
        """Continue without OpenCL, and record why."""
        log_error(error, self.job.verbose)
        who = f"{self.job.library} and the CPU run" if self.job.external else "the CPU runs"
        log.warning("%s the model instead", who)
        # Memory held by the failed run must not slow down the next one.
        traceback.clear_frames(error.__traceback__)
        self.judgement = replace(self.judgement, gave_up=reason_of(error), gpu=None)
        self._gpu_stack.close()

    # --- comparing

    def compare_one(self) -> None:
        """Run the one picture on the other paths; after Ctrl-C the CPU's times are those so far."""
        gpu = self.judgement.gpu
        if gpu is None or not self.job.reference:
            return
        self.judgement = replace(self.judgement, totals=Totals())
        try:
            self.open_others()
            (outcome,) = self.compare(self.job.input, [gpu.outputs])
        except KeyboardInterrupt:
            nothing = Difference(None, ENDED)
            totals = Totals(distances=Distances(nothing, nothing, nothing))
            self.judgement = replace(self.judgement, totals=totals)
            return
        self.count(outcome)
        self.judgement = replace(self.judgement, answer=outcome.outputs)

    def tune(self) -> None:
        """Tune the kernels if that is still to do, and run the picture once more.

        Ctrl-C only stops the tuning. Outputs that changed are compared, as by `compare_one`.
        """
        gpu, opencl, tuned = self.judgement.gpu, self.job.opencl, None
        if gpu is None or gpu.delegation is None or opencl is None or self.judgement.failure:
            return
        if interrupts.was_pressed() or not gpu.delegation.tuning_left or opencl.plan:
            return
        with interrupts.ending_here():
            try:
                full = replace(opencl, tune="full")
                tuned = self.run(replace(self.job, opencl=full, quiet=True))
            except (DelegateFailed, NoDeviceError) as error:
                log_error(error, self.job.verbose)
        if tuned is None or not tuned.outputs:
            return
        self.judgement = replace(self.judgement, answer=tuned.outputs, gpu=tuned, untuned=gpu)
        if not all(map(np.array_equal, tuned.outputs, gpu.outputs)):
            self.compare_one()

    def require_finite(self, outputs: Outputs) -> None:
        """Warn about NaN or infinite results."""
        self.complain(not_finite(outputs, self.graph.outputs))

    def complain(self, why: str, path: str = "") -> None:
        """Warn once about NaN or infinite results; of several pictures, about the first."""
        if why and self.judgement.is_finite and not self._is_quiet:
            self.judgement = replace(self.judgement, is_finite=False)
            log.error("%s", f"{path}: {why}" if path else why)

    def count(
        self, outcome: Outcome, decoding: float = 0.0, processes: int = 0, seconds: float = 0.0
    ) -> None:
        """Count a picture, as `Totals.plus`; warn about the first wrong OpenCL result."""
        totals = self.judgement.totals.plus(outcome, decoding, processes, seconds)
        self.judgement = replace(self.judgement, totals=totals)
        known = self.judgement
        if known.totals.wrong != 1 or outcome.distances is None or not outcome.is_wrong:
            return
        which = f" for {outcome.path}" if outcome.path else ""
        log.error("%s", outcome.distances.wrong_text(known.device_name, known.reference, which))
        if known.cpu is not None:
            log.warning("the results%s are the CPU's", " of such pictures" if which else "")
        if known.not_compared:
            log.warning("%s: from now on each one is", known.not_compared)

    def leave_out(self, why: str) -> None:
        """Warn about an excluded device that had run pictures nobody compared."""
        before = self.judgement.not_compared
        self.judgement = replace(self.judgement, left_out=f"{why}; {before}")
        log.error("%s", before)

    def compare(self, pixels: NDArray[Any], gpu: Sequence[Outputs]) -> list[Outcome]:
        """Return the outcomes of pictures; the CPU's outputs replace wrong ones of OpenCL."""
        known, begin_s = self.judgement, time.perf_counter()
        assert known.beside is not None
        done = {id(known.gpu): list(gpu)}
        found: dict[str, list[Outputs]] = {}
        for name, path in known.beside.items():
            try:
                if id(path) not in done:
                    done[id(path)] = path.run(pixels)
                found[name] = done[id(path)]
            except (RunError, DelegateFailed) as error:
                self._lose(name, error)
        outcomes, taken = [], known.gpu.delegation if known.gpu else None
        is_promised = not (taken and taken.others) and not self.job.allows_fp16
        shares = self._chain_judge.shares(taken, pixels)
        for number, ours in enumerate(gpu):
            theirs = {name: each[number] for name, each in found.items()}
            distances = distances_between(
                ours, theirs, self.judgement.reasons, self.graph,
                shares[number] if shares else None, is_promised=is_promised,
            )  # fmt: skip
            outcome = Outcome("", outputs=ours, distances=distances)
            is_ours = not outcome.is_wrong or CPU not in theirs
            outcomes.append(outcome if is_ours else replace(outcome, outputs=theirs[CPU]))
        self.sample.count(len(outcomes), time.perf_counter() - begin_s)
        totals = replace(self.judgement.totals, comparing_seconds=self.sample.seconds)
        self.judgement = replace(self.judgement, totals=totals)
        return outcomes
