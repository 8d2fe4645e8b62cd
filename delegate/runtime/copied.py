# SPDX-License-Identifier: Apache-2.0
"""A run's bytes copied by the driver; what the other ways of delegate.runtime.transfers follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyopencl as cl

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

    def close(self) -> None:
        """Give back what it holds of the arena; later runs fail."""

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
