# SPDX-License-Identifier: Apache-2.0
"""The backend that executes plans in a child process; see delegate.run.local_backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from delegate.graph.ir import Tensor
from delegate.guard.isolation.constants import IsolatedConstants
from delegate.guard.isolation.device import IsolatedDevice
from delegate.guard.isolation.executor import IsolatedExecutor
from delegate.guard.isolation.state import IsolatedState
from delegate.plan.codec import TunedPlan
from delegate.plan.contents import ContentSource
from delegate.plan.record import PartitionPlan
from delegate.run.device import Device
from delegate.run.executor import Executor
from delegate.run.local_backend import LocalBackend
from delegate.run.state import State
from delegate.run.weights import Lease

AnyDevice = Device | IsolatedDevice
AnyExecutor = Executor | IsolatedExecutor
AnyState = State | IsolatedState
AnyConstants = Lease | IsolatedConstants


class Backend(Protocol):
    """Executes plans, wherever; its objects cannot be shared with another backend."""

    def constants(
        self,
        content: bytes,
        ends: tuple[Sequence[Tensor], Sequence[Tensor]],
        tuned: TunedPlan,
        source: ContentSource,
    ) -> AnyConstants:
        """Return a plan's constants, for the caller to close."""

    def executor(
        self, plan: PartitionPlan, constants: Any, state: Any = None, own_queue: bool = False
    ) -> AnyExecutor:
        """Return an executor of a plan after a first run."""

    def state(self, *about: Any, **more: Any) -> AnyState:
        """Return storage for persistent tensors; arguments as PersistentTensors."""


class ChildBackend:
    """Executes plans on a child's device."""

    def __init__(self, device: IsolatedDevice) -> None:
        self._device = device

    def constants(
        self,
        content: bytes,
        ends: tuple[Sequence[Tensor], Sequence[Tensor]],
        tuned: TunedPlan,
        source: ContentSource,
    ) -> IsolatedConstants:
        """As LocalBackend.constants."""
        return IsolatedConstants(self._device, content, ends, source)

    def executor(
        self,
        plan: PartitionPlan,
        constants: IsolatedConstants,
        state: IsolatedState | None = None,
        own_queue: bool = False,
    ) -> IsolatedExecutor:
        """As LocalBackend.executor."""
        return IsolatedExecutor(self._device, plan, constants, state, own_queue)

    def state(self, *about: Any, **more: Any) -> IsolatedState:
        """As LocalBackend.state."""
        return IsolatedState(self._device, *about, **more)


def backend_of(device: AnyDevice) -> Backend:
    """Return the backend of a device."""
    return ChildBackend(device) if isinstance(device, IsolatedDevice) else LocalBackend(device)
