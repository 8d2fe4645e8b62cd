# SPDX-License-Identifier: Apache-2.0
"""Pictures through a run's paths. Nothing is printed here.

One picture is a series of one, whose paths are timed on it. Many are decoded in child processes
and classified in batches; memory does not grow with their number.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import NoDeviceError
from label_image.compare import FIRST, Distances, Outcome, Totals
from label_image.console import log_error
from label_image.decoder import Format
from label_image.decoders import Batches, Decoders, Source, runs_in_order
from label_image.path import Outputs, Run
from label_image.paths import ENDED, Paths
from tflite_opencl.common import interrupts
from tflite_opencl.common.difference import Difference
from tflite_opencl.common.errors import DelegateFailed, reason_of
from tflite_opencl.common.exit_codes import NOT_SO, SUCCESS
from tflite_opencl.common.finite import not_finite

log = logging.getLogger("label_image")


class Series(Paths):
    """The paths of a run and its pictures, as a context."""

    _are_finite = True  # all results so far

    def exit_code(self) -> int:
        """Return the exit code of a run with results, of which some may be no numbers."""
        return super().exit_code() or (SUCCESS if self._are_finite else NOT_SO)

    def require_finite(self, outputs: Outputs) -> None:
        """Complain of results that are no numbers."""
        self._complain(not_finite(outputs, self._graph.outputs))

    def _complain(self, why: str, path: str = "") -> None:
        """Say once that results are no numbers; of several pictures, of the first such one."""
        if why and self._are_finite:
            self._are_finite = False
            log.error("%s", f"{path}: {why}" if path else why)

    # --- one picture

    def compare(self) -> None:
        """Run the one picture beside OpenCL, too; after Ctrl-C the CPU's times are those so far."""
        gpu = self.gpu
        if gpu is None or not self.job.reference:
            return
        self.totals = Totals()
        try:
            self.open_others()
            (outcome,) = self._compare(self.job.input, [gpu.outputs])
        except KeyboardInterrupt:
            nothing = Difference(None, ENDED)
            self.totals.distances = Distances(nothing, nothing, nothing)
            return
        self._count(outcome)
        self.answer = outcome.outputs

    def tune(self) -> None:
        """Measure which kernels are the fastest where that is left, and run the picture once more.

        Ctrl-C ends only that. Other outputs than before are compared, as by `compare`.
        """
        gpu, opencl, tuned = self.gpu, self.job.opencl, None
        if gpu is None or gpu.delegation is None or opencl is None or self.failure:
            return
        if interrupts.was_pressed() or not gpu.delegation.tuning_left or opencl.plan:
            return
        with interrupts.ending_here():
            try:
                full = replace(opencl, tune="full")
                tuned = self.opened(replace(self.job, opencl=full, quiet=True))
            except (DelegateFailed, NoDeviceError) as error:
                log_error(error, self.job.verbose)
        if tuned is None or not tuned.outputs:
            return
        self.answer, self.gpu, self.untuned = tuned.outputs, tuned, gpu
        if not all(map(np.array_equal, tuned.outputs, gpu.outputs)):
            self.compare()

    # --- many

    def outcomes(
        self, paths: Iterable[str | None], format: Format
    ) -> Generator[Outcome, None, None]:
        """Yield what comes of each picture, in order. `paths`: as of `Decoders`.

        Raises: RunError: the CPU cannot run the model. DecoderFailed: nothing can be decoded.
        """
        return self.outcomes_of(Decoders(paths, format))

    def outcomes_of(
        self, source: Source, buffers: int | None = None
    ) -> Generator[Outcome, None, None]:
        """Yield what comes of each picture, in order; raises as `outcomes`, and what `source` does.

        `buffers`: memory for so many batches; None: one is filled while others run.
        """
        begin_s = time.perf_counter()
        like = self.job.input
        usual = partial(np.empty, (self.job.batch or len(like), *like.shape[1:]), like.dtype)
        empty = (self.gpu and self.gpu.empty_batch) or usual
        count = buffers or 1 + (self.gpu.ahead if self.gpu else 1)
        with contextlib.closing(Batches(source, [empty() for _ in range(count)])) as batches:
            for batch, run in runs_in_order(batches, self._started, self._together):
                classified = iter(self._classify(batch.pixels, run) if batch.count else ())
                for entry in batch.entries:
                    for warning in entry.warnings:
                        log.warning("%s: %s", entry.path, warning)
                    outcome = entry
                    if not entry.error:
                        outcome = replace(next(classified), path=entry.path, size=entry.size)
                        why = not_finite(outcome.outputs, self._graph.outputs)
                        outcome = replace(outcome, not_finite=why)
                    self.totals.decoding_seconds += entry.seconds
                    self.totals.processes = source.processes
                    self._count(outcome)
                    self._complain(outcome.not_finite, outcome.path)
                    self.totals.seconds = time.perf_counter() - begin_s
                    yield outcome

    def _together(self) -> int:
        """Count the batches to run before they are compared, so that no device runs meanwhile."""
        if self.gpu is None or self.beside is None:
            return 0
        is_compared = self._sample.is_all or self.totals.classified < FIRST
        return max(1, len(self.gpu.portions)) if is_compared else 0

    def _started(self, pixels: NDArray[Any], listen: Callable[[], object]) -> Run | None:
        """Give OpenCL a batch; None: it is not OpenCL that will run it."""
        if self.gpu is None or not len(pixels):
            return None
        try:
            return self.gpu.start(pixels, listen)
        except DelegateFailed as error:
            self._give_up(error)
            return None

    def _repeat(self, pixels: NDArray[Any], error: DelegateFailed, is_again: bool) -> Run | None:
        """Run a batch again that a child process failed with, or give OpenCL up."""
        if is_again or self.job.opencl is None or not self.job.opencl.isolate:
            self._give_up(error)
            return None
        log.warning("the run is repeated: %s", reason_of(error))
        return self._started(pixels, lambda: None)

    def _classify(self, pixels: NDArray[Any], run: Run | None) -> list[Outcome]:
        is_again = False
        while self.gpu is not None and run is not None:
            try:
                gpu = run.outputs()
            except DelegateFailed as error:
                run = self._repeat(pixels, error, is_again)
                is_again = True
                continue
            outcomes = self._compared(pixels, gpu)
            if not self._is_to_run_again(run, outcomes):
                return outcomes
            run = self._started(pixels, lambda: None)
        cpu_path = self.cpu or self._open_instead()
        return [Outcome("", outputs=outputs) for outputs in cpu_path.run(pixels)]

    def _compared(self, pixels: NDArray[Any], gpu: Sequence[Outputs]) -> list[Outcome]:
        """Return what comes of a batch; if a sample of it is wrong, all of it is compared."""
        outcomes = [Outcome("", outputs=outputs) for outputs in gpu]
        if self.beside is None:
            return outcomes
        first = self.totals.classified
        for number in () if self._sample.is_all else range(len(outcomes)):
            if self._sample.takes(first + number):
                one = slice(number, number + 1)
                outcomes[one] = self._compare(pixels[one], gpu[one])
                self._sample.is_all = outcomes[number].is_wrong
            if self._sample.is_all:
                break
        return self._compare(pixels, gpu) if self._sample.is_all else outcomes

    def _is_to_run_again(self, run: Run, outcomes: Sequence[Outcome]) -> bool:
        """Whether one of several devices computed wrongly and another one can do it."""
        found = [each.distances for each in outcomes if each.distances]
        worst = max(found, key=lambda each: each.wrong_by, default=None)
        if worst is None or not worst.wrong_by or self.gpu is None:
            return False
        device, before = run.piece.device if run.piece else None, self._not_compared
        if not self.gpu.gives_up(device, worst.wrong_text("it", self.reference)):
            return False
        if before and device is not None and not self._left_out:
            self._left_out = f"{worst.wrong_text(device.name, self.reference)}; {before}"
            log.error("%s", before)
        return True
