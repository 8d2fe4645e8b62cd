# SPDX-License-Identifier: Apache-2.0
"""One path's timed run of a model on one input: on the CPU, or through a delegate.

A path logs label_image's own lines as it goes. It neither reads pictures nor decodes results.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from delegate.inspect import Graph
from label_image.errors import delegate_failures
from label_image.heads.post_process import found_only
from label_image.verbose import interpreter_state, profile_lines
from tflite_opencl.common import interrupts
from tflite_opencl.common.job import Delegation, Job
from tflite_opencl.common.open_job import delegate_names, open_interpreter
from tflite_opencl.common.profile import Profile
from tflite_opencl.common.runtime import Runtime
from tflite_opencl.common.timing import Times
from tflite_opencl.common.trace import Trace

log = logging.getLogger("label_image")
results = logging.getLogger("label_image.results")
stdout = logging.getLogger("tflite_opencl.stdout")


@dataclass(frozen=True, slots=True)
class PathRun:
    """What one path gave."""

    times: Times
    load_ms: float  # from the file to allocated tensors, kernels built
    outputs: tuple[NDArray[Any], ...] = field(repr=False)
    delegation: Delegation | None = None  # of the OpenCL delegate
    profile: Profile | None = None  # of its nodes, if that was asked for
    trace: Trace | None = None  # of some more runs, if that was asked for
    load_parts: Mapping[str, float] = field(default_factory=dict)  # of load_ms, by phase
    longer: Times | None = None  # of as many runs as a comparison needs, if that was asked for

    @property
    def compared(self) -> Times:
        """Give the times that are compared with other paths'."""
        return self.longer or self.times

    @property
    def picture_ms(self) -> float:
        """Milliseconds a picture: the median, as a busy machine moves averages."""
        return self.compared.median_ms

    def run(self, pixels: NDArray[Any]) -> list[tuple[NDArray[Any], ...]]:
        """Return the outputs for the job's input, which is all that was run."""
        return [self.outputs]


def run_path(job: Job, runtime: Runtime, graph: Graph) -> PathRun:
    """Return the job's times and outputs; after Ctrl-C the times so far, and no outputs.

    Raises:
        RunError: TFLite cannot run the model, or the external delegate cannot be used.
        NoDeviceError: there is no OpenCL device, or not the wanted one.
        DelegateFailed: the OpenCL delegate, or a run with it, failed.
    """
    announced = [] if job.quiet else delegate_names(job)
    with delegate_failures(), open_interpreter(job, runtime, graph, announced) as opened:
        taken = opened.delegation
        if not job.quiet:
            _log_opened(job, graph, taken)
        times = opened.measure(job.count, job.warmup_runs)
        if not job.quiet:
            log.info("invoked")
            results.info("average time: %g ms", times.average_ms)
            if taken and job.profile_rows:
                for line in profile_lines(opened.profile(), job.profile_rows):
                    results.info("%s", line)
        if interrupts.was_pressed():  # the last run may have left parts of an output
            return PathRun(times, opened.load_ms, (), taken, load_parts=opened.load_parts)
        outputs = found_only(graph, opened.outputs())
        profile = opened.node_profile(graph) if job.profile_rows else None
        trace = opened.trace(f"label_image, {taken.device}") if taken and job.traces else None
        longer = opened.measure_longer(job.longer_s) if job.longer_s else None
        return PathRun(
            times, opened.load_ms, outputs, taken, profile, trace, opened.load_parts, longer
        )


def warn_of_nothing_taken(taken: Delegation, graph: Graph) -> None:
    """Log a warning where the OpenCL delegate took no node."""
    if not graph.nodes:
        log.warning("the model has no operators: OpenCL has nothing to run")
    elif taken.delegated == 0:
        log.warning(
            "the OpenCL delegate took none of the model's %d nodes: the CPU runs them all",
            len(graph.nodes),
        )


def _log_opened(job: Job, graph: Graph, taken: Delegation | None) -> None:
    if taken:
        warn_of_nothing_taken(taken, graph)
    if job.verbose:
        reasons = {each.node: each.reason for each in taken.verdicts} if taken else None
        stdout.info("%s", interpreter_state(graph, reasons))
