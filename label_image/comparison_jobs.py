# SPDX-License-Identifier: Apache-2.0
"""The jobs of the paths that OpenCL's is compared with. Nothing is opened here but a judge."""

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
    """Return the jobs by the names of compare.py.

    Without GPU_JUDGED OpenCL's own path is what is judged. Without REFERENCE nothing is: the
    outputs are floats, which `floats` has compared all the same.
    """
    assert taken is not None  # OpenCL's path has one
    own = replace(job, quiet=True, profile_rows=0, traces=False)
    cpu = replace(own, opencl=None, external=None)
    dtypes = tuple(each.dtype for each in graph.outputs)
    if not floats and not any(d.startswith(("bool", "int", "uint")) for d in dtypes):
        return {CPU: cpu}
    times: dict[str, Any] = {"warmup_runs": 0, "count": 1, "longer_s": 0.0}
    # Reference kernels that somebody asked for run the CPU's part on both sides.
    is_left = job.cpu_kernels != "reference"
    left = tuple(verdict.node for verdict in taken.on_cpu if is_left)
    jobs = {CPU: cpu, REFERENCE: replace(cpu, cpu_kernels=JUDGE, left=left, **times)}
    if left and (kernels := _kernels_beside(job, runtime, graph)) != job.cpu_kernels:
        # The CPU's part of the nodes would otherwise bring its own difference.
        jobs[GPU_JUDGED] = replace(own, cpu_kernels=kernels, **times)
    return jobs


def _kernels_beside(job: Job, runtime: Runtime, graph: Graph) -> str:
    """Return the kernels on which the CPU's part can be judged."""
    try:
        return cpu_kernels_beside(runtime, graph, job.model)
    except NoOracle:  # the judge's own path tells why
        return job.cpu_kernels
