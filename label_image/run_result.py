# SPDX-License-Identifier: Apache-2.0
"""What running a job on one path gave, as frozen records that can be sent between processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from delegate.inspect import Portion
from tflite_opencl.harness.job import Delegation
from tflite_opencl.oracle.node_kernels import NodeKernels
from tflite_opencl.timing.profile import Profile
from tflite_opencl.timing.timing import Times, are_enough, cores
from tflite_opencl.timing.trace import Trace

Array = NDArray[Any]
Outputs = tuple[Array, ...]  # of one picture, in the model's own shapes


@dataclass(frozen=True, slots=True, eq=False)
class BatchResult:
    """What an open path gave for a batch of pictures."""

    outputs: Sequence[Outputs]  # of each picture
    # From tensors to outputs: wall-clock time, and CPU time of all threads, including a child
    # process that executes the plans.
    seconds: float
    cpu_seconds: float
    judged_by: NodeKernels | None = None  # the reference path's kernels


@dataclass(frozen=True, slots=True, eq=False)
class RunResult:
    """What a job gave on its path: timed on the job's input, or in batches so far.

    An open path's is the result before the first picture, see `plus`.
    """

    load_ms: float  # from the file to allocated tensors, kernels built
    batch: int = 1  # pictures per run
    delegation: Delegation | None = None  # of the OpenCL delegate
    load_parts: Mapping[str, float] = field(default_factory=dict)  # of load_ms, by Watch's phases
    judged_by: NodeKernels | None = None  # the reference path's kernels; None: it is another path

    # If it was timed:
    outputs: Outputs = field(default=(), repr=False)  # none after Ctrl-C
    times: Times | None = None
    longer: Times | None = None  # as many runs as a comparison needs, if requested
    profile: Profile | None = None  # of OpenCL's nodes, if requested
    trace: Trace | None = None  # of some additional runs, if requested

    # If it ran batches; times as of BatchResult:
    pictures: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    portions: Sequence[Portion] = ()  # the share of each of several devices

    def plus(self, batch: BatchResult) -> RunResult:
        """Return the result with one more batch."""
        return replace(
            self,
            pictures=self.pictures + len(batch.outputs),
            seconds=self.seconds + batch.seconds,
            cpu_seconds=self.cpu_seconds + batch.cpu_seconds,
            judged_by=batch.judged_by,
        )

    @property
    def device_name(self) -> str:
        """The name of the device that runs it, or of those of several that are left."""
        if self.portions:
            return " + ".join(each.device.name for each in self.portions if not each.failure)
        return self.delegation.device if self.delegation else "the device"

    @property
    def comparison_times(self) -> Times | None:
        """The times to compare with other paths'; None: it was not timed."""
        return self.longer or self.times

    @property
    def per_second(self) -> float:
        """Pictures per second, from tensors to outputs."""
        return self.pictures / self.seconds if self.seconds else 0.0

    @property
    def picture_ms(self) -> float:
        """Milliseconds per picture; 0 before the first run.

        The median of timed runs: load on the machine shifts averages.
        """
        if (times := self.comparison_times) is not None:
            return times.median_ms
        return 1e3 * self.seconds / self.pictures if self.pictures else 0.0

    @property
    def cpu_load(self) -> float:
        """CPU time of all threads over wall-clock time."""
        return cores(self.cpu_seconds, self.seconds)

    @property
    def has_run_enough(self) -> bool:
        """Whether there are enough runs to compare the times with another path's."""
        if (times := self.comparison_times) is not None:
            return times.are_enough and times.median_ms > 0
        return are_enough(self.pictures, self.seconds)
