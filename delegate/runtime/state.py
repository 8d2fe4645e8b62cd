# SPDX-License-Identifier: Apache-2.0
"""Values that outlive runs, in the device's memory.

A value stays in the arena of the executor that made it, where the next run finds it. It is copied
for another executor, and to a buffer of its own for who reads it, or if the arena goes. All that
share a State run in the device's one queue, so each run sees what the one before has kept.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
class _Place:
    """Where a value may lie: in an arena, or in a buffer of its own."""

    buffer: cl.Buffer
    offset: int  # of the first picture's
    step: int  # bytes to the next picture's


@dataclass(slots=True, eq=False)
class _Value:
    """A value, and all places where it lies now: one or more."""

    own: _Place
    initial: Values  # in the shape of all pictures
    places: set[_Place]

    def is_of(self, tensor: Tensor) -> bool:
        """Whether it has a tensor's shape and type."""
        own = self.initial.shape[1:], self.initial.dtype
        return own == (tensor.shape, element_type(tensor.dtype))

    def bring(self, queue: cl.CommandQueue, place: _Place) -> None:
        """Enqueue what brings it to a place, too."""
        if place not in self.places:
            self.copy(queue, next(iter(self.places)), place)
            self.places.add(place)

    def copy(self, queue: cl.CommandQueue, source: _Place, target: _Place) -> None:
        """Enqueue a copy of all pictures'."""
        for slot in range(len(self.initial) if self.initial.size and source is not target else 0):
            cl.enqueue_copy(
                queue, target.buffer, source.buffer, byte_count=self.initial[0].nbytes,
                src_offset=source.offset + slot * source.step,
                dst_offset=target.offset + slot * target.step,
            )  # fmt: skip


