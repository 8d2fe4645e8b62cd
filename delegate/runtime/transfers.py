# SPDX-License-Identifier: Apache-2.0
"""How a run's bytes cross: copied by the driver, into mapped memory, through pinned memory, or by
the host into memory that it shares with the device."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyopencl as cl

from delegate.runtime.copied import Copied, Enqueue
from delegate.runtime.device import Device
from delegate.runtime.layout import Bytes, Layout
from delegate.sandbox.process import keep_for_good


class Mapped(Copied):
    """Copied by the host into the arena, which is mapped for it; one picture at a time."""

    def run(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        """Run once, from host bytes to host bytes; raises DeviceError."""
        with self._running:
            self._put(inputs)
            self.events = self._enqueue()
            self._take(outputs)

    def up(self, inputs: Sequence[Bytes]) -> None:
        """Copy the inputs alone, and wait for that; raises DeviceError."""
        with self._running:
            self._put(inputs)

    def down(self, outputs: Sequence[Bytes]) -> None:
        """Copy the outputs alone, and wait for that; raises DeviceError."""
        with self._running:
            self._take(outputs)

    def _put(self, inputs: Sequence[Bytes]) -> None:
        for source, place in zip(inputs, self._layout.inputs, strict=True):
            with self._mapped(cl.map_flags.WRITE_INVALIDATE_REGION, *place) as view:
                np.copyto(view, source)

    def _take(self, outputs: Sequence[Bytes]) -> None:
        for result, place in zip(outputs, self._layout.outputs, strict=True):
            with self._mapped(cl.map_flags.READ, *place) as view:
                np.copyto(result, view)

    @contextmanager
    def _mapped(self, access: int, offset: int, size: int) -> Iterator[Bytes]:
        view, _ = cl.enqueue_map_buffer(
            self._queue, self._arena, access, offset, (size,), np.uint8, is_blocking=True
        )
        try:
            yield view
        finally:
            _unmap(view.base, self._queue)


class Direct(Copied):
    """Copied by the host into the arena, whose memory is the host's; one picture at a time.

    The arena stays mapped while kernels run. OpenCL 1.2 does not say what they see then, so only
    `Device.shares_memory` and a comparison of a run's bytes (DeviceBench.transfers) allow it. The
    memory is the driver's, which keeps it to the end of what it runs.
    """

    def __init__(
        self,
        device: Device,
        queue: cl.CommandQueue,
        arena: cl.Buffer,
        layout: Layout,
        enqueue: Enqueue,
    ) -> None:
        """`enqueue`: puts all launches into the queue. Raises DeviceError."""
        super().__init__(device, queue, arena, layout, enqueue)
        access = cl.map_flags.READ | cl.map_flags.WRITE
        with device.calling("mapping the arena"):
            whole: Bytes = cl.enqueue_map_buffer(
                queue, arena, access, 0, (layout.arena_bytes,), np.uint8
            )[0]
        self._unmap = weakref.finalize(self, _unmap_if_possible, whole.base, queue)
        self._unmap.atexit = False
        # Small copies: writing through a memoryview is faster, and reading through an array.
        self._inputs = [whole.data[at : at + size] for at, size in layout.inputs]
        self._outputs = [whole[at : at + size] for at, size in layout.outputs]
        self._waiting: Sequence[Bytes] = ()
        self._is_running = False

    def run(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        """Run once, from host bytes to host bytes; raises DeviceError."""
        with self._running:
            self._begin(inputs)
            if self.events:
                self.events[-1].wait()  # it is faster than `finish`
            else:
                self._queue.finish()
            self._is_running = False
            self.down(outputs)

    def submit(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        """Enqueue a run; the outputs are the device's until `wait`."""
        self.wait()
        with self._running:
            self._begin(inputs)
            self._queue.flush()
        self._waiting = outputs

    def wait(self) -> None:
        """Return when the submitted run's outputs are there."""
        with self._running:
            self._end()
        if self._waiting:
            waiting, self._waiting = self._waiting, ()
            self.down(waiting)

    def up(self, inputs: Sequence[Bytes]) -> None:
        """Copy the inputs alone; raises DeviceError."""
        with self._running:
            self._end()
        self._put(inputs)

    def down(self, outputs: Sequence[Bytes]) -> None:
        """Copy the outputs alone."""
        for result, place in zip(outputs, self._outputs, strict=True):
            result[:] = place

    def _put(self, inputs: Sequence[Bytes]) -> None:
        for place, source in zip(self._inputs, inputs, strict=True):
            place[:] = source.data

    def _begin(self, inputs: Sequence[Bytes]) -> None:
        if self._is_running:  # Ctrl-C or an error ended the run before while kernels ran
            self._end()
        self._put(inputs)
        self._is_running = True
        self.events = self._enqueue()

    def _end(self) -> None:
        """Wait until no kernel works in the arena."""
        if self._is_running:
            self._queue.finish()
        self._is_running = False

    def close(self) -> None:
        """Unmap the arena, behind all that was put into the queue; later runs fail."""
        self._inputs, self._outputs = [], []
        self._unmap()


