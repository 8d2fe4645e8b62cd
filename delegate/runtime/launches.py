# SPDX-License-Identifier: Apache-2.0
"""The launches of a program, ready in a queue: one by one, or recorded in a command buffer."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pyopencl as cl

from delegate.errors import DeviceError
from delegate.runtime.command_buffer import CommandBuffer
from delegate.runtime.device import Device
from delegate.sandbox.trials import RECORDED, Free, Trial

_log = logging.getLogger("delegate")


class Launches:
    """The kernels of a program in a queue, with global and local sizes; arguments are set."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        self.queue = queue
        self.kernels: list[tuple[cl.Kernel, tuple[int], tuple[int]]] = []
        self._recorded: CommandBuffer | None = None

    def try_each(self, device: Device, trials: Free, runs: Sequence[Trial]) -> None:
        """Run each kernel once by itself, if its trial is due."""
        for run, kernel in zip(runs, self.kernels, strict=True):
            if trials.is_due(run):
                with trials.of(run), device.calling(f"running {kernel[0].function_name}"):
                    cl.enqueue_nd_range_kernel(self.queue, *kernel)
                    self.queue.finish()

    def record(self, device: Device, trials: Free, runs: Sequence[Trial]) -> bool:
        """Record them in a command buffer; whether that works here. `runs`: as of `try_each`."""
        try:
            with trials.of(Trial.of(RECORDED, *runs)):
                self._recorded = CommandBuffer(device, self.queue, self.kernels)
                if trials.tells:
                    self._recorded.enqueue()
                    self.queue.finish()
        except DeviceError as error:
            _log.debug("launches are not recorded: %s", error)
        return self._recorded is not None

    def enqueue(self) -> list[cl.Event]:
        """Put all into the queue; return their events, of which a command buffer has none."""
        if self._recorded is not None:
            self._recorded.enqueue()
            return []
        return [cl.enqueue_nd_range_kernel(self.queue, *each) for each in self.kernels]

    def close(self) -> None:
        """Let kernels and command buffer go; a second call does nothing."""
        if self._recorded is not None:
            self._recorded.close()
        self._recorded = None
        self.kernels = []