class State:
    """The kept values of an interpreter, or of a Model's stream of runs.

    Attributes:
        by_name: the values; lock: for them; device: where they are.
        settled: the mark of the Link whose last run left all values where its next one finds them.
    """

    def __init__(self, device: Device, batch: int = 1, remedy: str = "reset it") -> None:
        """`batch` pictures have a value each. `remedy`: what whoever lost it is told to do."""
        self.device = device
        self._remedy = remedy
        self._batch = batch
        self.by_name: dict[str, _Value] = {}
        self.settled: object = None
        self._lost = ""  # why no value can be trusted
        # One that a thread may take again: a signal's handler may reset what its thread runs.
        self.lock = threading.RLock()

    def add(self, tensors: Iterable[Tensor], initial: Mapping[str, Values] | None = None) -> None:
        """Take memory for the values of these tensors that are not there, and begin them.

        `initial`: what they begin with, by name; else as TFLite's variables: an int8 tensor with
        its zero point, others with zero bytes. One that is there in another shape begins anew.

        Raises:
            DeviceError: no room, or a failed OpenCL call.
        """
        with self.lock:
            for tensor in tensors:
                found = self.by_name.get(tensor.kept)
                if found is not None and found.is_of(tensor):
                    continue
                if found is not None:
                    found.own.buffer.release()
                    del self.by_name[tensor.kept]
                values = _beginning(tensor, self._batch, (initial or {}).get(tensor.kept))
                access, size = cl.mem_flags.READ_WRITE, max(values.nbytes, 1)
                buffer = self.device.buffer(f"state {tensor.kept}", access, size)
                own = _Place(buffer, 0, size_bytes(tensor))
                self.by_name[tensor.kept] = _Value(own, values, {own})
                self._write(tensor.kept, values)

    def has(self, tensor: Tensor) -> bool:
        """Whether it keeps the value of which this is a version."""
        return tensor.kept in self.by_name

    @property
    def size_bytes(self) -> int:
        """The device's memory that it takes."""
        return sum(value.initial.nbytes for value in self.by_name.values())

    def reset(self) -> None:
        """Begin every value anew, also after a run that failed; raises DeviceError."""
        with self.lock:
            for name, value in self.by_name.items():
                self._write(name, value.initial)
            self._lost = ""

    def values(self) -> dict[str, Values]:
        """Return a copy of each value, of all pictures; raises DeviceError, also if it is lost."""
        with self.lock:
            self.require()
            self.settled = None
            copies = {name: np.empty_like(value.initial) for name, value in self.by_name.items()}
            with self.device.calling("reading state"):
                for name, values in copies.items():
                    value = self.by_name[name]
                    value.bring(self.device.queue, value.own)
                    if values.nbytes:
                        cl.enqueue_copy(self.device.queue, values, value.own.buffer)
            return copies

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
                self._write(name, np.asarray(given))
            self._lost = ""

    def lose(self, why: str) -> None:
        """Trust no value any more, until `reset`."""
        self._lost = self._lost or why

    def require(self) -> None:
        """Return if the values are those that the last run left; raises DeviceError."""
        if self._lost:
            raise DeviceError(f"the state is lost, as a run failed ({self._lost}): {self._remedy}")

    def link(
        self, arena: cl.Buffer, layout: Layout, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> Link:
        """Return what joins it with an arena; of the program's tensors those that are kept."""
        offsets = {*layout.offsets.values()}
        at = {offset: _Place(arena, offset, layout.slot_bytes) for offset in offsets}
        ends = zip(inputs, layout.inputs, strict=True)
        found = {tensor.kept: at[offset] for tensor, (offset, _) in ends if self.has(tensor)}
        made = [at[offset] for offset, _ in layout.outputs]
        left: list[tuple[str, _Place, _Place | None]] = []
        for tensor, place in zip(outputs, made, strict=True):
            if self.has(tensor):
                home = found.get(tensor.kept)
                # The old value may be an output, too, or another value's next one.
                is_free = home is place or home not in made
                left.append((tensor.kept, place, home if is_free else None))
        return Link(self, found, left)

    def close(self) -> None:
        """Give the device's memory back; a second call does nothing."""
        with self.lock:
            values, self.by_name = self.by_name, {}
            for value in values.values():
                value.own.buffer.release()

    def _write(self, name: str, values: Values) -> None:
        value, self.settled = self.by_name[name], None
        with Guarded(self.device.calling("writing state"), self):
            value.places = {value.own}
            if values.nbytes:
                cl.enqueue_copy(self.device.queue, value.own.buffer, as_bytes(values))


class Link:
    """A State and the arena of one executor."""

    def __init__(
        self,
        state: State,
        found: Mapping[str, _Place],
        left: Sequence[tuple[str, _Place, _Place | None]],
    ) -> None:
        """`found`: where a run finds values in the arena. Nothing but new ones is written there.

        `left`: each new value, where a run makes it, and where it goes before outputs are taken: to
        where the next run finds it, or, if None, to its own buffer.
        """
        self.state, self._found, self._left = state, found, left
        # The Link in its place would make a circle, which holds the device's context.
        self._mark = object() if all(made is place for _, made, place in left) else None

    def restore(self) -> None:
        """Enqueue what brings the values to the arena; raises DeviceError where they are lost."""
        state = self.state
        with state.lock:
            state.require()
            if not (self._mark and state.settled is self._mark):
                state.settled = None
                for name, place in self._found.items():
                    state.by_name[name].bring(state.device.queue, place)

    def keep(self) -> None:
        """Enqueue what keeps the arena's new values."""
        state = self.state
        with state.lock:
            if self._mark and state.settled is self._mark:
                return
            for name, made, place in self._left:
                value = state.by_name[name]
                value.copy(state.device.queue, made, place or value.own)
                value.places = {place or value.own}
            state.settled = self._mark

    def leave(self) -> None:
        """Take the values out of the arena, which may be given back then, or be written to.

        They are lost where that fails.
        """
        state, queue = self.state, self.state.device.queue
        with state.lock:
            state.settled = None
            found = [(state.by_name.get(name), place) for name, place in self._found.items()]
            held = [(value, place) for value, place in found if value and place in value.places]
            if not held:
                return
            calls = Guarded(state.device.calling("keeping state"), state)
            with contextlib.suppress(DeviceError), calls:
                for value, _ in held:
                    value.bring(queue, value.own)
                queue.finish()
            for value, place in held:
                value.places = value.places - {place} or {value.own}


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
