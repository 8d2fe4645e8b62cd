# SPDX-License-Identifier: Apache-2.0
"""Arenas and the storage of persistent tensors: an arena, an own buffer, or host memory.

Executors that run one after the other may share an arena. It begins with the persistent tensors,
at the same offsets for every executor, so that switching between executors copies nothing.
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
    """Where a value is stored: a range of an arena or of its own buffer."""

    buffer: cl.Buffer
    offset: int  # of the first batch element
    step: int  # bytes between batch elements


@dataclass(slots=True, eq=False)
class Arena:
    """Memory that several executors share.

    Attributes:
        buffer: replaced by a larger one when an executor needs it.
        locations: of the persistent values in this buffer, by offset.
        is_running: whether kernels may be running in it.
        last_token: of the executor whose constants it holds beside the persistent values.
    """

    buffer: cl.Buffer
    locations: dict[int, Location] = field(default_factory=dict)
    is_running: bool = False
    last_token: object = None

    def replace(self, buffer: cl.Buffer) -> None:
        """Switch to another buffer; values are copied to it when a run needs them."""
        self.buffer, self.locations, self.last_token = buffer, {}, None


@dataclass(slots=True, eq=False)
class PersistentValue:
    """A value and every location that holds a current copy; without one the host has it."""

    initial: Values  # for the whole batch
    host: Values
    locations: set[Location] = field(default_factory=set)
    own_buffer: Location | None = None  # in its own buffer

    def matches(self, tensor: Tensor) -> bool:
        """Whether it has the tensor's shape and type."""
        own = self.initial.shape[1:], self.initial.dtype
        return own == (tensor.shape, element_type(tensor.dtype))

    def set_values(self, values: Values) -> None:
        """Replace the value."""
        self.host, self.locations = values, set()

    def copy_to(self, queue: cl.CommandQueue, location: Location) -> None:
        """Enqueue a copy to another location, which then holds the value as well."""
        if location in self.locations:
            return
        if self.locations:
            self.copy(queue, next(iter(self.locations)), location)
        else:
            for slot in self._slots():
                at = location.offset + slot * location.step
                cl.enqueue_copy(queue, location.buffer, _content(self.host[slot]), dst_offset=at)
        self.locations.add(location)
        self.host = self.initial  # so that the other array can be freed

    def copy(self, queue: cl.CommandQueue, source: Location, target: Location) -> None:
        """Enqueue a copy of all batch elements."""
        for slot in self._slots() if source is not target else ():
            cl.enqueue_copy(
                queue, target.buffer, source.buffer, byte_count=self.initial[0].nbytes,
                src_offset=source.offset + slot * source.step,
                dst_offset=target.offset + slot * target.step,
            )  # fmt: skip

    def read(self, queue: cl.CommandQueue) -> Values:
        """Return the value once all enqueued work has finished."""
        if not self.locations:
            return np.array(self.host)
        location, values = (
            next(iter(self.locations)),
            np.empty(self.initial.shape, self.initial.dtype),
        )
        for slot in self._slots():
            at = location.offset + slot * location.step
            # A slice, because indexing a single element may return a read-only scalar.
            cl.enqueue_copy(queue, values[slot : slot + 1], location.buffer, src_offset=at)
        return values

    def _slots(self) -> range:
        return range(len(self.initial) if self.initial.size else 0)


def _content(values: Values) -> Bytes:
    """Return a value's bytes; broadcast values share one array."""
    if any(values.strides):
        return as_bytes(values)
    return _repeated(values.dtype, values.size, values.flat[0].tobytes())


@lru_cache(maxsize=1)
def _repeated(dtype: np.dtype[Any], size: int, value: bytes) -> Bytes:
    return as_bytes(np.full(size, np.frombuffer(value, dtype)[0]))
