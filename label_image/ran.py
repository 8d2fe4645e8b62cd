# SPDX-License-Identifier: Apache-2.0
"""One job on all its paths: on OpenCL or in its place, beside it for a comparison, and tuned."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from delegate import NoDeviceError
from delegate.inspect import Graph
from label_image.classify import PathRun
from label_image.compare import Difference, Distances, wrong_text
from label_image.errors import DelegateFailed, gave_up, log_error
from label_image.job import Job
from label_image.others import Others
from tflite_opencl.common import bars, interrupts

ENDED = "Ctrl-C ended the run before"

log = logging.getLogger("label_image")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The CPU's run of the same job, and the distances between the paths."""

    cpu: PathRun | None  # None: it failed
    cpu_failure: str
    distances: Distances


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a job."""

    run: PathRun  # whose results are shown; after Ctrl-C it has no outputs
    gpu: PathRun | None  # None: OpenCL was not asked for, or failed
    comparison: Comparison | None  # None: not asked for
    failure: str  # why OpenCL did not do it, or did it wrongly; "" = nothing to complain of
    untuned: PathRun | None = None  # OpenCL's run before, where `gpu` was tuned after it


def run_job(job: Job, run: Callable[[Job], PathRun]) -> Ran:
    """Run the job on OpenCL where it asks for that, else or where that fails on the CPU.

    `run`: gives the run of a path. Raises: as `run`, where the CPU cannot take over.
    """
    gpu, failure = None, ""
    if job.opencl is not None:
        try:
            gpu = run(job)
        except (DelegateFailed, NoDeviceError) as error:
            failure = gave_up(error, job.verbose)
    return Ran(gpu or run(replace(job, opencl=None)), gpu, None, failure)


def compare_job(
    job: Job, ran: Ran, run: Callable[[Job], PathRun], graph: Graph, floats: bool
) -> Ran:
    """Run the job beside OpenCL, too; the CPU's results count where OpenCL's are wrong.

    After Ctrl-C nothing is compared, and the CPU's times are those so far.
    `run`: as in run_job. `floats`: run the reference kernels for float outputs alone, too.
    """
    gpu = ran.gpu
    if gpu is None or not job.reference:
        return ran
    cpu: PathRun | None = None

    def beside(other: Job) -> PathRun:
        nonlocal cpu
        kernels = "reference" if other.cpu_kernels == "reference" else "CPU's"
        with bars.waiting(f"running the {kernels} kernels"):
            done = run(other)
        if other.opencl is None and other.cpu_kernels == job.cpu_kernels:
            cpu = done
        interrupts.check()
        return done

    try:
        interrupts.check()
        others = Others(job, gpu, graph, floats, beside)
        ((distances, _),) = others.compare(job.input, gpu, [gpu.outputs])
    except KeyboardInterrupt:
        nothing = Difference(None, ENDED)
        distances = Distances(nothing, nothing, nothing)
        return replace(ran, comparison=Comparison(cpu, "" if cpu else ENDED, distances))
    ran = replace(ran, comparison=Comparison(cpu, others.cpu_failure, distances))
    if not distances.wrong_by:
        return ran
    name = gpu.delegation.device if gpu.delegation else "the device"
    failure = wrong_text(name, distances.wrong_by)
    log.error("%s", failure)
    if cpu is not None:
        log.warning("the results are the CPU's")
    return replace(ran, failure=failure, run=cpu or ran.run)


def tune_job(job: Job, ran: Ran, run: Callable[[Job], PathRun], graph: Graph, floats: bool) -> Ran:
    """Measure which kernels are the fastest where that is left, and run the job once more.

    Ctrl-C ends only that. Other outputs than before are compared, as by compare_job.
    """
    gpu = ran.gpu
    if gpu is None or gpu.delegation is None or job.opencl is None:
        return ran
    if ran.failure or interrupts.was_pressed() or not gpu.delegation.tuning_left:
        return ran
    tuned: PathRun | None = None
    with interrupts.ending_here():
        try:
            tuned = run(replace(job, opencl=replace(job.opencl, tune="full"), quiet=True))
        except (DelegateFailed, NoDeviceError) as error:
            log_error(error, job.verbose)
    if tuned is None or not tuned.outputs:
        return ran
    ran = replace(ran, run=tuned, gpu=tuned, untuned=gpu)
    if all(map(np.array_equal, tuned.outputs, gpu.outputs)):
        return ran
    return compare_job(job, ran, run, graph, floats)
