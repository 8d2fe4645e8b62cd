# SPDX-License-Identifier: Apache-2.0
"""The jobs of the paths that OpenCL's is compared with. Opens only the reference kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from delegate.inspect import Graph
from label_image.compare import CPU, GPU_JUDGED, REFERENCE
from tflite_opencl.harness.job import Delegation, Job
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.oracle.judge import cpu_kernels_beside
from tflite_opencl.oracle.node_kernels import JUDGE, NoOracle


def comparison_jobs(
    job: Job, taken: Delegation | None, runtime: Runtime, graph: Graph, floats: bool
) -> dict[str, Job]:
    """Return the jobs, keyed by the names of compare.py.

    Without GPU_JUDGED, OpenCL's own path is compared. Without REFERENCE nothing is: the outputs
    are floats, which only `floats` compares.
    """
    assert taken is not None  # always set for OpenCL's path
    own = replace(job, quiet=True, profile_rows=0, traces=False)
    cpu = replace(own, opencl=None, external=None)
    dtypes = tuple(each.dtype for each in graph.outputs)
    if not floats and not any(d.startswith(("bool", "int", "uint")) for d in dtypes):
        return {CPU: cpu}
    times: dict[str, Any] = {"warmup_runs": 0, "count": 1, "longer_s": 0.0}
    # Reference kernels requested by the user run the CPU's nodes on both sides.
    is_left = job.cpu_kernels != "reference"
    left = tuple(verdict.node for verdict in taken.on_cpu if is_left)
    jobs = {CPU: cpu, REFERENCE: replace(cpu, cpu_kernels=JUDGE, left=left, **times)}
    if left and (kernels := _kernels_beside(job, runtime, graph)) != job.cpu_kernels:
        # Otherwise the CPU's nodes would add their own difference.
        jobs[GPU_JUDGED] = replace(own, cpu_kernels=kernels, **times)
    return jobs


def _kernels_beside(job: Job, runtime: Runtime, graph: Graph) -> str:
    """Return the kernels to run the CPU's nodes on in a comparison."""
    try:
        return cpu_kernels_beside(runtime, graph, job.model)
    except NoOracle:  # the reference path reports the reason
        return job.cpu_kernels
