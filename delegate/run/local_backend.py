# SPDX-License-Identifier: Apache-2.0
"""Executes plans on a device that this process has opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delegate.errors import DeviceError
from delegate.graph.ir import Tensor
from delegate.guard.children import progress
from delegate.plan.codec import TunedPlan
from delegate.plan.contents import ContentSource
from delegate.plan.record import PartitionPlan
from delegate.run.constant_files import load_constants
from delegate.run.device import Device
from delegate.run.executor import Executor
from delegate.run.programs import Programs
from delegate.run.state import State
from delegate.run.weights import Lease, Weights


class LocalBackend:
    """The backend in this process; executors on one device share programs and constants."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._programs = Programs(device)
        self._weights = Weights(device, is_shared=True)
        self._without_threads: LocalBackend | None = None

    def _of(self, plan: PartitionPlan) -> LocalBackend:
        """Return the backend of the device that a plan is of; raises DeviceError."""
        if not plan.has_no_threads:
            return self
        if self._without_threads is None:
            device = self._device.without_threads()
            if device is None:
                raise DeviceError("the driver lists no device without threads any more")
            self._without_threads = LocalBackend(device)
        return self._without_threads

    def constants(
        self,
        content: bytes,
        ends: tuple[Sequence[Tensor], Sequence[Tensor]],
        tuned: TunedPlan,
        source: ContentSource,
    ) -> Lease:
        """Load the programs of a plan, and return its constants, for the caller to close.

        `content`, `ends`: what the plan was decoded from. `source`: of the contents it names.
        Raises: MissingBinary, MissingContent, DeviceError.
        """
        own = self._of(tuned.plan)
        for each in tuned.plan.calls:
            own._programs.load(each.program, source.binary)
        device = own._device
        with progress.phase("upload"), device.calling("uploading constants"):
            return load_constants(own._weights, device.queue, tuned.constants, source)

    def executor(
        self,
        plan: PartitionPlan,
        constants: Lease,
        state: State | None = None,
        own_queue: bool = False,
    ) -> Executor:
        """Return an executor of a plan after a first run; arguments, Raises: as Executor."""
        own = self._of(plan)
        state = None if plan.has_no_threads else state  # it has no persistent tensors
        made = Executor(own._device, own._programs, plan, constants, own_queue, state)
        try:
            made.first_run()
        except BaseException:
            made.close()
            raise
        return made

    def state(self, *about: Any, **more: Any) -> State:
        """Return storage for persistent tensors; arguments as PersistentTensors."""
        return State(self._device, *about, **more)
