# SPDX-License-Identifier: Apache-2.0
"""The constants of programs in a device's memory, each content once in a process.

Executors take them and give them back. What lies there already is shared, whatever it was packed
for: another form, literal numbers, a batch, a sibling, another shape or partition, and by engines
that share a context another interpreter. What nobody has any more is freed.
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
from delegate.plan.record import SegmentPlan
from delegate.runtime.context import Context
from delegate.runtime.device import Device
from delegate.runtime.layout import LARGEST_BYTES, SLACK_BYTES, aligned, plan_constants
from delegate.runtime.pages import let_go
from delegate.runtime.recipe import Recipe, recipe_of
from delegate.runtime.upload import Key, Part, pack_in_place, packed_ahead, upload

# Behind the constants of a whole program, and at most a sixteenth of theirs: for the few that
# another one has and this one has not, as the graph for one token beside that for many.
_SPARE_BYTES = 1 << 16


class Place(NamedTuple):
    """Where the constants of a launch lie."""

    buffer: cl.Buffer
    offsets: Mapping[Constant, int]  # in bytes


@dataclass(eq=False)
class Shelf:
    """A buffer of constants."""

    buffer: cl.Buffer
    size_bytes: int
    end: int = 0  # of what lies in it
    places: dict[Key, int] = field(default_factory=dict)  # offsets in bytes
    sizes: set[int] = field(default_factory=set)  # of the constants in it
    segments: list[SegmentPlan] = field(default_factory=list)  # those that have a file
    users: int = 0

    @property
    def room(self) -> int:
        """Bytes that more constants may take."""
        return self.size_bytes - SLACK_BYTES - self.end


class Taken:
    """The constants that an executor has.

    Attributes:
        weights: where they are; shelves: on which; places: of each launch's, None: it has none.
        recipes: of those that are known by how they are made. Where no executor has the arrays any
            more, others may come to lie at their place.
    """

    def __init__(
        self,
        weights: Weights,
        places: Sequence[Place | None],
        shelves: Iterable[Shelf],
        recipes: Mapping[Recipe, Key],
    ) -> None:
        self.places = places
        self.recipes = recipes
        self.weights = weights
        self.shelves = [*shelves]

    @property
    def buffers(self) -> list[cl.Buffer]:
        """The buffers that they are in."""
        return [shelf.buffer for shelf in self.shelves]

    def close(self) -> None:
        """Give them back; a second call does nothing."""
        shelves, self.shelves = self.shelves, []
        self.places, self.recipes = (), {}
        self.weights.give_back(shelves)


class Room:
    """What lies in the memory of a context; several engines may share it."""

    def __init__(self) -> None:
        # One that a thread may take again: the garbage collector may close an executor at any time.
        self.lock = threading.RLock()
        # Weak: an executor that nobody closed keeps nothing here for good.
        self.shelves: weakref.WeakSet[Shelf] = weakref.WeakSet()
        self.taken: weakref.WeakSet[Taken] = weakref.WeakSet()
        self.keys: weakref.WeakKeyDictionary[Constant, Key] = weakref.WeakKeyDictionary()
        self.recipes: weakref.WeakKeyDictionary[Constant, Recipe | None]
        self.recipes = weakref.WeakKeyDictionary()

    def recipe(self, constant: Constant) -> Recipe | None:
        """Return how a constant is made, if that is known."""
        if constant not in self.recipes:
            self.recipes[constant] = recipe_of(constant.pack)
        return self.recipes[constant]

    def made(self, constant: Constant) -> Key | None:
        """Return the key of a constant that was packed, or of one by the same recipe."""
        if constant not in self.keys and (recipe := self.recipe(constant)) is not None:
            keys = (taken.recipes.get(recipe) for taken in [*self.taken])
            if (key := next(filter(None, keys), None)) is not None:
                self.keys[constant] = key
        return self.keys.get(constant)

    @contextlib.contextmanager
    def learning(self, constants: Iterable[Constant]) -> Iterator[None]:
        """Forget what was learned of contents when there is an error: memory may be at fault."""
        try:
            yield
        except BaseException:
            for shelf in [*self.shelves]:
                for key in shelf.places:
                    key.digest = None
            for constant in constants:
                self.keys.pop(constant, None)
            raise


def _let_go(recipe: Recipe | None) -> None:
    """Keep no page of a file that was packed."""
    for array in () if recipe is None else recipe.arrays:
        let_go(array)


_rooms: weakref.WeakKeyDictionary[Context, Room] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


class Weights:
    """The constants in a device's memory. Threads may share it."""

    def __init__(self, device: Device, is_shared: bool = False) -> None:
        """`is_shared`: with all others of the context that are."""
        self.device = device
        self.room = Room()
        if is_shared:
            with _lock:
                self.room = _rooms.setdefault(device.context, self.room)

    @property
    def size_bytes(self) -> int:
        """The device's memory that is taken now."""
        own = [taken for taken in [*self.room.taken] if taken.weights is self]
        return sum(shelf.size_bytes for shelf in {shelf for each in own for shelf in each.shelves})

    def take(self, queue: cl.CommandQueue, launches: Sequence[Launch], as_one: bool) -> Taken:
        """Return the constants of launches; what is not on the device is packed and uploaded.

        `queue`: for the uploads, which end here. `as_one`: one kernel runs all launches, so all of
        their constants lie in one buffer. OpenCL's errors are the caller's to catch; after any
        error nothing is taken.

        Raises:
            DeviceError: there is no room, or the memory does not hold what was written to it.
        """
        of_each, of_all = [launch.constants for launch in launches], constants_of(launches)
        groups = [of_all] * len(launches) if as_one else of_each
        with self.room.lock, self.room.learning(of_all):
            keys = self.room.keys
            shelves: dict[tuple[Constant, ...], Shelf | None] = {}
            for group in filter(None, dict.fromkeys(groups)):
                shelves[group] = self._holder(queue, group, as_one)
            absent = [c for group, shelf in shelves.items() if shelf is None for c in group]
            new = self._filled(queue, [*dict.fromkeys(absent)], as_one) if absent else None
            places: list[Place | None] = []
            taken: dict[Shelf, None] = {}
            recipes: dict[Recipe, Key] = {}
            for constants, group in zip(of_each, groups, strict=True):
                shelf = shelves.get(group) or new
                if not constants or shelf is None:
                    places.append(None)
                    continue
                taken[shelf] = None
                offsets = {c: shelf.places[keys[c]] for c in constants}
                places.append(Place(shelf.buffer, offsets))
                recipes |= {recipe: keys[c] for c in constants if (recipe := self.room.recipe(c))}
            for shelf in taken:
                shelf.users += 1
                self.room.shelves.add(shelf)
            found = Taken(self, places, taken, recipes)
            self.room.taken.add(found)
            for recipe in recipes:
                _let_go(recipe)
            return found

    def held(self, taken: Taken) -> Taken:
        """Return one more hold on what an executor has."""
        with self.room.lock:
            for shelf in taken.shelves:
                shelf.users += 1
            found = Taken(self, taken.places, taken.shelves, taken.recipes)
            self.room.taken.add(found)
            return found

    def give_back(self, shelves: Iterable[Shelf]) -> None:
        """Free what nobody else has; `shelves`: of a Taken."""
        with self.room.lock:
            for shelf in shelves:
                shelf.users -= 1
                if shelf.users == 0:
                    self.room.shelves.discard(shelf)
                    shelf.buffer.release()

    def _holder(
        self, queue: cl.CommandQueue, constants: Sequence[Constant], as_one: bool
    ) -> Shelf | None:
        """Return a shelf that has all of these; that of a whole program may get the last few."""

        def with_room(lacking: Mapping[Shelf, int]) -> dict[Shelf, int]:
            found = lacking.items()
            return {shelf: size for shelf, size in found if size <= (shelf.room if as_one else 0)}

        lacking = with_room(
            {
                shelf: sum(aligned(c) for c in constants if c.size_bytes not in shelf.sizes)
                for shelf in [*self.room.shelves]
            }
        )
        # What is new by its size is not even packed to be looked for.
        like = [c for c in constants if any(c.size_bytes in shelf.sizes for shelf in lacking)]
        new = [constant for constant in like if self.room.made(constant) is None]
        digests = packed_ahead(new, lambda _, values: digest_of(values))
        with contextlib.closing(digests):
            for constant in like:
                if not lacking:
                    return None
                if constant not in self.room.keys:
                    found = self._key(queue, constant.size_bytes, next(digests), lacking)
                    self.room.keys[constant] = found
                key = self.room.keys[constant]
                for shelf in lacking:
                    if constant.size_bytes in shelf.sizes and key not in shelf.places:
                        lacking[shelf] += aligned(constant)
                lacking = with_room(lacking)
        if not lacking:
            return None
        best = min(lacking, key=lacking.__getitem__)
        if lacking[best]:
            keys = self.room.keys
            self._put(queue, best, [c for c in constants if keys.get(c) not in best.places])
        return best

    def _key(
        self, queue: cl.CommandQueue, size_bytes: int, digest: str, shelves: Iterable[Shelf]
    ) -> Key:
        """Return the key of what lies on a shelf and has this digest, or a new one."""
        for shelf in shelves:
            for key, offset in shelf.places.items():
                if key.size_bytes != size_bytes:
                    continue
                if key.digest is None:
                    kept = np.empty(size_bytes, np.uint8)
                    cl.enqueue_copy(queue, kept, shelf.buffer, src_offset=offset)
                    key.digest = digest_of(kept)
                if key.digest == digest:
                    return key
        return Key(size_bytes, digest)

    def _filled(self, queue: cl.CommandQueue, constants: Sequence[Constant], as_one: bool) -> Shelf:
        """Return a new shelf with these."""
        size, _ = plan_constants(constants)
        self.device.check_buffer("constants", size, LARGEST_BYTES)
        if as_one:
            spare = min(_SPARE_BYTES, size // 16)
            size = max(size, min(size + spare, self.device.max_alloc_bytes, LARGEST_BYTES))
        shelf = Shelf(self.device.buffer("constants", cl.mem_flags.READ_ONLY, size), size)
        try:
            self._put(queue, shelf, constants)
        except BaseException:
            shelf.buffer.release()
            raise
        return shelf

    def _put(self, queue: cl.CommandQueue, shelf: Shelf, constants: Sequence[Constant]) -> None:
        """Put constants behind those that a shelf has; after an error it has what it had."""
        size, offsets = plan_constants(constants)
        recipes = {each: self.room.recipe(each) for each in constants}
        part = Part(shelf.buffer, shelf.end, size, offsets, lambda each: _let_go(recipes[each]))
        (pack_in_place if self.device.shares_memory else upload)(queue, part)
        keys = {each: self.room.made(each) or Key(each.size_bytes) for each in constants}
        self.room.keys.update(keys)
        shelf.places |= {key: shelf.end + offsets[constant] for constant, key in keys.items()}
        shelf.sizes |= {constant.size_bytes for constant in constants}
        shelf.end += size - SLACK_BYTES
