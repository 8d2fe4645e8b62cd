# SPDX-License-Identifier: Apache-2.0
"""A run's open paths for many pictures: OpenCL's, the CPU's as its fallback, and those beside."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from delegate import DeviceInfo, NoDeviceError
from delegate.inspect import Graph, several_devices
from label_image.chain import ChainJudge
from label_image.compare import CPU, Outcome
from label_image.comparison_jobs import run_comparison, why_missing
from label_image.console import log_fallback
from label_image.judgement import PathResults
from label_image.open_path import open_path
from label_image.path import BatchRun, OpenPath
from label_image.run_result import Array, Outputs, RunResult
from label_image.worker import path_in_child
from tflite_opencl.console.errors import DelegateFailed, RunError, reason_of
from tflite_opencl.harness.job import Job
from tflite_opencl.interpreters.runtime import Runtime

_GPU, _SUBSTITUTE = "gpu", "substitute"  # names beside compare.py's


@contextlib.contextmanager
def open_paths(
    job: Job, runtime: Runtime, graph: Graph, *, floats: bool = False, compares_all: bool = True
) -> Iterator[OpenPaths]:
    """Yield a run's paths: OpenCL's if requested, otherwise or if that fails the CPU's.

    `job.input`: the warm-up input. `floats`: compare with the reference kernels even if all outputs
    are floats. `compares_all`: each picture will be compared, not a sample.
    Raises: RunError, and DelegateFailed or NoDeviceError if there is no fallback to the CPU.
    """
    with contextlib.ExitStack() as stack:
        paths = OpenPaths(stack, job, runtime, graph)
        paths.open_first()
        if paths.gpu is not None and job.reference:
            paths.open_beside(floats, compares_all)
        yield paths


class OpenPaths:
    """The open paths, and the sums of what they gave; see `open_paths`.

    Attributes:
        gpu: OpenCL's; None: there is none, or it failed. is_compared: there are paths beside it.
    """

    def __init__(
        self, stack: contextlib.ExitStack, job: Job, runtime: Runtime, graph: Graph
    ) -> None:
        self.job, self._runtime, self.graph = job, runtime, graph
        self.is_compared = False
        self._open: dict[str, OpenPath] = {}
        self._sums: dict[str, RunResult] = {}
        self._reasons: Mapping[str, str] = {}
        self._gave_up = ""
        self._stack = stack
        self._chain_judge = stack.enter_context(ChainJudge(job, runtime, graph))
        self._gpu_stack = stack.enter_context(contextlib.ExitStack())

    @property
    def gpu(self) -> OpenPath | None:
        return self._open.get(_GPU)

    @property
    def results(self) -> PathResults:
        """What the paths gave so far."""
        sums = {
            name: replace(self._sums[name], portions=path.portions)
            for name, path in self._open.items()
        }
        gpu, substitute = sums.pop(_GPU, None), sums.pop(_SUBSTITUTE, None)
        return PathResults(
            self.job, self._runtime, self.graph, gpu, sums if self.is_compared else None,
            self._reasons, substitute, gave_up=self._gave_up,
        )  # fmt: skip

    # --- opening

    def open_first(self) -> None:
        """Open OpenCL's path if requested, otherwise or if that fails the CPU's."""
        job, opencl = self.job, self.job.opencl
        if opencl is not None:
            try:
                if job.batch is None and several_devices(opencl.device):
                    job = replace(job, batch=1)
                self._add(_GPU, job, self._gpu_stack)
                return
            except (DelegateFailed, NoDeviceError) as error:
                if self._runtime.why_not:  # there is no CPU fallback
                    raise
                self.give_up(error)
        self._add(_SUBSTITUTE, replace(self.job, opencl=None))

    def open_beside(self, floats: bool, compares_all: bool) -> None:
        """Open the paths that OpenCL's is compared with."""

        def add(name: str, job: Job) -> None:
            # A sample is compared picture by picture; one run of the reference kernels is enough.
            is_cpu = job.opencl is None and job.cpu_kernels == self.job.cpu_kernels
            self._add(name, replace(job, batch=job.batch if is_cpu and compares_all else None))

        results = run_comparison(self.results, floats, add)
        if results.is_interrupted:
            raise KeyboardInterrupt
        self.is_compared, self._reasons = True, results.reasons

    def _add(self, name: str, job: Job, stack: contextlib.ExitStack | None = None) -> None:
        """Open a path and run its warm-up runs; it is closed with the stack, or in the end."""
        # TFLite's reference kernels may abort their process.
        is_apart = name not in (_GPU, _SUBSTITUTE) and job.cpu_kernels == "reference"
        context = path_in_child(job) if is_apart else open_path(job, self._runtime, self.graph)
        path = (stack or self._stack).enter_context(context)
        path.warm_up(np.repeat(job.input, job.batch or 1, axis=0), job.warmup_runs)
        self._open[name], self._sums[name] = path, path.facts

    def give_up(self, error: DelegateFailed | NoDeviceError) -> None:
        """Continue without OpenCL, and record why."""
        log_fallback(error, self.job)
        self._gave_up = reason_of(error)
        self._open.pop(_GPU, None)
        self._gpu_stack.close()

    # --- running

    def start(self, pixels: Array, listen: Callable[[], object]) -> BatchRun | None:
        """Submit a batch to OpenCL; None: OpenCL will not run it. `listen`: as OpenPath.start."""
        if self.gpu is None or not len(pixels):
            return None
        try:
            return self.gpu.start(pixels, listen)
        except DelegateFailed as error:
            self.give_up(error)
            return None

    def outputs_of(self, run: BatchRun) -> Sequence[Outputs]:
        """Return the outputs of a batch on OpenCL. Raises: DelegateFailed."""
        result = run.result()
        self._sums[_GPU] = self._sums[_GPU].plus(result)
        return result.outputs

    def run_on_cpu(self, pixels: Array) -> Sequence[Outputs]:
        """Return the CPU's outputs of a batch. Raises: RunError: it cannot run the model."""
        if _SUBSTITUTE not in self._open and CPU not in self._open:
            self._add(_SUBSTITUTE, replace(self.job, opencl=None))
        return self._run(_SUBSTITUTE if _SUBSTITUTE in self._open else CPU, pixels)

    def compare(self, pixels: Array, gpu: Sequence[Outputs]) -> list[Outcome]:
        """Run the paths beside OpenCL's, and return the outcomes of pictures."""
        beside: dict[str, Sequence[Outputs]] = {}
        for name in [name for name in self._open if name not in (_GPU, _SUBSTITUTE)]:
            try:
                beside[name] = self._run(name, pixels)
            except (RunError, DelegateFailed) as error:
                del self._open[name]
                self._reasons = {**self._reasons, name: why_missing(name, error)}
        results = self.results
        taken = results.gpu.delegation if results.gpu else None
        shares = self._chain_judge.shares(taken, pixels)
        return [
            results.outcome(
                ours,
                {name: outputs[number] for name, outputs in beside.items()},
                shares[number] if shares else None,
            )
            for number, ours in enumerate(gpu)
        ]

    def leave_out(self, device: DeviceInfo | None, why: str) -> bool:
        """Stop using one of several devices, if another one is left; return whether it did."""
        return self.gpu is not None and self.gpu.gives_up(device, why)

    def _run(self, name: str, pixels: Array) -> Sequence[Outputs]:
        result = self._open[name].run(pixels)
        self._sums[name] = self._sums[name].plus(result)
        return result.outputs
