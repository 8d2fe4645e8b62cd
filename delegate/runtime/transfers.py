# SPDX-License-Identifier: Apache-2.0
"""How a run's bytes cross: copied by the driver, into mapped memory, or through pinned memory."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyopencl as cl

from delegate.process import keep_for_good
from delegate.runtime.device import Device
from delegate.runtime.layout import Bytes, Layout

Enqueue = Callable[[], list[cl.Event]]


class Copied:
    """Copied by the driver, from and to any memory of the host.

    Attributes:
        events: of the last run's launches.
    """

    def __init__(
        self,
        device: Device,
        queue: cl.CommandQueue,
        arena: cl.Buffer,
        layout: Layout,
        enqueue: Enqueue,
    ) -> None:
        """`enqueue`: puts all launches into the queue."""
        self.events: list[cl.Event] = []
        self._device = device
        self._queue = queue
        self._arena = arena
        self._layout = layout
        self._enqueue = enqueue
        self._copies: list[object] = []
        # Made once: networks of a few microseconds notice it.
        self._running = device.calling("running")
        self._input_places = [self._place(place, True) for place in layout.inputs]
        self._output_places = [self._place(place, False) for place in layout.outputs]

    def run(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        """Run once, from host bytes to host bytes; raises DeviceError."""
        with self._running:
            self._copies = self._submitted(inputs, outputs)
            self._queue.finish()
        self._copies = []

    def submit(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        """Enqueue a run; the arrays are the device's until `wait`."""
        with self._running:
            self._copies = self._submitted(inputs, outputs)
            self._queue.flush()

    def wait(self) -> None:
        """Return when the submitted run's outputs are there."""
        with self._running:
            self._queue.finish()
        self._copies = []

    def up(self, inputs: Sequence[Bytes]) -> None:
        """Copy the inputs alone, and wait for that; raises DeviceError."""
        with self._running:
            for source, place in zip(inputs, self._input_places, strict=True):
                cl.enqueue_copy(self._queue, self._arena, source, **place)
            self._queue.finish()

    def down(self, outputs: Sequence[Bytes]) -> None:
        """Copy the outputs alone, and wait for that; raises DeviceError."""
        with self._running:
            for result, place in zip(outputs, self._output_places, strict=True):
                cl.enqueue_copy(self._queue, result, self._arena, **place)

    def host_array(self, size: int) -> Bytes:
        """Return host bytes that are fast for `submit` to copy from and to; undefined values."""
        return np.zeros(size, np.uint8)

    def _submitted(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> list[object]:
        """Enqueue a run; return its copies.

        NOTE: pyopencl waits for a copy whose event is dropped, so they are held to the end.
        """
        queue, arena = self._queue, self._arena
        copies: list[object] = [
            cl.enqueue_copy(queue, arena, source, is_blocking=False, **place)
            for source, place in zip(inputs, self._input_places, strict=True)
        ]
        self.events = self._enqueue()
        copies += [
            cl.enqueue_copy(queue, result, arena, is_blocking=False, **place)
            for result, place in zip(outputs, self._output_places, strict=True)
        ]
        return copies

    def _place(self, place: tuple[int, int], is_input: bool) -> dict[str, Any]:
        """The arguments that say where in the arena a tensor's bytes of all pictures lie."""
        offset, size = place
        if self._layout.batch == 1:
            return {"dst_offset" if is_input else "src_offset": offset}
        return {
            "buffer_origin": (offset, 0, 0),
            "host_origin": (0, 0, 0),
            "region": (size, self._layout.batch, 1),
            "buffer_pitches": (self._layout.slot_bytes, 0),
            "host_pitches": (size, 0),
        }


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


class Pinned(Copied):
    """Copied by the host into pinned memory, and from there by the device."""

    _staging: tuple[list[Bytes], list[Bytes]] | None = None

    def run(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        """Run once, from host bytes to host bytes; raises DeviceError."""
        staged_inputs, staged_outputs = self._staged()
        for staged, source in zip(staged_inputs, inputs, strict=True):
            np.copyto(staged, source)
        self.submit(staged_inputs, staged_outputs)
        self.wait()
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


TRANSFERS = {"copied": Copied, "mapped": Mapped, "pinned": Pinned}
COPIED = "copied"


def transfer_for(name: str, batch: int) -> type[Copied]:
    """Return the transfer of this name; a batch is never mapped, as its pictures lie apart."""
    return TRANSFERS[COPIED if name == "mapped" and batch > 1 else name]
