# SPDX-License-Identifier: Apache-2.0
"""Values that outlive runs, in the device's memory.

A value stays in the arena of the executor that made it, where the next run finds it. It is copied
for another executor that has another arena, and to a buffer of its own if the arena goes. All that
share a State run in the device's one queue, so each run sees what the one before has kept.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyopencl as cl

from delegate.errors import DeviceError
from delegate.graph.ir import Tensor
from delegate.launch import element_type
from delegate.runtime.context import opencl
from delegate.runtime.device import Device
from delegate.runtime.layout import NOWHERE, Region, as_bytes, room_of
from delegate.runtime.places import Arena, Place, Value, Values


class State:
    """The kept values of an interpreter, or of a Model's stream of runs.

    Attributes:
        by_name: the values; lock: for them; device: where they are.
        settled: the mark of the Link whose last run left all values where its next one finds them.
        region: where the values begin the arena that executors share; NOWHERE: each has its own.
    """

    def __init__(
        self, device: Device, batch: int = 1, remedy: str = "reset it", has_arena: bool = False
    ) -> None:
        """`batch` pictures have a value each. `remedy`: what whoever lost it is told to do.

        `has_arena`: executors share an arena, as each run ends before the next one begins.
        """
        self.device = device
        self.region = NOWHERE
        self._remedy = remedy
        self._batch = batch
        self._has_arena = has_arena
        self._arena: Arena | None = None
        self.by_name: dict[str, Value] = {}
        self.settled: object = None
        self._lost = ""  # why no value can be trusted
        # One that a thread may take again: a signal's handler may reset what its thread runs.
        self.lock = threading.RLock()

    def add(self, tensors: Iterable[Tensor], initial: Mapping[str, Values] | None = None) -> None:
        """Begin the values of these tensors that are not there.

        `initial`: what they begin with, by name; else as TFLite's variables: an int8 tensor with
        its zero point, others with zero bytes. One that is there in another shape begins anew.
        """
        with self.lock:
            for tensor in tensors:
                found = self.by_name.get(tensor.kept)
                if found is not None and found.is_of(tensor):
                    continue
                values = _beginning(tensor, self._batch, (initial or {}).get(tensor.kept))
                self.by_name[tensor.kept] = Value(values, values)
                self.settled = None
                if self._has_arena:
                    # Executors that were made before have the arena before, and this one's place
                    # is behind all that they know.
                    offsets, end = self.region
                    offsets = {**offsets, tensor.kept: end}
                    self.region, self._arena = Region(offsets, end + room_of(tensor)), None

    def has(self, tensor: Tensor) -> bool:
        """Whether it keeps the value of which this is a version."""
        return tensor.kept in self.by_name

    def arena(self, size: int) -> Arena | None:
        """Return what an executor with this region shares with others, of so many bytes at least.

        None: they share none. Raises: DeviceError: no room.
        """
        if not self._has_arena:
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

    def own(self, name: str) -> Place:
        """Return the place of a value in a buffer of its own; raises DeviceError: no room."""
        value = self.by_name[name]
        if value.own is None:
            size = max(value.initial.nbytes, 1)
            made = self.device.buffer(f"state {name}", cl.mem_flags.READ_WRITE, size)
            value.own = Place(made, 0, value.initial[0].nbytes)
        return value.own

    def reset(self) -> None:
        """Begin every value anew, also after a run that failed."""
        with self.lock:
            self.settled = None
            for value in self.by_name.values():
                value.become(value.initial)
            self._lost = ""

    def values(self) -> dict[str, Values]:
        """Return a copy of each value, of all pictures; raises DeviceError, also if it is lost."""
        with self.lock:
            self.require()
            with self.device.calling("reading state"):
                return {name: each.read(self.device.queue) for name, each in self.by_name.items()}

    def put(self, values: Mapping[str, Values]) -> None:
        """Go on with these in the place of the values; those that are left out stay.

        Raises:
            ValueError: no value has such a name, shape and type. DeviceError: also if what is left
                out is lost.
        """
        with self.lock:
            for name, given in values.items():
                if name not in self.by_name:
                    known = ", ".join(map(repr, self.by_name)) or "none"
                    raise ValueError(f"no state is named {name!r}; there is: {known}")
                own = self.by_name[name].initial
                array = np.asarray(given)
                if (array.shape, array.dtype) != (own.shape, own.dtype):
                    raise ValueError(
                        f"state {name!r} is {own.dtype} of shape {own.shape}, and "
                        f"{array.dtype} of shape {array.shape} is given"
                    )
            if self.by_name.keys() - values.keys():
                self.require()
            for name, given in values.items():
                self.by_name[name].become(np.array(given))
            self._lost, self.settled = "", None

    def lose(self, why: str) -> None:
        """Trust no value any more, until `reset`."""
        self._lost = self._lost or why

    def require(self) -> None:
        """Return if the values are those that the last run left; raises DeviceError."""
        if self._lost:
            raise DeviceError(f"the state is lost, as a run failed ({self._lost}): {self._remedy}")

    def close(self) -> None:
        """Give the device's memory back; a second call does nothing."""
        with self.lock:
            self.by_name, self._arena = {}, None


class Guarded:
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


def _beginning(tensor: Tensor, batch: int, initial: Values | None) -> Values:
    """Return a value's first content, in the shape (batch, *tensor's); zeros lie there once.

    Source: tflite/core/subgraph.cc ResetVariableTensors
    """
    dtype = element_type(tensor.dtype)
    if initial is None:
        zero_points = tensor.quantization.zero_point if tensor.quantization is not None else ()
        initial = np.array(zero_points[0] if zero_points and dtype == np.int8 else 0, dtype)
    elif as_bytes(initial).any():
        initial = initial.astype(dtype).reshape(tensor.shape)  # a copy: it may be TFLite's memory
    else:
        initial = np.zeros((), dtype)
    return np.broadcast_to(initial, (batch, *tensor.shape))
