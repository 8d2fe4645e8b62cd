# SPDX-License-Identifier: Apache-2.0
"""Persistent tensors in device memory.

A value stays in the arena of the executor that produced it, where the next run finds it. It is
copied for an executor with another arena, and to its own buffer if the arena is freed. Executors
that share a State run in the device's one queue, so each run sees the values of the previous one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyopencl as cl

from delegate.errors import DeviceError
from delegate.plan.record import Region
from delegate.run.arena import Arena, Location, Values
from delegate.run.context import opencl
from delegate.run.device import Device
from delegate.run.persistent_tensors import PersistentTensors


class State(PersistentTensors):
    """The persistent tensors on a device that this process has opened.

    Attributes:
        device: that stores them.
        resident: token of the StateBinding whose next run finds all values in place.
    """

    def __init__(self, device: Device, *about: Any, **more: Any) -> None:
        """`about`, `more`: as PersistentTensors."""
        super().__init__(*about, **more)
        self.device = device
        self._arena: Arena | None = None
        self.resident: object = None

    def _value_added(self) -> None:
        self.resident = None
        if self._has_arena:
            # Existing executors keep the old arena; the new value's offset is beyond every
            # value they know.
            self._arena = None

    def arena(self, size: int, region: Region) -> Arena | None:
        """Return the shared arena, with at least `size` bytes.

        `region`: the executor was planned with. None: nothing to share, or another region.
        Raises: DeviceError: out of memory.
        """
        if not self._has_arena or region != self.region:
            return None
        with self.lock:
            if self._arena is None or self._arena.buffer.size < size:
                made = self.device.buffer("memory", cl.mem_flags.READ_WRITE, size)
                # Touching every byte makes a lazy driver allocate now, not during a run.
                cl.enqueue_copy(self.device.queue, made, np.zeros(size, np.uint8))
                if self._arena is None:
                    self._arena = Arena(made)
                else:
                    self._arena.replace(made)
            return self._arena

    def own_buffer(self, name: str) -> Location:
        """Return the location of a value's own buffer; raises DeviceError: out of memory."""
        value = self.by_name[name]
        if value.own_buffer is None:
            size = max(value.initial.nbytes, 1)
            made = self.device.buffer(f"state {name}", cl.mem_flags.READ_WRITE, size)
            value.own_buffer = Location(made, 0, value.initial[0].nbytes)
        return value.own_buffer

    def reset(self) -> None:
        """Reset every value, also after a failed run."""
        with self.lock:
            self.resident = None
            for value in self.by_name.values():
                value.set_values(value.initial)
            self._lost = ""

    def values(self) -> dict[str, Values]:
        """Return a copy of each value, for the whole batch; raises DeviceError, also on loss."""
        with self.lock:
            self.require()
            with self.device.calling("reading state"):
                return {name: each.read(self.device.queue) for name, each in self.by_name.items()}

    def _put(self, values: Mapping[str, Values]) -> None:
        for name, new in values.items():
            self.by_name[name].set_values(np.array(new))
        self.resident = None

    def close(self) -> None:
        """Free the device memory; a second call does nothing."""
        with self.lock:
            self.by_name, self._arena = {}, None


class StateGuard:
    """A context manager like `opencl`, in which an error or Ctrl-C also loses the state."""

    def __init__(self, calling: opencl, state: State) -> None:
        self._calling, self._state = calling, state

    def __enter__(self) -> None:
        self._calling.__enter__()

    def __exit__(self, *exception: Any) -> None:
        try:
            self._calling.__exit__(*exception)
        except DeviceError as error:
            self._state.lose(str(error))
            raise
        if exception[1] is not None:
            self._state.lose(str(exception[1]) or type(exception[1]).__name__)
