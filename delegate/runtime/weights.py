# SPDX-License-Identifier: Apache-2.0
"""The constants of an engine's programs in its device's memory, each content once.

Executors take them and give them back. What lies there already is shared, whatever it was packed
for: another form, literal numbers, a batch, a sibling, another shape or partition. What nobody has
any more is freed.
"""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyopencl as cl

from delegate.errors import DeviceError
from delegate.launch import Constant, Launch
from delegate.runtime.device import Device
from delegate.runtime.layout import LARGEST_BYTES, Bytes, as_bytes, constants_of, plan_constants
from delegate.runtime.recipe import Recipe, recipe_of

_PIECE_BYTES = 1 << 20  # of host memory through which constants go up
_AHEAD = 8  # constants that may lie packed in the host's memory
Key = bytes  # a digest of a constant's bytes as they are packed


class Place(NamedTuple):
    """Where the constants of a launch lie."""

    buffer: cl.Buffer
    offsets: Mapping[Constant, int]  # in bytes


@dataclass(eq=False)
class _Shelf:
    """A buffer of constants that were new together."""

    buffer: cl.Buffer
    size_bytes: int
    places: Mapping[Key, int]  # offsets in bytes
    sizes: Collection[int]  # of the constants in it
    recipes: Mapping[Recipe, Key]  # of those that are known by how they are made
    users: int = 0


class Taken:
    """The constants that an executor has.

    Attributes:
        places: of each launch's; None where it has none.
    """

    def __init__(
        self, weights: Weights, places: Sequence[Place | None], shelves: Iterable[_Shelf]
    ) -> None:
        self.places = places
        self._weights = weights
        self._shelves = [*shelves]

    def close(self) -> None:
        """Give them back; a second call does nothing."""
        shelves, self._shelves = self._shelves, []
        self.places = ()
        self._weights.give_back(shelves)


class Weights:
    """The constants in a device's memory. Threads may share it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        # One that a thread may take again: the garbage collector may close an executor at any time.
        self._lock = threading.RLock()
        # Weak: an executor that nobody closed keeps nothing here for good.
        self._shelves: weakref.WeakSet[_Shelf] = weakref.WeakSet()
        self._keys: weakref.WeakKeyDictionary[Constant, Key] = weakref.WeakKeyDictionary()

    @property
    def size_bytes(self) -> int:
        """The device's memory that is taken now."""
        return sum(shelf.size_bytes for shelf in [*self._shelves])

    def take(self, queue: cl.CommandQueue, launches: Sequence[Launch], as_one: bool) -> Taken:
        """Return the constants of launches; what is not on the device is packed and uploaded.

        `queue`: for the uploads, which end here. `as_one`: one kernel runs all launches, so all of
        their constants lie in one buffer. OpenCL's errors are the caller's to catch; after any
        error nothing is taken.

        Raises:
            DeviceError: there is no room, or the memory does not hold what was written to it.
        """
        of_each = [constants_of([launch]) for launch in launches]
        groups = [constants_of(launches)] * len(launches) if as_one else of_each
        with self._lock:
            shelves = {group: self._holder(group) for group in dict.fromkeys(groups) if group}
            absent = [c for group, shelf in shelves.items() if shelf is None for c in group]
            new = self._filled(queue, [*dict.fromkeys(absent)]) if absent else None
            places: list[Place | None] = []
            taken: dict[_Shelf, None] = {}
            for constants, group in zip(of_each, groups, strict=True):
                shelf = shelves.get(group) or new
                if not constants or shelf is None:
                    places.append(None)
                    continue
                taken[shelf] = None
                offsets = {c: shelf.places[self._keys[c]] for c in constants}
                places.append(Place(shelf.buffer, offsets))
            for shelf in taken:
                shelf.users += 1
                self._shelves.add(shelf)
            return Taken(self, places, taken)

    def give_back(self, shelves: Iterable[_Shelf]) -> None:
        """Free what nobody else has; `shelves`: of a Taken."""
        with self._lock:
            for shelf in shelves:
                shelf.users -= 1
                if shelf.users == 0:
                    self._shelves.discard(shelf)
                    shelf.buffer.release()

    def _holder(self, constants: Iterable[Constant]) -> _Shelf | None:
        """Return a shelf that has all of these."""
        shelves = [*self._shelves]
        for constant in constants:
            if constant not in self._keys:
                if all(constant.size_bytes not in shelf.sizes for shelf in shelves):
                    return None  # not even packed to be looked for
                self._keys[constant] = self._made(constant) or _key(_packed(constant))
            shelves = [shelf for shelf in shelves if self._keys[constant] in shelf.places]
        return next(iter(shelves), None)

    def _made(self, constant: Constant) -> Key | None:
        """Return the key of a constant that was packed by the same recipe."""
        recipe = recipe_of(constant.pack)
        keys = (shelf.recipes.get(recipe) for shelf in [*self._shelves]) if recipe else ()
        return next(filter(None, keys), None)

    def _filled(self, queue: cl.CommandQueue, constants: Sequence[Constant]) -> _Shelf:
        """Return a new shelf with these."""
        size, offsets = plan_constants(constants)
        self._device.check_buffer("constants", size, LARGEST_BYTES)
        access = cl.mem_flags.READ_ONLY
        buffer = cl.Buffer(self._device.context.cl_context, access, size)
        upload = _Upload(queue, buffer, size)
        try:
            for (constant, offset), (values, key) in zip(
                offsets.items(), _packed_ahead(offsets), strict=True
            ):
                upload.add(values, offset)
                self._keys[constant] = key
            upload.end()
        except BaseException:
            buffer.release()
            raise
        places = {self._keys[constant]: offset for constant, offset in offsets.items()}
        recipes = {recipe_of(constant.pack): self._keys[constant] for constant in offsets}
        known = {recipe: key for recipe, key in recipes.items() if recipe}
        return _Shelf(buffer, size, places, {constant.size_bytes for constant in offsets}, known)


