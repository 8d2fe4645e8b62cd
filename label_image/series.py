# SPDX-License-Identifier: Apache-2.0
"""Runs many pictures through a run's paths. Prints nothing.

They are decoded in child processes and classified in batches; memory use does not depend on
their number.
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

from label_image.compare import FIRST, Outcome
from label_image.decoder import Format
from label_image.decoders import Batches, Decoders, Source, runs_in_order
from label_image.path import BatchRun, Outputs
from label_image.paths import Paths
from tflite_opencl.console.errors import DelegateFailed, reason_of
from tflite_opencl.oracle.finite import not_finite

log = logging.getLogger("label_image")


class Series:
    """Runs many pictures through a run's open paths."""

    def __init__(self, paths: Paths) -> None:
        self._paths, self._job = paths, paths.job

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

        `buffers`: number of batch buffers; None: enough to fill one while others run.
        """
        begin_s = time.perf_counter()
        like, gpu = self._job.input, self._paths.judgement.gpu
        usual = partial(np.empty, (self._job.batch or len(like), *like.shape[1:]), like.dtype)
        empty = (gpu and gpu.empty_batch) or usual
        count = buffers or 1 + (gpu.ahead if gpu else 1)
        with contextlib.closing(Batches(source, [empty() for _ in range(count)])) as batches:
            for batch, run in runs_in_order(batches, self._started, self._together):
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
                    self._paths.count(outcome, entry.seconds, source.processes, spent_s)
                    self._paths.complain(outcome.not_finite, outcome.path)
                    yield outcome

    def _together(self) -> int:
        """Number of batches to run before comparing, so that no device runs meanwhile."""
        known = self._paths.judgement
        if known.gpu is None or known.beside is None:
            return 0
        is_compared = self._paths.sample.is_all or known.totals.classified < FIRST
        return max(1, len(known.gpu.portions)) if is_compared else 0

    def _started(self, pixels: NDArray[Any], listen: Callable[[], object]) -> BatchRun | None:
        """Submit a batch to OpenCL; None: OpenCL will not run it."""
        gpu = self._paths.judgement.gpu
        if gpu is None or not len(pixels):
            return None
        try:
            return gpu.start(pixels, listen)
        except DelegateFailed as error:
            self._paths.give_up(error)
            return None

    def _repeat(
        self, pixels: NDArray[Any], error: DelegateFailed, is_again: bool
    ) -> BatchRun | None:
        """Retry a batch after a child process failed, or give up on OpenCL."""
        if is_again or self._job.opencl is None or not self._job.opencl.isolate:
            self._paths.give_up(error)
            return None
        log.warning("the run is repeated: %s", reason_of(error))
        return self._started(pixels, lambda: None)

    def _classify(self, pixels: NDArray[Any], run: BatchRun | None) -> list[Outcome]:
        is_again = False
        while self._paths.judgement.gpu is not None and run is not None:
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
        cpu_path = self._paths.judgement.cpu or self._paths.open_substitute()
        return [Outcome("", outputs=outputs) for outputs in cpu_path.run(pixels)]

    def _compared(self, pixels: NDArray[Any], gpu: Sequence[Outputs]) -> list[Outcome]:
        """Return a batch's outcomes; if a sampled picture is wrong, the whole batch is compared."""
        outcomes = [Outcome("", outputs=outputs) for outputs in gpu]
        sample, known = self._paths.sample, self._paths.judgement
        if known.beside is None:
            return outcomes
        for number in () if sample.is_all else range(len(outcomes)):
            if sample.takes(known.totals.classified + number):
                one = slice(number, number + 1)
                outcomes[one] = self._paths.compare(pixels[one], gpu[one])
                sample.is_all = outcomes[number].is_wrong
            if sample.is_all:
                break
        return self._paths.compare(pixels, gpu) if sample.is_all else outcomes

    def _is_to_run_again(self, run: BatchRun, outcomes: Sequence[Outcome]) -> bool:
        """Whether one of several devices computed wrong results and another can take over."""
        found = [each.distances for each in outcomes if each.distances]
        worst = max(found, key=lambda each: each.wrong_by, default=None)
        known = self._paths.judgement
        if worst is None or not worst.wrong_by or known.gpu is None:
            return False
        device = run.piece.device if run.piece else None
        if not known.gpu.gives_up(device, worst.wrong_text("it", known.reference)):
            return False
        if known.not_compared and device is not None and not known.left_out:
            self._paths.leave_out(worst.wrong_text(device.name, known.reference))
        return True
