# SPDX-License-Identifier: Apache-2.0
"""Runs many pictures through a run's paths. Prints nothing.

They are decoded in child processes and classified in batches; memory use does not depend on
their number.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from label_image.compare import FIRST, MOST, Outcome, Sample, Totals
from label_image.console import log_messages
from label_image.decoder import Format
from label_image.decoders import Batches, Decoders, Source, runs_in_order
from label_image.judgement import Judgement
from label_image.path import BatchRun
from label_image.paths import OpenPaths
from label_image.run_result import Array, Outputs
from tflite_opencl.console import interrupts
from tflite_opencl.console.errors import DelegateFailed, reason_of
from tflite_opencl.oracle.finite import not_finite

log = logging.getLogger("label_image")


class Series:
    """Runs many pictures through a run's open paths."""

    def __init__(
        self,
        paths: OpenPaths,
        *,
        compares_all: bool = True,
        share: float = MOST,
        is_quiet: bool = False,
    ) -> None:
        """`compares_all`: each picture, not a sample of them. `share`: as for `Sample`.

        `is_quiet`: the caller reports NaN and infinite results.
        """
        self._paths, self._is_quiet = paths, is_quiet
        self._sample = Sample(compares_all, share)
        self._totals = Totals()
        self._left_out = self._not_finite = ""  # as in Judgement

    @property
    def judgement(self) -> Judgement:
        """The verdict on all pictures so far."""
        totals = replace(self._totals, comparing_seconds=self._sample.seconds)
        return Judgement(
            self._paths.results, totals, left_out=self._left_out, not_finite=self._not_finite
        )

    @property
    def devices(self) -> int:
        """Number of OpenCL devices that run batches beside each other, at least 1."""
        return max(1, len(self._paths.gpu.portions)) if self._paths.gpu else 1

    def outcomes(
        self, paths: Iterable[str | None], format: Format
    ) -> Generator[Outcome, None, None]:
        """Yield each picture's outcome, in order. `paths`: as for `Decoders`.

        Raises: RunError: the CPU cannot run the model. DecoderFailed: no picture can be decoded.
        """
        return self.outcomes_of(Decoders(paths, format))

    def outcomes_of(
        self, source: Source, buffers: int | None = None
    ) -> Generator[Outcome, None, None]:
        """Yield each picture's outcome, in order; raises as `outcomes` and `source` do.

        Ctrl-C waits until the next one is asked for: what is counted is reported, too.
        `buffers`: number of batch buffers; None: enough to fill one while others run.
        """
        begin_s = time.perf_counter()
        job, gpu = self._paths.job, self._paths.gpu
        shape = (job.batch or len(job.input), *job.input.shape[1:])
        usual = partial(np.empty, shape, job.input.dtype)
        empty = (gpu and gpu.empty_batch) or usual
        count = buffers or 1 + (gpu.ahead if gpu else 1)
        with contextlib.closing(Batches(source, [empty() for _ in range(count)])) as batches:
            for batch, run in runs_in_order(batches, self._paths.start, self._together):
                classified = iter(self._classify(batch.pixels, run) if batch.count else ())
                for entry in batch.entries:
                    for warning in entry.warnings:
                        log.warning("%s: %s", entry.path, warning)
                    outcome = entry
                    if not entry.error:
                        outcome = replace(next(classified), path=entry.path, size=entry.size)
                        why = not_finite(outcome.outputs, self._paths.graph.outputs)
                        outcome = replace(outcome, not_finite=why)
                    spent_s = time.perf_counter() - begin_s
                    with interrupts.held():
                        self._count(outcome, entry.seconds, source.processes, spent_s)
                        yield outcome

    def _count(self, outcome: Outcome, decoding: float, processes: int, seconds: float) -> None:
        """Count a picture, as `Totals.plus`; warn about the first wrong and the first NaN."""
        self._totals = self._totals.plus(outcome, decoding, processes, seconds)
        if outcome.is_wrong:
            log_messages(self.judgement.wrong_messages(outcome.distances, outcome.path))
        if outcome.not_finite and not self._not_finite and not self._is_quiet:
            self._not_finite = outcome.not_finite
            log.error("%s: %s", outcome.path, outcome.not_finite)

    def _together(self) -> int:
        """Number of batches to run before comparing, so that no device runs meanwhile."""
        if self._paths.gpu is None or not self._paths.is_compared:
            return 0
        is_compared = self._sample.is_all or self._totals.classified < FIRST
        return self.devices if is_compared else 0

    def _classify(self, pixels: Array, run: BatchRun | None) -> list[Outcome]:
        """Return a batch's outcomes; `run`: of OpenCL, None: the CPU is to run it."""
        is_again = False
        while self._paths.gpu is not None and run is not None:
            try:
                gpu = self._paths.outputs_of(run)
            except DelegateFailed as error:
                run = self._repeat(pixels, error, is_again)
                is_again = True
                continue
            outcomes = self._batch_outcomes(pixels, gpu)
            if not self._is_to_run_again(run, outcomes):
                return outcomes
            run = self._paths.start(pixels, lambda: None)
        return [Outcome("", outputs=outputs) for outputs in self._paths.run_on_cpu(pixels)]

    def _repeat(self, pixels: Array, error: DelegateFailed, is_again: bool) -> BatchRun | None:
        """Retry a batch after a child process failed, or give up on OpenCL."""
        opencl = self._paths.job.opencl
        if is_again or opencl is None or not opencl.isolate:
            self._paths.give_up(error)
            return None
        log.warning("the run is repeated: %s", reason_of(error))
        return self._paths.start(pixels, lambda: None)

    def _batch_outcomes(self, pixels: Array, gpu: Sequence[Outputs]) -> list[Outcome]:
        """Return a batch's outcomes; if a sampled picture is wrong, the whole batch is compared."""
        outcomes = [Outcome("", outputs=outputs) for outputs in gpu]
        if not self._paths.is_compared:
            return outcomes
        sample = self._sample
        for number in () if sample.is_all else range(len(outcomes)):
            if sample.takes(self._totals.classified + number):
                one = slice(number, number + 1)
                outcomes[one] = self._compare(pixels[one], gpu[one])
                sample.is_all = outcomes[number].is_wrong
            if sample.is_all:
                break
        return self._compare(pixels, gpu) if sample.is_all else outcomes

    def _compare(self, pixels: Array, gpu: Sequence[Outputs]) -> list[Outcome]:
        """Return the outcomes of compared pictures, and count the time that takes."""
        begin_s = time.perf_counter()
        outcomes = self._paths.compare(pixels, gpu)
        self._sample.count(len(outcomes), time.perf_counter() - begin_s)
        return outcomes

    def _is_to_run_again(self, run: BatchRun, outcomes: Sequence[Outcome]) -> bool:
        """Whether one of several devices computed wrong results and another can take over."""
        compared = [each.distances for each in outcomes if each.distances]
        worst = max(compared, key=lambda each: each.wrong_by, default=None)
        if worst is None or not worst.wrong_by:
            return False
        judgement, device = self.judgement, run.piece.device if run.piece else None
        reference = judgement.results.reference
        if not self._paths.leave_out(device, worst.wrong_text("it", reference)):
            return False
        if judgement.not_compared and device is not None and not self._left_out:
            why = worst.wrong_text(device.name, reference)
            self._left_out = f"{why}; {judgement.not_compared}"
            log.error("%s", judgement.not_compared)
        return True
