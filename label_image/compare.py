# SPDX-License-Identifier: Apache-2.0
"""The OpenCL path beside the CPU's and TFLite's reference kernels. It formats nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import Graph
from label_image.classify import (
    DelegateFailed,
    Job,
    PathRun,
    RunError,
    reason_of,
    run_once,
    run_path,
)
from label_image.runtime import Runtime

Outputs = Sequence[NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Difference:
    """How far two paths' outputs are apart."""

    quanta: int | None  # the largest, in steps of the quantised values; None: not known
    reason: str = ""  # why it is not known


@dataclass(frozen=True, slots=True)
class Comparison:
    """The CPU's run of the same job, and the distances between the paths."""

    cpu: PathRun | None  # None: it failed
    cpu_failure: str
    gpu_to_reference: Difference
    cpu_to_reference: Difference
    gpu_to_cpu: Difference


def compare(job: Job, gpu: PathRun, runtime: Runtime, graph: Graph) -> Comparison:
    """Run the job that gave `gpu` on the CPU and on the reference kernels, and compare."""
    cpu_job = replace(job, opencl=None, reference=False, profile_rows=0, quiet=True)
    cpu, cpu_failure = None, ""
    try:
        cpu = run_path(cpu_job, runtime, graph)
    except (RunError, DelegateFailed) as error:
        cpu_failure = reason_of(error)

    reference, reference_failure = _reference(cpu_job, cpu, gpu, runtime)
    cpu_outputs = cpu.outputs if cpu else None
    delegation = gpu.delegation
    assert delegation is not None
    return Comparison(
        cpu=cpu,
        cpu_failure=cpu_failure,
        gpu_to_reference=difference(
            delegation.reference_outputs,
            reference,
            reference_failure or delegation.reference_failure,
        ),
        cpu_to_reference=difference(cpu_outputs, reference, reference_failure or cpu_failure),
        gpu_to_cpu=difference(gpu.outputs, cpu_outputs, cpu_failure),
    )


def _reference(
    cpu_job: Job, cpu: PathRun | None, gpu: PathRun, runtime: Runtime
) -> tuple[Outputs | None, str]:
    if not any(is_quantised(output) for output in gpu.outputs):
        return None, "the outputs are not quantised"
    if cpu_job.cpu_kernels == "reference" and cpu is not None:
        return cpu.outputs, ""
    try:
        return run_once(replace(cpu_job, cpu_kernels="reference"), runtime), ""
    except RunError as error:
        return None, f"the reference kernels cannot run this model: {reason_of(error)}"


def difference(ours: Outputs | None, theirs: Outputs | None, reason: str) -> Difference:
    """Return how far two outputs are apart; `reason`: why one of them is not there."""
    if ours is None or theirs is None:
        return Difference(None, reason)
    if [output.shape for output in ours] != [output.shape for output in theirs]:
        return Difference(None, "the outputs have different shapes")
    distances = [
        int(np.abs(one.astype(np.int64) - other.astype(np.int64)).max(initial=0))
        for one, other in zip(ours, theirs, strict=True)
        if is_quantised(one)
    ]
    if not distances:
        return Difference(None, "the outputs are not quantised")
    return Difference(max(distances))


def is_quantised(output: NDArray[Any]) -> bool:
    """Whether differences of this output are counted in quanta."""
    return output.dtype.kind in "iu"
