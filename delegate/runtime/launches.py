# SPDX-License-Identifier: Apache-2.0
"""The launches of a program, ready in a queue."""

from __future__ import annotations

from collections.abc import Sequence

import pyopencl as cl

from delegate.runtime.device import Device
from delegate.sandbox.trials import Free, Trial


class Launches:
    """The kernels of a program in a queue, with global and local sizes; arguments are set."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        self.queue = queue
        self.kernels: list[tuple[cl.Kernel, tuple[int], tuple[int]]] = []

    def try_each(self, device: Device, trials: Free, runs: Sequence[Trial]) -> None:
        """Run each kernel once by itself, if its trial is due."""
        for run, kernel in zip(runs, self.kernels, strict=True):
            if trials.is_due(run):
                with trials.of(run), device.calling(f"running {kernel[0].function_name}"):
                    cl.enqueue_nd_range_kernel(self.queue, *kernel)
                    self.queue.finish()

    def enqueue(self) -> list[cl.Event]:
        """Put all into the queue; return their events."""
        return [cl.enqueue_nd_range_kernel(self.queue, *each) for each in self.kernels]

    def close(self) -> None:
        """Let the kernels go; a second call does nothing."""
        self.kernels = []
