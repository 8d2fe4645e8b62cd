# SPDX-License-Identifier: Apache-2.0
"""Values that outlive runs, in the device's memory.

A value stays in the arena of the executor that made it, where the next run finds it. It is copied
for another executor that has another arena, and to a buffer of its own if the arena goes. All that
share a State run in the device's one queue, so each run sees what the one before has kept.
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
    """Those in the memory of a device that this process has.

    Attributes:
        device: where they are.
        resident: the token of the StateBinding whose next run finds all values in place.
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
            # Executors that were made before have the arena before, and the new value's place is
            # behind all that they know.
            self._arena = None

    def arena(self, size: int, region: Region) -> Arena | None:
        """Return what an executor shares with others, of so many bytes at least.

        `region`: that it was planned with. None: they share none, or with another region.
        Raises: DeviceError: no room.
        """
        if not self._has_arena or region != self.region:
            return None
        with self.lock:
            if self._arena is None or self._arena.buffer.size < size:
                made = self.device.buffer("memory", cl.mem_flags.READ_WRITE, size)
                # Touching every byte makes a lazy driver allocate now, not within a run.
                cl.enqueue_copy(self.device.queue, made, np.zeros(size, np.uint8))
                if self._arena is None:
                    self._arena = Arena(made)
                else:
                    self._arena.replace(made)
            return self._arena

    def own_buffer(self, name: str) -> Location:
        """Return the place of a value in a buffer of its own; raises DeviceError: no room."""
        value = self.by_name[name]
        if value.own_buffer is None:
            size = max(value.initial.nbytes, 1)
            made = self.device.buffer(f"state {name}", cl.mem_flags.READ_WRITE, size)
            value.own_buffer = Location(made, 0, value.initial[0].nbytes)
        return value.own_buffer

    def reset(self) -> None:
        """Begin every value anew, also after a run that failed."""
        with self.lock:
            self.resident = None
            for value in self.by_name.values():
                value.set_values(value.initial)
            self._lost = ""

    def values(self) -> dict[str, Values]:
        """Return a copy of each value, of all pictures; raises DeviceError, also if it is lost."""
        with self.lock:
            self.require()
            with self.device.calling("reading state"):
                return {name: each.read(self.device.queue) for name, each in self.by_name.items()}

    def _put(self, values: Mapping[str, Values]) -> None:
        for name, new in values.items():
            self.by_name[name].set_values(np.array(new))
        self.resident = None

    def close(self) -> None:
        """Give the device's memory back; a second call does nothing."""
        with self.lock:
            self.by_name, self._arena = {}, None


class StateGuard:
    """A context of a driver's calls, as `opencl`, in which an error or Ctrl-C loses a state."""

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
