# SPDX-License-Identifier: Apache-2.0
"""The constants of programs in a device's memory, each content once in a process.

Executors lease them. What is there already is shared, whatever it was packed for: another dispatch
mode, batch, shape, partition or interpreter on the same context. What nobody leases is freed.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyopencl as cl

from delegate.launch import Constant, Launch, constants_of
from delegate.plan.contents import digest_of
from delegate.plan.layout import LARGEST_BYTES, SLACK_BYTES, aligned_bytes, plan_constants
from delegate.plan.record import SegmentPlan
from delegate.run.context import Context
from delegate.run.device import Device
from delegate.run.pages import drop_pages
from delegate.run.recipe import Recipe, recipe_of
from delegate.run.upload import BufferRange, ContentKey, pack_in_place, packed_ahead, upload

# Behind a program's constants, at most a sixteenth of theirs: for the few that only another has.
_SPARE_BYTES = 1 << 16


class Slice(NamedTuple):
    """Where the constants of a launch lie."""

    buffer: cl.Buffer
    offsets: Mapping[Constant, int]  # in bytes


@dataclass(eq=False)
class ConstantBuffer:
    """A buffer of constants."""

    cl_buffer: cl.Buffer
    size_bytes: int
    end: int = 0  # of what lies in it
    offsets: dict[ContentKey, int] = field(default_factory=dict)  # offsets in bytes
    sizes: set[int] = field(default_factory=set)  # of the constants in it
    segments: list[SegmentPlan] = field(default_factory=list)  # those that have a file
    users: int = 0

    @property
    def free_bytes(self) -> int:
        """Bytes that more constants may take."""
        return self.size_bytes - SLACK_BYTES - self.end


class Lease:
    """The constants that an executor has.

    Attributes:
        weights: where they are; cl_buffers: on which; slices: of each launch's, None: it has none.
        recipes: of those that are known by how they are made. Where no executor has the arrays any
            more, others may come to lie at their place.
    """

    def __init__(
        self,
        weights: Weights,
        slices: Sequence[Slice | None],
        buffers: Iterable[ConstantBuffer],
        recipes: Mapping[Recipe, ContentKey],
    ) -> None:
        self.slices = slices
        self.recipes = recipes
        self.weights = weights
        self.buffers = [*buffers]

    @property
    def cl_buffers(self) -> list[cl.Buffer]:
        """The buffers that they are in."""
        return [buffer.cl_buffer for buffer in self.buffers]

    def close(self) -> None:
        """Give them back; a second call does nothing."""
        buffers, self.buffers = self.buffers, []
        self.slices, self.recipes = (), {}
        self.weights.release(buffers)


class ConstantPool:
    """What lies in the memory of a context; several engines may share it."""

    def __init__(self) -> None:
        # One that a thread may take again: the garbage collector may close an executor at any time.
        self.lock = threading.RLock()
        # Weak: an executor that nobody closed keeps nothing here for good.
        self.buffers: weakref.WeakSet[ConstantBuffer] = weakref.WeakSet()
        self.leases: weakref.WeakSet[Lease] = weakref.WeakSet()
        self.keys: weakref.WeakKeyDictionary[Constant, ContentKey] = weakref.WeakKeyDictionary()
        self.recipes: weakref.WeakKeyDictionary[Constant, Recipe | None]
        self.recipes = weakref.WeakKeyDictionary()

    def recipe(self, constant: Constant) -> Recipe | None:
        """Return how a constant is made, if that is known."""
        if constant not in self.recipes:
            self.recipes[constant] = recipe_of(constant.pack)
        return self.recipes[constant]

    def known_key(self, constant: Constant) -> ContentKey | None:
        """Return the key of a constant that was packed, or of one by the same recipe."""
        if constant not in self.keys and (recipe := self.recipe(constant)) is not None:
            keys = (lease.recipes.get(recipe) for lease in [*self.leases])
            if (key := next(filter(None, keys), None)) is not None:
                self.keys[constant] = key
        return self.keys.get(constant)

    @contextlib.contextmanager
    def learning(self, constants: Iterable[Constant]) -> Iterator[None]:
        """Forget what was learned of contents when there is an error: memory may be at fault."""
        try:
            yield
        except BaseException:
            for buffer in [*self.buffers]:
                for key in buffer.offsets:
                    key.digest = None
            for constant in constants:
                self.keys.pop(constant, None)
            raise


def _drop_pages(recipe: Recipe | None) -> None:
    """Keep no page of a file that was packed."""
    for array in () if recipe is None else recipe.arrays:
        drop_pages(array)


_pools: weakref.WeakKeyDictionary[Context, ConstantPool] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


class Weights:
    """The constants in a device's memory. Threads may share it."""

    def __init__(self, device: Device, is_shared: bool = False) -> None:
        """`is_shared`: with all others of the context that are."""
        self.device = device
        self.pool = ConstantPool()
        if is_shared:
            with _lock:
                self.pool = _pools.setdefault(device.context, self.pool)

    @property
    def size_bytes(self) -> int:
        """The device's memory that is taken now."""
        own = [lease for lease in [*self.pool.leases] if lease.weights is self]
        return sum(b.size_bytes for b in {b for each in own for b in each.buffers})

    def lease(self, queue: cl.CommandQueue, launches: Sequence[Launch], as_one: bool) -> Lease:
        """Return the constants of launches; what is not on the device is packed and uploaded.

        `queue`: for the uploads, which end here. `as_one`: one kernel runs all launches, so their
        constants lie in one buffer. OpenCL's errors are the caller's; then nothing is leased.

        Raises:
            DeviceError: there is no room, or the memory does not hold what was written to it.
        """
        of_each, of_all = [launch.constants for launch in launches], constants_of(launches)
        groups = [of_all] * len(launches) if as_one else of_each
        with self.pool.lock, self.pool.learning(of_all):
            keys = self.pool.keys
            buffers: dict[tuple[Constant, ...], ConstantBuffer | None] = {}
            for group in filter(None, dict.fromkeys(groups)):
                buffers[group] = self._find_buffer(queue, group, as_one)
            absent = [c for group, buffer in buffers.items() if buffer is None for c in group]
            new = self._new_buffer(queue, [*dict.fromkeys(absent)], as_one) if absent else None
            slices: list[Slice | None] = []
            used: dict[ConstantBuffer, None] = {}
            recipes: dict[Recipe, ContentKey] = {}
            for constants, group in zip(of_each, groups, strict=True):
                buffer = buffers.get(group) or new
                if not constants or buffer is None:
                    slices.append(None)
                    continue
                used[buffer] = None
                offsets = {c: buffer.offsets[keys[c]] for c in constants}
                slices.append(Slice(buffer.cl_buffer, offsets))
                recipes |= {recipe: keys[c] for c in constants if (recipe := self.pool.recipe(c))}
            for buffer in used:
                buffer.users += 1
                self.pool.buffers.add(buffer)
            lease = Lease(self, slices, used, recipes)
            self.pool.leases.add(lease)
            for recipe in recipes:
                _drop_pages(recipe)
            return lease

    def acquire(self, lease: Lease) -> Lease:
        """Return one more hold on what an executor has."""
        with self.pool.lock:
            for buffer in lease.buffers:
                buffer.users += 1
            found = Lease(self, lease.slices, lease.buffers, lease.recipes)
            self.pool.leases.add(found)
            return found

    def release(self, buffers: Iterable[ConstantBuffer]) -> None:
        """Free what nobody else has; `buffers`: of a Lease."""
        with self.pool.lock:
            for buffer in buffers:
                buffer.users -= 1
                if buffer.users == 0:
                    self.pool.buffers.discard(buffer)
                    buffer.cl_buffer.release()

    def _find_buffer(
        self, queue: cl.CommandQueue, constants: Sequence[Constant], as_one: bool
    ) -> ConstantBuffer | None:
        """Return a buffer that has all of these; that of a whole program may get the last few."""

        def with_room(lacking: Mapping[ConstantBuffer, int]) -> dict[ConstantBuffer, int]:
            found = lacking.items()
            return {b: size for b, size in found if size <= (b.free_bytes if as_one else 0)}

        lacking = with_room(
            {
                buffer: sum(aligned_bytes(c) for c in constants if c.size_bytes not in buffer.sizes)
                for buffer in [*self.pool.buffers]
            }
        )
        # What is new by its size is not even packed to be looked for.
        like = [c for c in constants if any(c.size_bytes in buffer.sizes for buffer in lacking)]
        new = [constant for constant in like if self.pool.known_key(constant) is None]
        digests = packed_ahead(new, lambda _, values: digest_of(values))
        with contextlib.closing(digests):
            for constant in like:
                if not lacking:
                    return None
                if constant not in self.pool.keys:
                    found = self._key(queue, constant.size_bytes, next(digests), lacking)
                    self.pool.keys[constant] = found
                key = self.pool.keys[constant]
                for buffer in lacking:
                    if constant.size_bytes in buffer.sizes and key not in buffer.offsets:
                        lacking[buffer] += aligned_bytes(constant)
                lacking = with_room(lacking)
        if not lacking:
            return None
        best = min(lacking, key=lacking.__getitem__)
        if lacking[best]:
            keys = self.pool.keys
            self._put(queue, best, [c for c in constants if keys.get(c) not in best.offsets])
        return best

    def _key(
        self, queue: cl.CommandQueue, size: int, digest: str, buffers: Iterable[ConstantBuffer]
    ) -> ContentKey:
        """Return the key of what lies on a buffer and has this digest, or a new one."""
        for buffer in buffers:
            for key, offset in buffer.offsets.items():
                if key.size_bytes != size:
                    continue
                if key.digest is None:
                    kept = np.empty(size, np.uint8)
                    cl.enqueue_copy(queue, kept, buffer.cl_buffer, src_offset=offset)
                    key.digest = digest_of(kept)
                if key.digest == digest:
                    return key
        return ContentKey(size, digest)

    def _new_buffer(
        self, queue: cl.CommandQueue, constants: Sequence[Constant], as_one: bool
    ) -> ConstantBuffer:
        """Return a new buffer with these."""
        size, _ = plan_constants(constants)
        self.device.check_buffer("constants", size, LARGEST_BYTES)
        if as_one:
            spare = min(_SPARE_BYTES, size // 16)
            size = max(size, min(size + spare, self.device.max_alloc_bytes, LARGEST_BYTES))
        buffer = ConstantBuffer(self.device.buffer("constants", cl.mem_flags.READ_ONLY, size), size)
        try:
            self._put(queue, buffer, constants)
        except BaseException:
            buffer.cl_buffer.release()
            raise
        return buffer

    def _put(self, queue: cl.CommandQueue, buffer: ConstantBuffer, new: Sequence[Constant]) -> None:
        """Put constants behind those that a buffer has; after an error it has what it had."""
        size, offsets = plan_constants(new)
        recipes = {each: self.pool.recipe(each) for each in new}
        place = buffer.cl_buffer, buffer.end, size, offsets
        part = BufferRange(*place, lambda each: _drop_pages(recipes[each]))
        (pack_in_place if self.device.shares_memory else upload)(queue, part)
        keys = {each: self.pool.known_key(each) or ContentKey(each.size_bytes) for each in new}
        self.pool.keys.update(keys)
        buffer.offsets |= {key: buffer.end + offsets[constant] for constant, key in keys.items()}
        buffer.sizes |= {constant.size_bytes for constant in new}
        buffer.end += size - SLACK_BYTES
