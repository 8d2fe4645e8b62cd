# SPDX-License-Identifier: Apache-2.0
"""Proxy for an executor in a child."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import TracebackType

import numpy as np

from delegate.errors import DelegateError, DeviceError
from delegate.guard.isolation.constants import IsolatedConstants
from delegate.guard.isolation.device import IsolatedDevice
from delegate.guard.isolation.shared_memory import Bytes, SharedMemory
from delegate.guard.isolation.state import IsolatedState
from delegate.launch import size_bytes
from delegate.plan.codec import UnreadablePlan
from delegate.plan.contents import MissingContent
from delegate.plan.record import PartitionPlan
from delegate.run.inspection import LaunchTime, PlanInspector

# Actions on a child's executor, added to its number times four.
RUN, SUBMIT, WAIT = range(3)
ACTIONS = 4
_NO_STEPS = "a model that runs in a process of its own (isolate=True) is not profiled"
_numbers = itertools.count()


class IsolatedExecutor:
    """The interface of run.executor.Executor; a new child creates it anew.

    Attributes:
        plan, inputs, outputs, batch, dispatch_mode, uses_fp16: as Executor's.
    """

    def __init__(
        self,
        device: IsolatedDevice,
        plan: PartitionPlan,
        constants: IsolatedConstants,
        state: IsolatedState | None = None,
        own_queue: bool = False,
    ) -> None:
        """Create it in the child, and run it once; `state`, `own_queue`: as Executor.

        Raises: as Executor; KilledChild: the child died. DeviceError: out of memory.
        """
        self.plan = plan
        self.inputs, self.outputs = (
            tuple(tensor for tensor in tensors if state is None or not state.has(tensor))
            for tensors in (plan.inputs, plan.outputs)
        )
        self.batch, self.dispatch_mode, self.uses_fp16 = (
            plan.batch,
            plan.dispatch_mode,
            plan.uses_fp16,
        )
        self._worker, self._state = device.worker, state
        self._number, self._child = next(_numbers), 0
        self._constants, self._own_queue = constants, own_queue
        self._sizes = [size_bytes(tensor) * plan.batch for tensor in (*self.inputs, *self.outputs)]
        self._memory: SharedMemory | None = None
        try:
            self._memory = SharedMemory(self._sizes)
        except OSError as error:
            constants.close()
            raise DeviceError(f"no shared memory: {error.strerror or error}") from error
        self._input_arrays = self._memory.arrays[: len(self.inputs)]
        self._output_arrays = self._memory.arrays[len(self.inputs) :]
        self._submitted: tuple[int, Sequence[Bytes]] | None = None  # a child, and the outputs
        self._guard = _Guard(state)
        try:
            with self._worker:
                self._worker.require()
                self._make()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        """Create it in the current child; the caller holds the worker's lock."""
        worker, state, memory = self._worker, self._state, self.copy_strategy._memory
        assert memory is not None
        if state is not None:
            state.require_there()
        try:
            self._constants.require_there()
        except (MissingContent, UnreadablePlan) as error:
            raise DeviceError(f"the plan is gone from the cache: {error}") from error
        what = self._constants.number, None if state is None else state.number, self._own_queue
        worker.ask("add_executor", self._number, *what, memory.path, self._sizes)
        self._child = worker.number

    def run(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        """Run once; arguments, Raises: as Executor's. DeviceError: also if the child died."""
        self._require_sizes(inputs, outputs)
        with self._worker, self._guard:
            self._begin(inputs)
            self._worker.run(self._number * ACTIONS + RUN)
            self._copy_to(outputs)

    def submit(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        """Submit a run; the outputs are valid after `wait`. Raises as `run`."""
        self._require_sizes(inputs, outputs)
        with self._worker, self._guard:
            self._begin(inputs)
            self._worker.run(self._number * ACTIONS + SUBMIT)
        self._submitted = self._child, outputs

    def wait(self) -> None:
        """Wait for the submitted run's outputs; raises DeviceError."""
        if self._submitted is None:
            return
        (child, outputs), self._submitted = self._submitted, None
        with self._worker, self._guard:
            if self._worker.number != child:
                raise DeviceError("the process that executes the plan ended before this run did")
            self._worker.run(self._number * ACTIONS + WAIT)
            self._copy_to(outputs)

    def _begin(self, inputs: Sequence[Bytes]) -> None:
        """Make sure that the child has it, and copy the inputs."""
        if self._worker.require() != self._child:
            self._make()
        if self._state is not None:
            self._state.require()
        for place, values in zip(self._input_arrays, inputs, strict=True):
            place[:] = values

    def _copy_to(self, outputs: Sequence[Bytes]) -> None:
        for values, place in zip(outputs, self._output_arrays, strict=True):
            values[:] = place

    def _require_sizes(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        for given, size in zip((*inputs, *outputs), self._sizes, strict=True):
            if given.nbytes != size:
                raise DeviceError(f"{given.nbytes} bytes given, {size} planned")

    @property
    def copy_strategy(self) -> IsolatedExecutor:
        """This object itself; raises DeviceError if closed."""
        if self._memory is None:
            raise DeviceError("the delegate was closed")
        return self

    def host_array(self, size: int) -> Bytes:
        """Return uninitialised host memory to copy from and to."""
        return np.zeros(size, np.uint8)

    def guard(self) -> _Guard:
        """As Executor's."""
        return self._guard

    def constants(self) -> IsolatedConstants:
        """As Executor's."""
        if self._memory is None:
            raise DeviceError("the delegate was closed")
        return self._constants.acquire()

    def inspector(self) -> PlanInspector:
        """Raises: DelegateError."""
        raise DelegateError(_NO_STEPS)

    def profile(self) -> list[LaunchTime]:
        """Raises: DelegateError."""
        raise DelegateError(_NO_STEPS)

    def close(self) -> None:
        """Free it in the child; a second call does nothing."""
        memory, self._memory = self._memory, None
        if memory is None:
            return
        if self._child == self._worker.number:
            self._worker.defer("drop_executor", self._number)
        self._constants.close()


class _Guard:
    """A context manager for a run, in which an error or Ctrl-C loses the state."""

    def __init__(self, state: IsolatedState | None) -> None:
        self._state = state

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and self._state is not None:
            self._state.lose(str(error) or type(error).__name__)
