# SPDX-License-Identifier: Apache-2.0
"""Strategies to copy a run's inputs and outputs between host and device, around its launches."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from delegate.plan.layout import Bytes
from delegate.plan.record import MemoryPlan
from delegate.run.arena import Arena
from delegate.run.context import opencl
from delegate.run.device import Device
from delegate.run.mapping import mapped, unmap_if_possible
from delegate.run.state import StateGuard
from delegate.run.state_binding import StateBinding

# A kernel with its arguments set, its global and its local size.
ReadyKernel = tuple[cl.Kernel, tuple[int], tuple[int]]
_BOTH = cl.map_flags.READ | cl.map_flags.WRITE


class CopyStrategy:
    """The driver copies between the arena and arbitrary host memory.

    A run is `write_inputs`, `enqueue` and `read_outputs`. Callers handle errors.

    Attributes:
        device, queue, arena, memory, binding; kernels: in launch order.
        events: of the last run's launches.
    """

    def __init__(
        self,
        device: Device,
        queue: cl.CommandQueue,
        arena: cl.Buffer,
        memory: MemoryPlan,
        kernels: Sequence[ReadyKernel],
        binding: StateBinding | None = None,
    ) -> None:
        """`binding`: copies state into the arena before a run and saves it afterwards."""
        self.events: list[cl.Event] = []
        self.device = device
        self.queue = queue
        self.arena = arena
        self.memory = memory
        self.kernels = kernels
        self.binding = binding
        # NOTE: pyopencl waits for a copy when its event is dropped, so all events are held.
        self._copies: list[object] = []
        # Created once: measurable in networks of a few microseconds.
        self._running = self.calling("running")
        self._input_arguments = [self._copy_arguments(place, True) for place in memory.inputs]
        self._output_arguments = [self._copy_arguments(place, False) for place in memory.outputs]

    def calling(self, call: str) -> opencl | StateGuard:
        """Return the context manager for a run's calls; an error in it loses the state."""
        made = self.device.calling(call)
        return made if self.binding is None else StateGuard(made, self.binding.state)

    def run(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        """Run once, from host bytes to host bytes; raises DeviceError."""
        with self._running:
            self.write_inputs(inputs)
            self.events = self.compute()
            self.read_outputs(outputs)

    def submit(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        """Enqueue a run; the arrays must not be touched until `wait`."""
        with self._running:
            self._copy_up(inputs)
            self.events = self.compute()
            self._copy_down(outputs)
            self.queue.flush()

    def wait(self) -> None:
        """Wait for the submitted run's outputs; raises DeviceError."""
        with self._running:
            self._end_copies()

    def enqueue(self) -> list[cl.Event]:
        """Enqueue the launches alone; return their events."""
        return [cl.enqueue_nd_range_kernel(self.queue, *each) for each in self.kernels]

    def compute(self) -> list[cl.Event]:
        """Enqueue a run's device work: restore the state, launch, save the state."""
        if self.binding is None:
            return self.enqueue()
        self.binding.restore()
        events = self.enqueue()
        self.binding.save()
        return events

    def write_inputs(self, inputs: Sequence[Bytes]) -> None:
        """Copy the inputs to the device, ahead of later enqueued work."""
        self._copy_up(inputs)

    def write_zeros(self) -> None:
        """Like `write_inputs`, with zeros for all inputs; raises DeviceError."""
        sizes = [self.memory.batch * size for _, size in self.memory.inputs]
        zeros = np.zeros(max(sizes, default=0), np.uint8)
        if self.binding is not None:
            self.binding.evict()
        with self._running:
            self.write_inputs([zeros[:size] for size in sizes])

    def read_outputs(self, outputs: Sequence[Bytes]) -> None:
        """Wait for enqueued work, and copy the outputs to the host."""
        self._copy_down(outputs)
        self._end_copies()

    def host_array(self, size: int) -> Bytes:
        """Return uninitialised host memory that `submit` copies from and to quickly."""
        return np.zeros(size, np.uint8)

    def close(self) -> None:
        """Release its use of the arena; later runs fail."""

    def _copy_up(self, inputs: Sequence[Bytes]) -> None:
        queue, arena = self.queue, self.arena
        self._copies = [
            cl.enqueue_copy(queue, arena, source, is_blocking=False, **place)
            for source, place in zip(inputs, self._input_arguments, strict=True)
            if source.nbytes  # OpenCL rejects zero-size copies, as of an empty tensor
        ]

    def _copy_down(self, outputs: Sequence[Bytes]) -> None:
        queue, arena = self.queue, self.arena
        self._copies += [
            cl.enqueue_copy(queue, result, arena, is_blocking=False, **place)
            for result, place in zip(outputs, self._output_arguments, strict=True)
            if result.nbytes
        ]

    def _end_copies(self) -> None:
        self.queue.finish()
        self._copies = []

    def _copy_arguments(self, place: tuple[int, int], is_input: bool) -> dict[str, Any]:
        """Return the arguments that locate a tensor of the whole batch in the arena."""
        offset, size = place
        if self.memory.batch == 1:
            return {"dst_offset" if is_input else "src_offset": offset}
        return {
            "buffer_origin": (offset, 0, 0),
            "host_origin": (0, 0, 0),
            "region": (size, self.memory.batch, 1),
            "buffer_pitches": (self.memory.slot_bytes, 0),
            "host_pitches": (size, 0),
        }


class MappedCopy(CopyStrategy):
    """The host copies into the mapped arena; batch size 1 only."""

    def write_inputs(self, inputs: Sequence[Bytes]) -> None:
        """Copy into mapped memory."""
        access = cl.map_flags.WRITE_INVALIDATE_REGION
        for source, place in zip(inputs, self.memory.inputs, strict=True):
            if source.nbytes:
                with mapped(self.queue, self.arena, access, *place) as view:
                    np.copyto(view, source)

    def read_outputs(self, outputs: Sequence[Bytes]) -> None:
        """Copy from mapped memory."""
        for result, place in zip(outputs, self.memory.outputs, strict=True):
            if result.nbytes:
                with mapped(self.queue, self.arena, cl.map_flags.READ, *place) as view:
                    np.copyto(result, view)


class PinnedCopy(CopyStrategy):
    """The host copies into pinned memory, which the device copies from."""

    _staging: tuple[list[Bytes], list[Bytes]] | None = None

    def write_inputs(self, inputs: Sequence[Bytes]) -> None:
        """Copy into pinned memory, from where the device copies."""
        staged_inputs, _ = self._staged()
        for staged, source in zip(staged_inputs, inputs, strict=True):
            np.copyto(staged, source)
        super().write_inputs(staged_inputs)

    def read_outputs(self, outputs: Sequence[Bytes]) -> None:
        """Copy from pinned memory, which the device has copied to."""
        _, staged_outputs = self._staged()
        super().read_outputs(staged_outputs)
        for result, staged in zip(outputs, staged_outputs, strict=True):
            np.copyto(result, staged)

    def _staged(self) -> tuple[list[Bytes], list[Bytes]]:
        if self._staging is None:
            memory = self.memory
            sizes = [memory.batch * size for _, size in (*memory.inputs, *memory.outputs)]
            made = [self.host_array(size) for size in sizes]
            self._staging = made[: len(memory.inputs)], made[len(memory.inputs) :]
        return self._staging

    def host_array(self, size: int) -> Bytes:
        """Return uninitialised pinned memory; raises DeviceError if the driver refuses it."""
        if not size:
            return super().host_array(size)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        pinned = self.device.buffer("pinned memory", flags, size)
        with self.device.calling(f"mapping {size >> 10} KiB of pinned memory"):
            # The array holds the mapping, which holds the buffer.
            array: Bytes = cl.enqueue_map_buffer(self.queue, pinned, _BOTH, 0, size, np.uint8)[0]
        weakref.finalize(array, unmap_if_possible, array.base, self.queue).atexit = False
        return array


class DirectAccess(CopyStrategy):
    """The host copies into the arena, which is host memory; batch size 1 only.

    The arena stays mapped while kernels run. OpenCL 1.2 leaves undefined what they see, so this
    needs `Device.shares_memory` and a bytewise comparison of a run (DeviceBench.copy_strategies).
    """

    def __init__(
        self, device: Device, queue: cl.CommandQueue, arena: cl.Buffer, *more: Any
    ) -> None:
        """Arguments as CopyStrategy. Raises DeviceError."""
        super().__init__(device, queue, arena, *more)
        with device.calling("mapping the arena"):
            whole: Bytes = cl.enqueue_map_buffer(queue, arena, _BOTH, 0, arena.size, np.uint8)[0]
        self._unmap = weakref.finalize(self, unmap_if_possible, whole.base, queue)
        self._unmap.atexit = False
        # For small copies, writing is faster through a memoryview, reading through an array.
        self._inputs = [whole.data[at : at + size] for at, size in self.memory.inputs]
        self._outputs = [whole[at : at + size] for at, size in self.memory.outputs]
        # outputs of the submitted run
        self._pending_outputs: Sequence[Bytes] | None = None
        self._work_arena = (self.binding and self.binding.arena) or Arena(arena)

    def submit(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        """Enqueue a run; the outputs must not be touched until `wait`."""
        self.wait()
        with self._running:
            self.write_inputs(inputs)
            self.events = self.compute()
            self.queue.flush()
        self._pending_outputs = outputs

    def wait(self) -> None:
        """Wait for the submitted run's outputs."""
        if self._pending_outputs is not None:
            with self._running:
                self.read_outputs(self._pending_outputs)
            self._pending_outputs = None

    def enqueue(self) -> list[cl.Event]:
        """Enqueue the launches alone; return their events."""
        self._work_arena.is_running = True
        return super().enqueue()

    def write_inputs(self, inputs: Sequence[Bytes]) -> None:
        """Copy into the arena once no kernel is running in it."""
        if self._work_arena.is_running:  # the last run was interrupted while kernels ran
            self.queue.finish()
            self._work_arena.is_running = False
        for place, source in zip(self._inputs, inputs, strict=True):
            place[:] = source.data

    def read_outputs(self, outputs: Sequence[Bytes]) -> None:
        """Copy from the arena once the launches have finished."""
        if self.events and self.binding is None:
            self.events[-1].wait()  # faster than `finish`
        else:
            self.queue.finish()
        self._work_arena.is_running = False
        for result, place in zip(outputs, self._outputs, strict=True):
            result[:] = place

    def close(self) -> None:
        """Unmap the arena after all enqueued work; later runs fail."""
        self._inputs, self._outputs = [], []
        self._unmap()


COPIED, MAPPED, PINNED, DIRECT = "copied", "mapped", "pinned", "direct"
STRATEGIES = {COPIED: CopyStrategy, MAPPED: MappedCopy, PINNED: PinnedCopy, DIRECT: DirectAccess}
# The cache key of the choice: it is measured anew when the strategies change.
COPY_CHOICE = f"transfer: {', '.join(STRATEGIES)}"


def copy_strategy_for(name: str, batch: int, shares_memory: bool) -> type[CopyStrategy]:
    """Return the copy strategy of this name, or its substitute here.

    A batch is never mapped, as its elements are not contiguous. `shares_memory`: with the host.
    """
    is_mapped = name in (MAPPED, DIRECT)
    is_possible = not (is_mapped and batch > 1) and (shares_memory or name != DIRECT)
    return STRATEGIES[name if is_possible else COPIED]
