# SPDX-License-Identifier: Apache-2.0
"""Executes plans in a child process; delegate.runtime.in_process does so in this one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from delegate.graph.ir import Tensor
from delegate.isolation.constants import IsolatedConstants
from delegate.isolation.device import IsolatedDevice
from delegate.isolation.executor import IsolatedExecutor
from delegate.isolation.state import IsolatedState
from delegate.plan.codec import Answer
from delegate.plan.contents import Source
from delegate.plan.record import PartitionPlan
from delegate.runtime.device import Device
from delegate.runtime.executor import Executor
from delegate.runtime.in_process import InProcess
from delegate.runtime.state import State
from delegate.runtime.weights import Taken

AnyDevice = Device | IsolatedDevice
AnyExecutor = Executor | IsolatedExecutor
AnyState = State | IsolatedState
AnyConstants = Taken | IsolatedConstants


class Executing(Protocol):
    """What executes plans, wherever that is; what one gives is for itself alone."""

    def constants(
        self,
        content: bytes,
        ends: tuple[Sequence[Tensor], Sequence[Tensor]],
        answer: Answer,
        source: Source,
    ) -> AnyConstants:
        """Return a plan's constants, which are the caller's to close."""

    def executor(
        self, plan: PartitionPlan, constants: Any, state: Any = None, own_queue: bool = False
    ) -> AnyExecutor:
        """Return what runs a plan, and has run it once."""

    def state(self, *about: Any, **more: Any) -> AnyState:
        """Return what keeps values over runs; arguments as KeptValues."""


class InChild:
    """Executes them on a device of a child."""

    def __init__(self, device: IsolatedDevice) -> None:
        self._device = device

    def constants(
        self,
        content: bytes,
        ends: tuple[Sequence[Tensor], Sequence[Tensor]],
        answer: Answer,
        source: Source,
    ) -> IsolatedConstants:
        """As InProcess.constants."""
        return IsolatedConstants(self._device, content, ends, source)

    def executor(
        self,
        plan: PartitionPlan,
        constants: IsolatedConstants,
        state: IsolatedState | None = None,
        own_queue: bool = False,
    ) -> IsolatedExecutor:
        """As InProcess.executor."""
        return IsolatedExecutor(self._device, plan, constants, state, own_queue)

    def state(self, *about: Any, **more: Any) -> IsolatedState:
        """As InProcess.state."""
        return IsolatedState(self._device, *about, **more)


def executing_on(device: AnyDevice) -> Executing:
    """Return what executes plans on a device."""
    return InChild(device) if isinstance(device, IsolatedDevice) else InProcess(device)
