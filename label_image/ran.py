# SPDX-License-Identifier: Apache-2.0
"""One picture's paths: each runs once, OpenCL's once more when it is tuned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from delegate import NoDeviceError
from delegate.inspect import Graph
from label_image.classify import PathRun
from label_image.compare import Distances
from label_image.errors import log_error
from label_image.paths import ENDED, Paths, Totals
from tflite_opencl.common import interrupts
from tflite_opencl.common.difference import Difference
from tflite_opencl.common.errors import DelegateFailed
from tflite_opencl.common.job import Job


class Ran(Paths[PathRun]):
    """The paths, and whose results are shown.

    Attributes:
        run: the path whose results are shown; after Ctrl-C it has no outputs. untuned: OpenCL's
            run before, where `gpu` was tuned after it.
    """

    def __init__(self, job: Job, run: Callable[[Job], PathRun], graph: Graph) -> None:
        """`run`: gives the run of a path."""
        super().__init__(job, graph)
        self._run = run
        self.untuned: PathRun | None = None

    def opened(self, job: Job, is_beside: bool = False) -> PathRun:
        """Return a job's run."""
        return self._run(job)

    def open(self) -> None:
        """Run the job; raises as `run`, where the CPU cannot take over."""
        super().open()
        path = self.gpu or self.cpu
        assert path is not None
        self.run = path

    def compare(self) -> None:
        """Run the job beside OpenCL, too; after Ctrl-C the CPU's times are those so far."""
        gpu = self.gpu
        if gpu is None or not self.job.reference:
            return
        self.totals = Totals()
        try:
            self.open_others()
            (outcome,) = self.compared(self.job.input, [gpu.outputs])
        except KeyboardInterrupt:
            nothing = Difference(None, ENDED)
            self.totals.distances = Distances(nothing, nothing, nothing)
            return
        self.totals.add(outcome)
        if outcome.is_wrong:
            self.complain(outcome)
            self.run = self.cpu or self.run

    def tune(self) -> None:
        """Measure which kernels are the fastest where that is left, and run the job once more.

        Ctrl-C ends only that. Other outputs than before are compared, as by `compare`.
        """
        gpu, opencl, tuned = self.gpu, self.job.opencl, None
        if gpu is None or gpu.delegation is None or opencl is None or self.failure:
            return
        if interrupts.was_pressed() or not gpu.delegation.tuning_left:
            return
        with interrupts.ending_here():
            try:
                full = replace(opencl, tune="full")
                tuned = self._run(replace(self.job, opencl=full, quiet=True))
            except (DelegateFailed, NoDeviceError) as error:
                log_error(error, self.job.verbose)
        if tuned is None or not tuned.outputs:
            return
        self.run = self.gpu = tuned
        self.untuned = gpu
        if not all(map(np.array_equal, tuned.outputs, gpu.outputs)):
            self.compare()
