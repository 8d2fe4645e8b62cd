# SPDX-License-Identifier: Apache-2.0
"""Many pictures through the paths of one run: decoded in child processes, classified in batches.

Memory does not grow with the number of pictures. Nothing is printed here.
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
from delegate.inspect import Graph, several_devices
from label_image.batches import Batches, runs_in_order
from label_image.classify import warn_of_nothing_taken
from label_image.compare import wrong_text
from label_image.decoder import Format
from label_image.decoders import Decoders
from label_image.open_path import open_path
from label_image.path import OpenPath, Outputs, Run
from label_image.paths import Outcome, Paths
from label_image.worker import path_in_child
from tflite_opencl.common.errors import DelegateFailed
from tflite_opencl.common.job import Job
from tflite_opencl.common.open_job import delegate_names, log_applied
from tflite_opencl.common.runtime import Runtime

log = logging.getLogger("label_image")

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


class Series(Paths[OpenPath]):
    """The paths of a run over many pictures, as a context."""

    def __init__(
        self,
        job: Job,
        runtime: Runtime,
        graph: Graph,
        batch: int | None = None,
        floats: bool = False,
        compares_all: bool = True,
        limit_s: float = 0.0,
    ) -> None:
        """`job.input`: what the paths are warmed up with. `floats`: as of Paths.

        `compares_all`: each picture, not a sample of them. `limit_s`: of OpenCL's start and of each
        batch, which are in a child process then.
        """
        super().__init__(job, graph)
        self.floats = floats
        self._runtime = runtime
        self._batch = batch
        self._sample = Sample(compares_all)
        self._limit_s = limit_s
        self._stack = contextlib.ExitStack()
        self._gpu_stack = contextlib.ExitStack()
        self._left_out = ""  # one of several devices that gave pictures which nobody compared

    @property
    def is_sample(self) -> bool:
        """Whether some pictures were classified by OpenCL and not compared, but others were."""
        return 0 < self.totals.compared < self.totals.classified

    @property
    def where(self) -> str:
        """Say in how many pictures OpenCL computed wrongly."""
        totals = self.totals
        sample = " that were compared" if self.is_sample else ""
        return f", in {totals.wrong} of {totals.compared} pictures{sample}"

    @property
    def failure(self) -> str:
        """Why OpenCL did not do it, or did it wrongly; "" = nothing to complain of."""
        return self._gave_up or self._left_out or super().failure

    @property
    def _device_name(self) -> str:
        return self.gpu.device_name if self.gpu else "the device"

    def __enter__(self) -> Series:
        """Open the paths; raises as `open`."""
        with contextlib.ExitStack() as undo:
            undo.push(self._stack)
            self._stack.push(self._gpu_stack)
            self.open()
            self.open_others()
            undo.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stack.close()

    def outcomes(self, paths: Iterable[str], format: Format) -> Generator[Outcome, None, None]:
        """Yield what comes of each picture, in order.

        Raises:
            RunError: the CPU cannot run the model. DecoderFailed: nothing can be decoded.
        """
        begin_s = time.perf_counter()
        decoders = Decoders(paths, format)
        like = self.job.input
        empty = self.gpu.empty_batch if self.gpu is not None else None
        if empty is None:
            empty = partial(np.empty, (self._batch or 1, *like.shape[1:]), like.dtype)
        # One is filled while others run.
        buffers = [empty() for _ in range(1 + (self.gpu.ahead if self.gpu else 1))]
        with contextlib.closing(Batches(decoders, buffers)) as batches:
            for batch, run in runs_in_order(batches, self._started, self._together):
                classified = iter(self._classify(batch.pixels, run) if batch.count else ())
                for entry in batch.entries:
                    for warning in entry.warnings:
                        log.warning("%s: %s", entry.path, warning)
                    outcome = Outcome(entry.path, entry.error)
                    if not entry.error:
                        outcome = replace(next(classified), path=entry.path, size=entry.size)
                    self.totals.decoding_seconds += entry.seconds
                    self.totals.processes = decoders.processes
                    self.totals.add(outcome)
                    if self.totals.wrong == 1 and outcome.is_wrong:
                        self.complain(outcome)
                    self.totals.seconds = time.perf_counter() - begin_s
                    yield outcome

    def opened(self, job: Job, is_beside: bool = False) -> OpenPath:
        """Return a job's path, which has run."""
        batch, stack = self._batch, self._stack
        if is_beside:
            # A sample is compared picture by picture; the reference kernels run once either way.
            is_cpu = job.opencl is None and job.cpu_kernels == self.job.cpu_kernels
            batch = batch if is_cpu and self._sample.is_all else None
        elif job.opencl is not None:
            stack = self._gpu_stack
            batch = batch or (1 if several_devices(job.opencl.device) else None)
        if job.opencl is not None and self._limit_s:
            path = stack.enter_context(path_in_child(job, batch, self._limit_s))
        else:
            path = stack.enter_context(open_path(job, self._runtime, self._graph, batch))
        if not job.quiet:
            log_applied(delegate_names(job))
            if path.delegation is not None:
                warn_of_nothing_taken(path.delegation, self._graph)
        path.warm_up(np.repeat(job.input, batch or 1, axis=0), job.warmup_runs)
        return path

    def _together(self) -> int:
        """Count the batches to run before they are compared, so that no device runs meanwhile."""
        if self.gpu is None or self._beside is None:
            return 0
        is_compared = self._sample.is_all or self._sample.is_start(self.totals.classified)
        return max(1, len(self.gpu.portions)) if is_compared else 0

    def _started(self, pixels: NDArray[Any], listen: Callable[[], object]) -> Run | None:
        """Give OpenCL a batch; None: it is not OpenCL that will run it."""
        if self.gpu is None or not len(pixels):
            return None
        try:
            return self.gpu.start(pixels, listen)
        except DelegateFailed as error:
            self.give_up(error)
            return None

    def _classify(self, pixels: NDArray[Any], run: Run | None) -> list[Outcome]:
        while self.gpu is not None and run is not None:
            try:
                gpu = run.outputs()
            except DelegateFailed as error:
                self.give_up(error)
                break
            outcomes = self._compared(pixels, gpu)
            if not self._is_to_run_again(run, outcomes):
                return outcomes
            run = self._started(pixels, lambda: None)
        cpu_path = self.cpu or self.open_instead()
        return [Outcome("", outputs=outputs) for outputs in cpu_path.run(pixels)]

    def _compared(self, pixels: NDArray[Any], gpu: Sequence[Outputs]) -> list[Outcome]:
        """Return what comes of a batch; if a sample of it is wrong, all of it is compared."""
        outcomes = [Outcome("", outputs=outputs) for outputs in gpu]
        if self._beside is None:
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

    def _compare(self, pixels: NDArray[Any], gpu: Sequence[Outputs]) -> list[Outcome]:
        begin_s = time.perf_counter()
        outcomes = self.compared(pixels, gpu)
        self._sample.count(len(outcomes), time.perf_counter() - begin_s)
        self.totals.comparing_seconds = self._sample.seconds
        return outcomes

    def _is_to_run_again(self, run: Run, outcomes: Sequence[Outcome]) -> bool:
        """Whether one of several devices computed wrongly and another one can do it."""
        quanta = max((each.distances.wrong_by for each in outcomes if each.distances), default=0)
        if not quanta or self.gpu is None:
            return False
        device, before = run.device, self._not_compared
        if not self.gpu.gives_up(device, wrong_text("it", quanta)):
            return False
        if before and device is not None and not self._left_out:
            self._left_out = f"{wrong_text(device.name, quanta)}; {before}"
            log.error("%s", before)
        return True

    @property
    def _not_compared(self) -> str:
        """Say how many pictures were classified and not compared; "": none."""
        count = self.totals.classified - self.totals.compared
        return f"{count} pictures before were not compared" if count else ""

    def complain(self, outcome: Outcome) -> None:
        """Say that OpenCL computed wrongly, and what was not compared before."""
        super().complain(outcome)
        if self._not_compared:
            log.warning("%s: from now on each one is", self._not_compared)

    def give_up(self, error: DelegateFailed | NoDeviceError) -> None:
        """Go on without OpenCL."""
        super().give_up(error)
        self._gpu_stack.close()