class _Upload:
    """Fills a buffer from its start on, and reads back what it wrote. Gaps are zeros."""

    def __init__(self, queue: cl.CommandQueue, buffer: cl.Buffer, size: int) -> None:
        self._queue, self._buffer, self._size = queue, buffer, size
        self._piece = np.zeros(min(size, _PIECE_BYTES), np.uint8)
        self._kept = np.empty_like(self._piece)
        self._begin = 0  # of the piece, in the buffer

    def add(self, values: Bytes, offset: int) -> None:
        """Write a constant behind those before it."""
        while values.size:
            at = offset - self._begin
            if at >= self._piece.size:
                self._write()
                continue
            part = values[: self._piece.size - at]
            self._piece[at : at + part.size] = part
            offset, values = offset + part.size, values[part.size :]

    def end(self) -> None:
        """Write what is left, to the buffer's end."""
        while self._begin < self._size:
            self._write()

    def _write(self) -> None:
        count = min(self._piece.size, self._size - self._begin)
        piece, kept = self._piece[:count], self._kept[:count]
        cl.enqueue_copy(self._queue, self._buffer, piece, dst_offset=self._begin)
        # Kernels address memory by constants: wrong ones could end the process.
        cl.enqueue_copy(self._queue, kept, self._buffer, src_offset=self._begin)
        if not np.array_equal(kept, piece):
            raise DeviceError("the device's memory does not hold what was written to it")
        piece[:] = 0
        self._begin += count


def _packed_ahead(constants: Iterable[Constant]) -> Iterator[tuple[Bytes, Key]]:
    """Yield what each is packed to, and its key, while other threads pack the next few."""

    def packed(constant: Constant) -> tuple[Bytes, Key]:
        values = _packed(constant)
        return values, _key(values)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), "packing") as pool:
        ahead: deque[Future[tuple[Bytes, Key]]] = deque()
        for constant in constants:
            ahead.append(pool.submit(packed, constant))
            if len(ahead) > _AHEAD:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _packed(constant: Constant) -> Bytes:
    values = as_bytes(constant.pack())
    if values.size != constant.size_bytes:
        raise ValueError(f"{values.size} bytes are packed, {constant.size_bytes} planned")
    return values


def _key(values: Bytes) -> Key:
    return hashlib.sha256(values.data).digest()
