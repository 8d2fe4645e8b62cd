# SPDX-License-Identifier: Apache-2.0
"""Executes the plan of a partition: constants are uploaded once; a run copies and launches."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np
import pyopencl as cl

from delegate.errors import DelegateError, DeviceError
from delegate.guard.children import progress
from delegate.launch import size_bytes
from delegate.plan.layout import Bytes, as_bytes
from delegate.plan.record import ONE_BY_ONE, MemoryPlan, PartitionPlan
from delegate.run.arena import Arena
from delegate.run.context import opencl
from delegate.run.copy_strategies import CopyStrategy, ReadyKernel, copy_strategy_for
from delegate.run.device import Device
from delegate.run.inspection import LaunchTime, PlanInspector
from delegate.run.programs import Programs
from delegate.run.state import State
from delegate.run.state_binding import StateBinding
from delegate.run.upload import write
from delegate.run.weights import Lease


class Executor:
    """A plan with its memory and kernels on a device. It makes no decisions.

    Attributes:
        plan, batch; dispatch_mode: how the launches are submitted.
        inputs, outputs: the tensors that a run takes and returns.
    Raises:
        DeviceError: out of memory, a program or buffer refused by the driver, or memory that
            does not hold what was written to it.
    """

    def __init__(
        self,
        device: Device,
        programs: Programs,
        plan: PartitionPlan,
        constants: Lease,
        own_queue: bool = False,
        state: State | None = None,
        trying: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext,
    ) -> None:
        """Allocate memory and upload the constant data.

        `constants`: the plan's; this executor takes ownership, also after an error.
        `own_queue`: runs are concurrent with others. `state`: holds the persistent tensors; those
        not in it are copied like other tensors, as for measuring. `trying`: the context manager
        of runs that may still end the process.
        """
        self.plan = plan
        self.inputs, self.outputs = (
            tuple(tensor for tensor in tensors if state is None or not state.has(tensor))
            for tensors in (plan.inputs, plan.outputs)
        )
        self.batch, self.dispatch_mode = plan.batch, plan.dispatch_mode
        self.trying = trying
        self._device = device
        self._state = state
        self._constants: Lease | None = constants
        self._arena: Arena | None = None  # shared with other executors; None: it has its own
        self._buffers: list[cl.Buffer] = []
        self._copy_strategy: CopyStrategy | None = None
        # The arrays of the last run, whose sizes were checked.
        self._last_arrays: tuple[Sequence[Bytes] | None, Sequence[Bytes] | None] = (None, None)
        try:
            self._queue = device.another_queue() if own_queue else device.queue
            self._strategy_class = copy_strategy_for(
                plan.copy_strategy, self.batch, device.shares_memory
            )
            self._programs = [programs.load(call.program) for call in plan.calls]
            with progress.phase("upload"):
                if state is not None:
                    own = plan.memory
                    self._arena = state.arena(own.arena_bytes, own.region)
                arena = self._upload()
            self._copy_strategy = self._make_strategy(arena)
        except BaseException:
            self.close()
            raise

    @property
    def uses_fp16(self) -> bool:
        """Whether its float32 tensors are stored as fp16 between launches."""
        return self.plan.uses_fp16

    def _make_strategy(self, arena: cl.Buffer) -> CopyStrategy:
        """Return the copy strategy for this arena."""
        memory, binding = self._run_memory(arena)
        return self._strategy_class(
            self._device, self._queue, arena, memory, self._ready(arena), binding
        )

    def _ready(self, arena: cl.Buffer) -> list[ReadyKernel]:
        """Return the kernels in order, with their arguments set."""
        assert self._constants is not None
        made: list[ReadyKernel] = []
        for call, program in zip(self.plan.calls, self._programs, strict=True):
            with opencl(f"clCreateKernel {call.kernel}"):
                kernel = cl.Kernel(program, call.kernel)
            with self._device.calling(f"clSetKernelArg {call.kernel}"):
                # A kernel without constants is passed an arbitrary buffer.
                used = call.constants
                constants = arena if used is None else self._constants.cl_buffers[used]
                own: list[object] = [*self._buffers[self._own :], np.int32(call.number)]
                if call.block:
                    own = [np.frombuffer(call.block, np.uint8)]
                kernel.set_args(arena, constants, *own)
            made.append((kernel, (call.global_size,), (call.local_size,)))
        return made

    def _run_memory(self, arena: cl.Buffer) -> tuple[MemoryPlan, StateBinding | None]:
        """Return where a run's inputs and outputs are stored, and the binding of its state."""
        memory, state = self.plan.memory, self._state
        inputs, outputs = (
            tuple((memory.offsets[tensor], size_bytes(tensor)) for tensor in some)
            for some in (self.inputs, self.outputs)
        )
        crossing = replace(memory, inputs=inputs, outputs=outputs)
        if state is None:
            return crossing, None
        return crossing, StateBinding(state, self._arena, arena, self.plan)

    def _upload(self) -> cl.Buffer:
        """Allocate and fill every buffer; return the arena."""
        flags, plan, memory = cl.mem_flags, self.plan, self.plan.memory
        kib = (memory.arena_bytes + memory.constant_bytes) >> 10
        with self._device.calling(f"allocating {kib} KiB"):
            if self._arena is not None:
                arena = self._arena.buffer
            else:
                zeros = np.zeros(memory.arena_bytes, np.uint8)
                arena = self._buffer(flags.READ_WRITE, zeros, False)
            self._own = len(self._buffers)  # the first that kernels take beside the arena
            # Kernels address memory by params: wrong ones could end the process.
            ints = as_bytes(np.array(plan.ints or (0,), np.int32))
            self._buffer(flags.READ_ONLY, ints, True)
            for stored in memory.arena_constants:
                for slot in range(memory.batch):
                    place = slot * memory.slot_bytes + stored.offset
                    cl.enqueue_copy(self._queue, arena, stored.values, dst_offset=place)
            if plan.control_ints:
                control = as_bytes(np.zeros(plan.control_ints, np.int32))
                self._buffer(flags.READ_WRITE, control, False)
        return arena

    def _buffer(self, access: int, values: Bytes, is_checked: bool) -> cl.Buffer:
        """Return a buffer of these values; `is_checked`: it is read back and compared."""
        made = self._device.buffer("memory", access, values.nbytes)
        self._buffers.append(made)
        # Touching every byte makes a lazy driver allocate now, not during a run.
        if is_checked:
            write(self._queue, made, 0, values, np.empty_like(values))
        else:
            cl.enqueue_copy(self._queue, made, values)
        return made

    def run(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        """Run once, from host memory to host memory.

        Shapes:
            one uint8 array for each input or output of the plan, of the tensor's bytes times the
            batch size, batch elements in order
        Raises:
            DeviceError: a size mismatch, or a failed OpenCL call.
        """
        self._checked(inputs, outputs).run(inputs, outputs)

    def submit(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        """Enqueue a run; the arrays stay in use until `copy_strategy.wait`. Raises as `run`."""
        self._checked(inputs, outputs).submit(inputs, outputs)

    @property
    def copy_strategy(self) -> CopyStrategy:
        """The copy strategy, with its memory and kernels; raises DeviceError if closed."""
        if self._copy_strategy is None:
            raise DeviceError("the delegate was closed")
        if self._arena is not None and self._arena.buffer is not self._copy_strategy.arena:
            self._move(self._arena)
        return self._copy_strategy

    def _move(self, arena: Arena) -> None:
        """Switch to a larger buffer that another executor needed for the shared arena."""
        old = self._copy_strategy
        self._copy_strategy = self._make_strategy(arena.buffer)
        if old is not None:
            old.close()

    def _checked(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> CopyStrategy:
        strategy = self.copy_strategy
        memory = strategy.memory
        if self._last_arrays[0] is inputs and self._last_arrays[1] is outputs:
            return strategy
        for given, (_, size) in zip(
            (*inputs, *outputs), (*memory.inputs, *memory.outputs), strict=True
        ):
            if given.nbytes != size * self.batch:
                raise DeviceError(f"{given.nbytes} bytes given, {size * self.batch} planned")
        if isinstance(inputs, tuple) and isinstance(outputs, tuple):  # immutable
            self._last_arrays = inputs, outputs
        return strategy

    def repeat(self, count: int, wait: bool = False) -> float:
        """Run the launches alone `count` times; return the seconds for one of them.

        `wait`: for the end of each, as a run does.

        Raises:
            DeviceError: a failed OpenCL call.
        """
        strategy = self.copy_strategy
        if strategy.binding is not None:
            strategy.binding.evict()
        with self.trying(), self._device.calling("running"):
            if strategy.binding is not None:
                strategy.binding.write_constants()
            self._queue.finish()
            begin = time.perf_counter()
            for _ in range(count):
                strategy.enqueue()
                if wait:
                    self._queue.finish()
            self._queue.finish()
        return (time.perf_counter() - begin) / count

    def first_run(self) -> None:
        """Run the launches once, on zeros: drivers are slow the first time. Raises as `repeat`."""
        self.copy_strategy.write_zeros()
        self.repeat(1)

    def run_call(self, number: int) -> None:
        """Run a single kernel of the plan; raises DeviceError."""
        call, ready = self.plan.calls[number], self.copy_strategy.kernels[number]
        with self._device.calling(f"running {call.kernel}"):
            cl.enqueue_nd_range_kernel(self._queue, *ready)
            self._queue.finish()

    def guard(self) -> AbstractContextManager[object]:
        """Return a context manager for work after a run: an error in it loses the state."""
        return self.copy_strategy.calling("running")

    def inspector(self) -> PlanInspector:
        """Return an inspector, which runs the plan node by node.

        Raises:
            DelegateError: the launches are not separate, or the batch size is not 1.
        """
        strategy = self.copy_strategy
        if self.dispatch_mode != ONE_BY_ONE or self.batch != 1:
            raise DelegateError("its launches are fused: make the delegate with profiling=True")
        return PlanInspector(self.plan, strategy, self.inputs, self.outputs)

    def profile(self) -> list[LaunchTime]:
        """Return the last run's launches; requires a device opened for profiling."""
        if self._copy_strategy is None or not self._copy_strategy.events:
            return []  # no run yet
        return self.inspector().times(self._copy_strategy.events)

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def constants(self) -> Lease:
        """Return another lease of its constants, for the caller to close; raises DeviceError."""
        if self._constants is None:
            raise DeviceError("the delegate was closed")
        return self._constants.weights.acquire(self._constants)

    def close(self) -> None:
        """Free the device memory; a second call does nothing."""
        if self._copy_strategy is not None:
            if self._copy_strategy.binding is not None and self._arena is None:
                self._copy_strategy.binding.evict()
            self._copy_strategy.close()
        if self._constants is not None:
            self._constants.close()
        self._copy_strategy = self._constants = None
        buffers, self._buffers = self._buffers, []
        for buffer in buffers:
            buffer.release()