class Pinned(Copied):
    """Copied by the host into pinned memory, and from there by the device."""

    _staging: tuple[list[Bytes], list[Bytes]] | None = None

    def run(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        """Run once, from host bytes to host bytes; raises DeviceError."""
        staged_inputs, staged_outputs = self._staged()
        for staged, source in zip(staged_inputs, inputs, strict=True):
            np.copyto(staged, source)
        super().run(staged_inputs, staged_outputs)
        for result, staged in zip(outputs, staged_outputs, strict=True):
            np.copyto(result, staged)

    def up(self, inputs: Sequence[Bytes]) -> None:
        """Copy the inputs alone, and wait for that; raises DeviceError."""
        staged_inputs, _ = self._staged()
        for staged, source in zip(staged_inputs, inputs, strict=True):
            np.copyto(staged, source)
        super().up(staged_inputs)

    def down(self, outputs: Sequence[Bytes]) -> None:
        """Copy the outputs alone, and wait for that; raises DeviceError."""
        _, staged_outputs = self._staged()
        super().down(staged_outputs)
        for result, staged in zip(outputs, staged_outputs, strict=True):
            np.copyto(result, staged)

    def _staged(self) -> tuple[list[Bytes], list[Bytes]]:
        if self._staging is None:
            layout = self._layout
            sizes = [layout.batch * size for _, size in (*layout.inputs, *layout.outputs)]
            made = [self.host_array(size) for size in sizes]
            self._staging = made[: len(layout.inputs)], made[len(layout.inputs) :]
        return self._staging

    def host_array(self, size: int) -> Bytes:
        """Return pinned bytes, undefined; raises DeviceError where the driver refuses them."""
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        pinned = self._device.buffer("pinned memory", flags, size)
        with self._device.calling(f"mapping {size >> 10} KiB of pinned memory"):
            # The array keeps the mapping, and that the buffer.
            array: Bytes = cl.enqueue_map_buffer(
                self._queue, pinned, cl.map_flags.READ | cl.map_flags.WRITE, 0, (size,), np.uint8
            )[0]
        weakref.finalize(array, _unmap_if_possible, array.base, self._queue).atexit = False
        return array


def _unmap(mapping: cl.MemoryMap, queue: cl.CommandQueue) -> None:
    """Give mapped memory back.

    If the driver refuses that, pyopencl asks again where it frees the object, and a second refusal
    ends the process. So the object is never freed then.
    """
    try:
        mapping.release(queue)
    except cl.Error:
        keep_for_good(mapping)
        raise


def _unmap_if_possible(mapping: cl.MemoryMap, queue: cl.CommandQueue) -> None:
    with contextlib.suppress(cl.Error):  # of a lost device
        _unmap(mapping, queue)


COPIED, MAPPED, PINNED, DIRECT = "copied", "mapped", "pinned", "direct"
TRANSFERS = {COPIED: Copied, MAPPED: Mapped, PINNED: Pinned, DIRECT: Direct}
# What the choice among them is remembered by: with another way it is made anew.
CROSSING = f"transfer: {', '.join(TRANSFERS)}"


def transfer_for(name: str, batch: int, shares_memory: bool) -> type[Copied]:
    """Return the transfer of this name, or what stands for it here.

    A batch is never mapped, as its pictures lie apart. `shares_memory`: the device, with the host.
    """
    is_mapped = name in (MAPPED, DIRECT)
    is_possible = not (is_mapped and batch > 1) and (shares_memory or name != DIRECT)
    return TRANSFERS[name if is_possible else COPIED]
