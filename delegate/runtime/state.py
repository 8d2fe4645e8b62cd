# SPDX-License-Identifier: Apache-2.0
"""Values that outlive runs, in the device's memory: a buffer each, beside arenas and constants.

Executors bring the values to their arenas before a run, and keep the new ones after it. All that
share a State run in the device's one queue, so each run sees what the one before has kept.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from delegate.errors import DeviceError
from delegate.graph.ir import Tensor
from delegate.launch import element_type, size_bytes
from delegate.runtime.context import opencl
from delegate.runtime.device import Device
from delegate.runtime.layout import Layout, as_bytes

Values = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class _Value:
    """A value in memory of its own."""

    buffer: cl.Buffer
    size_bytes: int  # of one picture's
    initial: Values  # in the shape of all pictures

    def is_of(self, tensor: Tensor) -> bool:
        """Whether it has a tensor's shape and type."""
        own = self.initial.shape[1:], self.initial.dtype
        return own == (tensor.shape, element_type(tensor.dtype))


class _Copy(NamedTuple):
    """Bytes of a picture that go from one buffer to the other."""

    name: str
    offset: int  # in the arena
    of_state: int  # in the value's buffer
    size: int


class State:
    """The kept values of an interpreter, or of a Model's stream of runs.

    `batch` pictures have a value each.
    """

    def __init__(self, device: Device, batch: int = 1, remedy: str = "reset it") -> None:
        """`remedy`: what whoever lost it is told to do."""
        self._device = device
        self._remedy = remedy
        self._batch = batch
        self._values: dict[str, _Value] = {}
        self._lost = ""  # why no value can be trusted
        # One that a thread may take again: a signal's handler may reset what its thread runs.
        self._lock = threading.RLock()

    def add(self, tensors: Iterable[Tensor], initial: Mapping[str, Values] | None = None) -> None:
        """Take memory for the values of these tensors that are not there, and begin them.

        `initial`: what they begin with, by name; else as TFLite's variables: an int8 tensor with
        its zero point, others with zero bytes. One that is there in another shape begins anew.

        Raises:
            DeviceError: no room, or a failed OpenCL call.
        """
        with self._lock:
            for tensor in tensors:
                found = self._values.get(tensor.kept)
                if found is not None and found.is_of(tensor):
                    continue
                if found is not None:
                    found.buffer.release()
                    del self._values[tensor.kept]
                values = _beginning(tensor, self._batch, (initial or {}).get(tensor.kept))
                access, size = cl.mem_flags.READ_WRITE, max(values.nbytes, 1)
                buffer = self._device.buffer(f"state {tensor.kept}", access, size)
                self._values[tensor.kept] = _Value(buffer, size_bytes(tensor), values)
                self._write(tensor.kept, values)

    def has(self, tensor: Tensor) -> bool:
        """Whether it keeps the value of which this is a version."""
        return tensor.kept in self._values

    @property
    def size_bytes(self) -> int:
        """The device's memory that it takes."""
        return sum(value.initial.nbytes for value in self._values.values())

    def reset(self) -> None:
        """Begin every value anew, also after a run that failed; raises DeviceError."""
        with self._lock:
            for name, value in self._values.items():
                self._write(name, value.initial)
            self._lost = ""

    def values(self) -> dict[str, Values]:
        """Return a copy of each value, of all pictures; raises DeviceError, also if it is lost."""
        with self._lock:
            self.require()
            copies = {name: np.empty_like(value.initial) for name, value in self._values.items()}
            with self._device.calling("reading state"):
                for name, values in copies.items():
                    if values.nbytes:
                        cl.enqueue_copy(self._device.queue, values, self._values[name].buffer)
            return copies

    def put(self, values: Mapping[str, Values]) -> None:
        """Go on with these in the place of the values; those that are left out stay.

        Raises:
            ValueError: no value has such a name, shape and type. DeviceError: also if what is left
                out is lost.
        """
        with self._lock:
            for name, given in values.items():
                if name not in self._values:
                    known = ", ".join(map(repr, self._values)) or "none"
                    raise ValueError(f"no state is named {name!r}; there is: {known}")
                own = self._values[name].initial
                array = np.asarray(given)
                if (array.shape, array.dtype) != (own.shape, own.dtype):
                    raise ValueError(
                        f"state {name!r} is {own.dtype} of shape {own.shape}, and "
                        f"{array.dtype} of shape {array.shape} is given"
                    )
            if self._values.keys() - values.keys():
                self.require()
            for name, given in values.items():
                self._write(name, np.asarray(given))
            self._lost = ""

    def lose(self, why: str) -> None:
        """Trust no value any more, until `reset`."""
        self._lost = self._lost or why

    def require(self) -> None:
        """Return if the values are those that the last run left; raises DeviceError."""
        if self._lost:
            raise DeviceError(f"the state is lost, as a run failed ({self._lost}): {self._remedy}")

    def link(self, layout: Layout, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Link:
        """Return what joins it with an arena; of the program's tensors those that are kept."""
        read, kept = (
            [
                _Copy(tensor.kept, slot * layout.slot_bytes + at, slot * size, size)
                for tensor, (at, size) in zip(tensors, places, strict=True)
                for slot in range(layout.batch)
                if self.has(tensor) and size
            ]
            for tensors, places in ((inputs, layout.inputs), (outputs, layout.outputs))
        )
        return Link(self, read, kept)

    def copy(self, queue: cl.CommandQueue, arena: cl.Buffer, each: _Copy, is_read: bool) -> None:
        """Enqueue a copy to the arena, or from it."""
        buffer = self._values[each.name].buffer
        ends = (arena, buffer) if is_read else (buffer, arena)
        offsets = (each.offset, each.of_state) if is_read else (each.of_state, each.offset)
        cl.enqueue_copy(
            queue, *ends, dst_offset=offsets[0], src_offset=offsets[1], byte_count=each.size
        )

    def close(self) -> None:
        """Give the device's memory back; a second call does nothing."""
        with self._lock:
            values, self._values = self._values, {}
            for value in values.values():
                value.buffer.release()

    def _write(self, name: str, values: Values) -> None:
        if values.nbytes:
            with self._device.calling("writing state"):
                cl.enqueue_copy(self._device.queue, self._values[name].buffer, as_bytes(values))


class Link:
    """A State and the arena of one executor."""

    def __init__(self, state: State, read: Sequence[_Copy], kept: Sequence[_Copy]) -> None:
        self.state = state
        self._read, self._kept = read, kept

    def restore(self, queue: cl.CommandQueue, arena: cl.Buffer) -> None:
        """Enqueue what brings the values to the arena; raises DeviceError where they are lost."""
        self.state.require()
        for each in self._read:
            self.state.copy(queue, arena, each, is_read=True)

    def keep(self, queue: cl.CommandQueue, arena: cl.Buffer) -> None:
        """Enqueue what keeps the arena's new values."""
        for each in self._kept:
            self.state.copy(queue, arena, each, is_read=False)


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
    """Return a value's first content, in the shape (batch, *tensor's).

    Source: tflite/core/subgraph.cc ResetVariableTensors
    """
    dtype = element_type(tensor.dtype)
    if initial is None:
        zero_points = tensor.quantization.zero_point if tensor.quantization is not None else ()
        zero = zero_points[0] if zero_points and dtype == np.int8 else 0
        initial = np.full(tensor.shape, zero, dtype)
    whole = np.broadcast_to(initial.astype(dtype).reshape(tensor.shape), (batch, *tensor.shape))
    return np.ascontiguousarray(whole)
