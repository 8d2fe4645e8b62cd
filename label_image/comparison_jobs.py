# SPDX-License-Identifier: Apache-2.0
"""The jobs of the paths that OpenCL's is compared with. Opens only the reference kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from delegate import NoDeviceError
from delegate.inspect import Graph
from label_image.compare import CPU, GPU_JUDGED, NO_REFERENCE, REFERENCE
from label_image.judgement import ENDED, PathResults
from tflite_opencl.console import bars, interrupts
from tflite_opencl.console.errors import DelegateFailed, RunError, reason_of
from tflite_opencl.harness.job import Job
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.oracle.difference import NOT_QUANTISED
from tflite_opencl.oracle.judge import cpu_kernels_beside
from tflite_opencl.oracle.node_kernels import JUDGE, NoOracle


def run_comparison(
    results: PathResults, floats: bool, run: Callable[[str, Job], object]
) -> PathResults:
    """Run or open what OpenCL's path is compared with; return why paths are missing.

    `run`: called with a path's name and job; raises RunError, DelegateFailed or NoDeviceError.
    `floats`: as for `comparison_jobs`.
    """
    reasons: dict[str, str] = {}
    pending, is_interrupted = {CPU, REFERENCE}, False
    try:
        jobs = comparison_jobs(results, floats)  # may start the judge's process
        reasons = {} if REFERENCE in jobs else {REFERENCE: NOT_QUANTISED}
        pending = {*jobs}
        for name, job in jobs.items():
            whose = "reference" if name == REFERENCE else "CPU's"
            try:
                interrupts.check()
                with bars.waiting(f"running the {whose} kernels"):
                    run(name, job)
                pending.remove(name)
                interrupts.check()
            except (RunError, DelegateFailed, NoDeviceError) as error:
                reasons[name] = why_missing(name, error)
    except KeyboardInterrupt:
        is_interrupted = True
        reasons |= dict.fromkeys(pending, ENDED)
    return replace(results, reasons=reasons, is_interrupted=is_interrupted)


def why_missing(name: str, error: Exception) -> str:
    """Return the reason why a path of this name is missing."""
    why = reason_of(error)
    return f"{NO_REFERENCE}: {why}" if name == REFERENCE else why


def comparison_jobs(results: PathResults, floats: bool) -> dict[str, Job]:
    """Return the jobs, keyed by the names of compare.py.

    Without GPU_JUDGED, OpenCL's own path is compared. Without REFERENCE nothing is: the outputs
    are floats, which only `floats` compares.
    """
    job, graph = results.job, results.graph
    assert results.gpu is not None
    taken = results.gpu.delegation
    assert taken is not None  # always set for OpenCL's path
    quiet = job.unreported()
    cpu = replace(quiet, opencl=None, external=None)
    dtypes = tuple(each.dtype for each in graph.outputs)
    if not floats and not any(d.startswith(("bool", "int", "uint")) for d in dtypes):
        return {CPU: cpu}
    times: dict[str, Any] = {"warmup_runs": 0, "count": 1, "longer_s": 0.0}
    # Reference kernels requested by the user run the CPU's nodes on both sides.
    is_apart = job.cpu_kernels != "reference"
    on_cpu = tuple(verdict.node for verdict in taken.on_cpu if is_apart)
    jobs = {CPU: cpu, REFERENCE: replace(cpu, cpu_kernels=JUDGE, left=on_cpu, **times)}
    if on_cpu:
        kernels = _kernels_beside(job, results.runtime, graph)
        if kernels != job.cpu_kernels:
            # Otherwise the CPU's nodes would add their own difference.
            jobs[GPU_JUDGED] = replace(quiet, cpu_kernels=kernels, **times)
    return jobs


def _kernels_beside(job: Job, runtime: Runtime, graph: Graph) -> str:
    """Return the kernels to run the CPU's nodes on in a comparison."""
    try:
        return cpu_kernels_beside(runtime, graph, job.model)
    except NoOracle:  # the reference path reports the reason
        return job.cpu_kernels
