# SPDX-License-Identifier: Apache-2.0
"""Constants in device memory, deduplicated by content within a process.

Executors lease them. Existing content is shared, whatever it was packed for: another dispatch mode,
batch, shape, partition or interpreter on the same context. Content without leases is freed.
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

# After a program's constants, at most a sixteenth of them: for the few that another program adds.
_SPARE_BYTES = 1 << 16


class Slice(NamedTuple):
    """Location of a launch's constants."""

    buffer: cl.Buffer
    offsets: Mapping[Constant, int]  # in bytes


@dataclass(eq=False)
class ConstantBuffer:
    """A buffer of constants."""

    cl_buffer: cl.Buffer
    size_bytes: int
    end: int = 0  # of the used bytes
    offsets: dict[ContentKey, int] = field(default_factory=dict)  # offsets in bytes
    sizes: set[int] = field(default_factory=set)  # of the constants in it
    segments: list[SegmentPlan] = field(default_factory=list)  # those saved to files
    users: int = 0

    @property
    def free_bytes(self) -> int:
        """Bytes available for more constants."""
        return self.size_bytes - SLACK_BYTES - self.end


class Lease:
    """The constants held by an executor.

    Attributes:
        weights: their owner; cl_buffers: where they are; slices: by launch, None: it has none.
        recipes: of those identified by recipe. Once no executor holds the arrays, their addresses
            may be reused.
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
        """The buffers that hold them."""
        return [buffer.cl_buffer for buffer in self.buffers]

    def close(self) -> None:
        """Release them; a second call does nothing."""
        buffers, self.buffers = self.buffers, []
        self.slices, self.recipes = (), {}
        self.weights.release(buffers)


class ConstantPool:
    """The constants in a context's memory; several engines may share it."""

    def __init__(self) -> None:
        # Reentrant: the garbage collector may close an executor at any time.
        self.lock = threading.RLock()
        # Weak: an executor that was never closed must not keep its constants alive.
        self.buffers: weakref.WeakSet[ConstantBuffer] = weakref.WeakSet()
        self.leases: weakref.WeakSet[Lease] = weakref.WeakSet()
        self.keys: weakref.WeakKeyDictionary[Constant, ContentKey] = weakref.WeakKeyDictionary()
        self.recipes: weakref.WeakKeyDictionary[Constant, Recipe | None]
        self.recipes = weakref.WeakKeyDictionary()

    def recipe(self, constant: Constant) -> Recipe | None:
        """Return the recipe of a constant, if known."""
        if constant not in self.recipes:
            self.recipes[constant] = recipe_of(constant.pack)
        return self.recipes[constant]

    def known_key(self, constant: Constant) -> ContentKey | None:
        """Return the key of a constant that was packed, or of one with the same recipe."""
        if constant not in self.keys and (recipe := self.recipe(constant)) is not None:
            keys = (lease.recipes.get(recipe) for lease in [*self.leases])
            if (key := next(filter(None, keys), None)) is not None:
                self.keys[constant] = key
        return self.keys.get(constant)

    @contextlib.contextmanager
    def learning(self, constants: Iterable[Constant]) -> Iterator[None]:
        """Forget keys learned here on an error: memory may be at fault."""
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
    """Release the file pages of arrays that were packed."""
    for array in () if recipe is None else recipe.arrays:
        drop_pages(array)


_pools: weakref.WeakKeyDictionary[Context, ConstantPool] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


class Weights:
    """The constants in device memory. Thread-safe."""

    def __init__(self, device: Device, is_shared: bool = False) -> None:
        """`is_shared`: with all others of the context that are shared."""
        self.device = device
        self.pool = ConstantPool()
        if is_shared:
            with _lock:
                self.pool = _pools.setdefault(device.context, self.pool)

    @property
    def size_bytes(self) -> int:
        """Device memory in use."""
        own = [lease for lease in [*self.pool.leases] if lease.weights is self]
        return sum(b.size_bytes for b in {b for each in own for b in each.buffers})

    def lease(self, queue: cl.CommandQueue, launches: Sequence[Launch], as_one: bool) -> Lease:
        """Return a lease of launches' constants; packs and uploads what is not on the device.

        `queue`: for the uploads, which are complete on return. `as_one`: one kernel runs all
        launches, so one buffer holds their constants. OpenCL errors propagate; nothing is leased.

        Raises:
            DeviceError: out of memory, or the memory does not hold what was written to it.
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
        """Return another lease of the same constants."""
        with self.pool.lock:
            for buffer in lease.buffers:
                buffer.users += 1
            found = Lease(self, lease.slices, lease.buffers, lease.recipes)
            self.pool.leases.add(found)
            return found

    def release(self, buffers: Iterable[ConstantBuffer]) -> None:
        """Free buffers without leases; `buffers`: of a Lease."""
        with self.pool.lock:
            for buffer in buffers:
                buffer.users -= 1
                if buffer.users == 0:
                    self.pool.buffers.discard(buffer)
                    buffer.cl_buffer.release()

    def _find_buffer(
        self, queue: cl.CommandQueue, constants: Sequence[Constant], as_one: bool
    ) -> ConstantBuffer | None:
        """Return a buffer that has all of these; a whole program's may be extended by a few."""

        def with_room(lacking: Mapping[ConstantBuffer, int]) -> dict[ConstantBuffer, int]:
            found = lacking.items()
            return {b: size for b, size in found if size <= (b.free_bytes if as_one else 0)}

        lacking = with_room(
            {
                buffer: sum(aligned_bytes(c) for c in constants if c.size_bytes not in buffer.sizes)
                for buffer in [*self.pool.buffers]
            }
        )
        # A constant of a new size cannot be present, so it need not be packed to be compared.
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
        """Return the key of existing content with this digest, or a new one."""
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
        """Return a new buffer with these constants."""
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
        """Append constants to a buffer; after an error it is unchanged."""
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
