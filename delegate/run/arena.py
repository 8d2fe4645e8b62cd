# SPDX-License-Identifier: Apache-2.0
"""Where a kept value lies: in arenas, in its own buffer, or with the host until a run needs it.

Executors that run one after the other may have one arena. The kept values begin it, at the same
places for each of them, so that no run copies what the run of another one left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from delegate.graph.ir import Tensor
from delegate.launch import element_type
from delegate.plan.layout import Bytes, as_bytes

Values = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Location:
    """Where a value may lie: in an arena, or in a buffer of its own."""

    buffer: cl.Buffer
    offset: int  # of the first picture's
    step: int  # bytes to the next picture's


@dataclass(slots=True, eq=False)
class Arena:
    """What executors share.

    Attributes:
        buffer: a larger one comes in its place when an executor needs that.
        locations: of what lies in this buffer, by offset.
        is_running: whether kernels may work in it.
        last_token: the mark of the executor whose constants lie in it, beside the kept values.
    """

    buffer: cl.Buffer
    locations: dict[int, Location] = field(default_factory=dict)
    is_running: bool = False
    last_token: object = None

    def replace(self, buffer: cl.Buffer) -> None:
        """Go on in another buffer, to which values come when a run needs them."""
        self.buffer, self.locations, self.last_token = buffer, {}, None


@dataclass(slots=True, eq=False)
class PersistentValue:
    """A value, and all places where it lies now; where there is none the host has it."""

    initial: Values  # in the shape of all pictures
    host: Values
    locations: set[Location] = field(default_factory=set)
    own_buffer: Location | None = None  # in its own buffer

    def matches(self, tensor: Tensor) -> bool:
        """Whether it has a tensor's shape and type."""
        own = self.initial.shape[1:], self.initial.dtype
        return own == (tensor.shape, element_type(tensor.dtype))

    def set_values(self, values: Values) -> None:
        """Be this from here on."""
        self.host, self.locations = values, set()

    def copy_to(self, queue: cl.CommandQueue, location: Location) -> None:
        """Enqueue what brings it to a place, too."""
        if location in self.locations:
            return
        if self.locations:
            self.copy(queue, next(iter(self.locations)), location)
        else:
            for slot in self._slots():
                at = location.offset + slot * location.step
                cl.enqueue_copy(queue, location.buffer, _content(self.host[slot]), dst_offset=at)
        self.locations.add(location)
        self.host = self.initial  # no other array is kept for nothing

    def copy(self, queue: cl.CommandQueue, source: Location, target: Location) -> None:
        """Enqueue a copy of all pictures'."""
        for slot in self._slots() if source is not target else ():
            cl.enqueue_copy(
                queue, target.buffer, source.buffer, byte_count=self.initial[0].nbytes,
                src_offset=source.offset + slot * source.step,
                dst_offset=target.offset + slot * target.step,
            )  # fmt: skip

    def read(self, queue: cl.CommandQueue) -> Values:
        """Return what it is, once all that was enqueued has ended."""
        if not self.locations:
            return np.array(self.host)
        location, values = (
            next(iter(self.locations)),
            np.empty(self.initial.shape, self.initial.dtype),
        )
        for slot in self._slots():
            at = location.offset + slot * location.step
            # A slice, as one value by itself is no memory that can be written.
            cl.enqueue_copy(queue, values[slot : slot + 1], location.buffer, src_offset=at)
        return values

    def _slots(self) -> range:
        return range(len(self.initial) if self.initial.size else 0)


def _content(values: Values) -> Bytes:
    """Return a value's bytes; caches that all begin with zeros go up from one place."""
    if any(values.strides):
        return as_bytes(values)
    return _repeated(values.dtype, values.size, values.flat[0].tobytes())


@lru_cache(maxsize=1)
def _repeated(dtype: np.dtype[Any], size: int, value: bytes) -> Bytes:
    return as_bytes(np.full(size, np.frombuffer(value, dtype)[0]))
