# SPDX-License-Identifier: Apache-2.0
"""Runs one picture on a run's paths: OpenCL's or the CPU's, those beside it, and OpenCL's tuned."""

from __future__ import annotations

from dataclasses import replace

from delegate import NoDeviceError
from delegate.inspect import Graph
from label_image.chain import ChainJudge
from label_image.comparison_jobs import run_comparison
from label_image.console import log_error, log_fallback
from label_image.judgement import PathResults
from label_image.run_result import RunResult
from label_image.timed_run import run
from label_image.worker import run_in_child
from tflite_opencl.console import interrupts
from tflite_opencl.console.errors import DelegateFailed, reason_of
from tflite_opencl.harness.job import Job
from tflite_opencl.interpreters.runtime import Runtime


def run_first(job: Job, runtime: Runtime, graph: Graph) -> PathResults:
    """Run OpenCL's path if requested, otherwise or if that fails the CPU's.

    Raises: as `run`, if there is no fallback to the CPU.
    """
    results = PathResults(job, runtime, graph)
    if job.opencl is not None:
        try:
            return replace(results, gpu=run(job, runtime, graph))
        except (DelegateFailed, NoDeviceError) as error:
            if runtime.why_not:  # there is no CPU fallback
                raise
            log_fallback(error, job)
            results = replace(results, gave_up=reason_of(error))
    return replace(results, substitute=run(replace(job, opencl=None), runtime, graph))


def run_beside(results: PathResults, floats: bool) -> PathResults:
    """Add the results of the paths that OpenCL's is compared with, if it is to be compared.

    `floats`: compare with the reference kernels even if all outputs are floats. After Ctrl-C the
    CPU's times are those so far.
    """
    job, gpu = results.job, results.gpu
    if gpu is None or not job.reference:
        return results
    runtime, graph = results.runtime, results.graph
    beside: dict[str, RunResult] = {}

    def add(name: str, job: Job) -> None:
        # TFLite's reference kernels may abort their process.
        is_apart = job.cpu_kernels == "reference"
        beside[name] = run_in_child(job) if is_apart else run(job, runtime, graph)

    results = replace(run_comparison(results, floats, add), beside=beside, shares=None)
    if results.is_interrupted:
        return results
    try:
        with ChainJudge(job, runtime, graph) as chain:
            shares = chain.shares(gpu.delegation, job.input)
    except KeyboardInterrupt:
        return replace(results, is_interrupted=True)
    return replace(results, shares=shares[0] if shares else None)


def run_tuned(results: PathResults) -> RunResult | None:
    """Tune OpenCL's kernels if that is still to do, and run the picture once more.

    None: there is nothing to tune, or no result: Ctrl-C only stops the tuning.
    """
    job, gpu, opencl = results.job, results.gpu, results.job.opencl
    if gpu is None or gpu.delegation is None or opencl is None:
        return None
    if interrupts.was_pressed() or not gpu.delegation.tuning_left or opencl.plan:
        return None
    tuned = None
    with interrupts.ending_here():
        try:
            full = replace(job, opencl=replace(opencl, tune="full"), is_silent=True)
            tuned = run(full, results.runtime, results.graph)
        except (DelegateFailed, NoDeviceError) as error:
            log_error(error, job.verbose)
    return tuned if tuned and tuned.outputs else None
