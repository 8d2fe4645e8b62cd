# SPDX-License-Identifier: Apache-2.0
"""Many pictures through the paths of one run: decoded in child processes, classified in batches.

Memory does not grow with the number of pictures. Nothing is printed here.
"""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import Graph, NoDeviceError, several_devices
from label_image.batches import Batches, runs_in_order
from label_image.classify import warn_of_nothing_taken
from label_image.compare import Difference, difference, judged
from label_image.decoder import Format
from label_image.decoders import Decoders
from label_image.errors import DelegateFailed, RunError, log_error, reason_of
from label_image.interpreter import delegate_names, log_applied
from label_image.job import Job
from label_image.open_path import open_path
from label_image.outcome import Outcome, Totals
from label_image.path import OpenPath, Outputs, Run
from tflite_opencl.common.runtime import Runtime

log = logging.getLogger("label_image")

_CPU, _REFERENCE, _GPU_ON_REFERENCE = "cpu", "reference", "gpu on reference"


class Series:
    """The paths of a run over many pictures, as a context.

    Attributes:
        gpu: the OpenCL path; None: there is none, or it failed. totals: of all pictures so far.
    """

    def __init__(
        self,
        job: Job,
        runtime: Runtime,
        graph: Graph,
        batch: int | None = None,
        floats: bool = False,
    ) -> None:
        """`job.input`: what the paths are warmed up with; `job.reference`: compare all paths.

        `floats`: with the reference kernels even where all outputs are floats.
        """
        self._floats = floats
        self._job = job
        self._runtime = runtime
        self._graph = graph
        self._batch = batch
        self._stack = contextlib.ExitStack()
        self._gpu_stack = contextlib.ExitStack()
        # By name: the paths that OpenCL is compared with, or that run in its place; and for each
        # path that is missing, why it is.
        self._others: dict[str, OpenPath] = {}
        self._reasons: dict[str, str] = {}
        self._gave_up = ""
        self.gpu: OpenPath | None = None
        self.totals = Totals()

    @property
    def cpu(self) -> OpenPath | None:
        """The CPU's path, or an external delegate's."""
        return self._others.get(_CPU)

    @property
    def cpu_failure(self) -> str:
        """Why there is no CPU path to compare with."""
        return self._reasons.get(_CPU, "")

    @property
    def failure(self) -> str:
        """Why OpenCL did not do it, or did it wrongly; "" = nothing to complain of."""
        totals = self.totals
        if self._gave_up or not totals.wrong or totals.gpu_to_reference is None:
            return self._gave_up
        return (
            f"{self._device_name} computes wrongly: its outputs are up to "
            f"{totals.gpu_to_reference.quanta} quanta from TFLite's reference kernels, in "
            f"{totals.wrong} of {totals.classified} pictures"
        )

    @property
    def _device_name(self) -> str:
        return self.gpu.device_name if self.gpu else "the device"

    def __enter__(self) -> Series:
        """Open the paths; raises as open_path, where the CPU cannot take over."""
        with contextlib.ExitStack() as undo:
            undo.push(self._stack)
            self._stack.push(self._gpu_stack)
            if self._job.opencl is not None:
                try:
                    several = several_devices(self._job.opencl.device)
                    batch = self._batch or (1 if several else None)
                    self.gpu = self._opened(self._job, self._gpu_stack, batch)
                except (DelegateFailed, NoDeviceError) as error:
                    self._give_up(error)
            if self.gpu is None:
                self._open_cpu()
            elif self._job.reference:
                self._open_others(self.gpu)
            undo.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stack.close()

    def outcomes(self, paths: Iterable[str], format: Format) -> Generator[Outcome, None, None]:
        """Yield what comes of each picture, in order.

        Raises:
            RunError: the CPU cannot run the model. DecoderFailed: nothing can be decoded.
        """
        decoders = Decoders(paths, format)
        like = self._job.input
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
                        outcome = replace(next(classified), path=entry.path)
                    self.totals.decoding_seconds += entry.seconds
                    self.totals.processes = decoders.processes
                    self.totals.add(outcome)
                    if self.totals.wrong == 1 and outcome.is_wrong:
                        self._complain(outcome)
                    yield outcome

    def _opened(self, job: Job, stack: contextlib.ExitStack, batch: int | None) -> OpenPath:
        path = stack.enter_context(open_path(job, self._runtime, self._graph, batch))
        if not job.quiet:
            log_applied(delegate_names(job))
            if path.delegation is not None:
                warn_of_nothing_taken(path.delegation, self._graph)
        path.warm_up(np.repeat(job.input, batch or 1, axis=0), job.warmup_runs)
        return path

    def _open_cpu(self) -> OpenPath:
        job = replace(self._job, opencl=None)
        self._others[_CPU] = self._opened(job, self._stack, self._batch)
        return self._others[_CPU]

    def _open_others(self, gpu: OpenPath) -> None:
        """Open the paths that OpenCL is compared with; keep why one cannot be opened."""
        assert gpu.delegation is not None
        on_reference = self._job.cpu_kernels == "reference"
        own = replace(self._job, quiet=True)
        cpu = replace(own, opencl=None)
        once: dict[str, Any] = {"cpu_kernels": "reference", "warmup_runs": 0}
        jobs = {_CPU: cpu}
        dtypes = [tensor.dtype for tensor in self._graph.outputs]
        if not self._floats and not any(
            each.startswith(("bool", "int", "uint")) for each in dtypes
        ):
            self._reasons[_REFERENCE] = "the outputs are not quantised"
        else:
            if not on_reference:
                jobs[_REFERENCE] = replace(cpu, **once)
            # The CPU's part of the nodes would otherwise bring its own difference.
            if not on_reference and gpu.delegation.delegated < len(gpu.delegation.verdicts):
                jobs[_GPU_ON_REFERENCE] = replace(own, **once)
            else:
                self._others[_GPU_ON_REFERENCE] = gpu
        for name, job in jobs.items():
            batch = self._batch if name == _CPU else None
            try:
                self._others[name] = self._opened(job, self._stack, batch)
            except (RunError, DelegateFailed, NoDeviceError) as error:
                self._lose(name, error)
        if on_reference and _REFERENCE not in self._reasons and self.cpu is not None:
            self._others[_REFERENCE] = self.cpu

    def _together(self) -> int:
        """Count the batches to run before they are compared, so that no device runs meanwhile."""
        return max(1, len(self.gpu.portions)) if self.gpu and self._job.reference else 0

    def _started(self, pixels: NDArray[Any], listen: Callable[[], object]) -> Run | None:
        """Give OpenCL a batch; None: it is not OpenCL that will run it."""
        if self.gpu is None or not len(pixels):
            return None
        try:
            return self.gpu.start(pixels, listen)
        except DelegateFailed as error:
            self._give_up(error)
            return None

    def _classify(self, pixels: NDArray[Any], run: Run | None) -> list[Outcome]:
        done: dict[OpenPath, list[Outputs]] = {}
        while self.gpu is not None and run is not None:
            try:
                gpu = done[self.gpu] = run.outputs()
            except DelegateFailed as error:
                self._give_up(error)
                break
            if not self._job.reference:
                return [Outcome("", outputs=outputs) for outputs in gpu]
            others = self._run_others(pixels, done)
            outcomes = [self._compared(each, others, number) for number, each in enumerate(gpu)]
            if not self._is_to_run_again(run, outcomes):
                return outcomes
            run = self._started(pixels, lambda: None)
        cpu_path = self.cpu or self._open_cpu()
        return [Outcome("", outputs=outputs) for outputs in cpu_path.run(pixels)]

    def _is_to_run_again(self, run: Run, outcomes: Sequence[Outcome]) -> bool:
        """Whether one of several devices computed wrongly and another one can do it."""
        apart = [each.gpu_to_reference for each in outcomes if each.is_wrong]
        quanta = max((each.quanta or 0 for each in apart if each is not None), default=0)
        why = (
            f"it computes wrongly: its outputs are up to {quanta} quanta from TFLite's reference "
            "kernels"
        )
        return quanta > 0 and self.gpu is not None and self.gpu.gives_up(run.device, why)

    def _run_others(
        self, pixels: NDArray[Any], done: dict[OpenPath, list[Outputs]]
    ) -> dict[str, list[Outputs]]:
        outputs = {}
        for name, path in list(self._others.items()):
            try:
                if path not in done:
                    done[path] = path.run(pixels)
                outputs[name] = done[path]
            except (RunError, DelegateFailed) as error:
                del self._others[name]
                self._lose(name, error)
        return outputs

    def _compared(self, outputs: Outputs, others: dict[str, list[Outputs]], number: int) -> Outcome:
        def apart(ours: Outputs | None, names: Sequence[str]) -> Difference:
            # The last name is what they are compared with, and its reason is the telling one.
            theirs = others[names[-1]][number] if names[-1] in others else None
            reasons = (self._reasons.get(name, "") for name in reversed(names))
            return difference(ours, theirs, next(filter(None, reasons), ""))

        cpu, on_reference = (
            others[name][number] if name in others else None for name in (_CPU, _GPU_ON_REFERENCE)
        )
        outcome = Outcome(
            "",
            outputs=outputs,
            gpu_to_reference=judged(
                apart(on_reference, (_GPU_ON_REFERENCE, _REFERENCE)), self._graph
            ),
            cpu_to_reference=apart(cpu, (_CPU, _REFERENCE)),
            gpu_to_cpu=apart(outputs, (_CPU,)),
        )
        return replace(outcome, outputs=cpu) if outcome.is_wrong and cpu else outcome

    def _complain(self, outcome: Outcome) -> None:
        assert outcome.gpu_to_reference is not None
        log.error(
            "%s computes wrongly: its outputs for %s are up to %d quanta from TFLite's reference "
            "kernels",
            self._device_name, outcome.path, outcome.gpu_to_reference.quanta,
        )  # fmt: skip
        if self.cpu is not None:
            log.warning("the results of such pictures are the CPU's")

    def _lose(self, name: str, error: Exception) -> None:
        why = reason_of(error)
        if name == _REFERENCE:
            why = f"the reference kernels cannot run this model: {why}"
        self._reasons[name] = why

    def _give_up(self, error: DelegateFailed | NoDeviceError) -> None:
        """Go on without OpenCL."""
        log_error(error, self._job.verbose)
        log.warning("the CPU runs the model instead")
        self._gave_up, self.gpu = reason_of(error), None
        # The memory that the failed run holds must not slow down the next one.
        traceback.clear_frames(error.__traceback__)
        self._gpu_stack.close()
