# SPDX-License-Identifier: Apache-2.0
"""A State and the arena of one executor: what a run finds there, and what it leaves."""

from __future__ import annotations

import contextlib

import pyopencl as cl

from delegate.errors import DeviceError
from delegate.plan.record import PartitionPlan
from delegate.runtime.places import Arena, Place
from delegate.runtime.state import Guarded, State


class Link:
    """A State and the arena of one executor.

    Attributes:
        state; arena: if other executors have it, too.
    """

    def __init__(
        self,
        state: State,
        arena: Arena | None,
        buffer: cl.Buffer,
        plan: PartitionPlan,
    ) -> None:
        """`arena`: that other executors have, too, None: there is none; `buffer`: the arena's own.

        Raises: DeviceError: no room.
        """
        self.state, self.arena = state, arena
        memory = plan.memory
        self._buffer, self._stored = buffer, memory.stored
        # This Link in its place would make a circle, which holds the device's context.
        self._mark = object()
        known = {} if arena is None else arena.places

        def at(offset: int) -> Place:
            return known.setdefault(offset, Place(buffer, offset, memory.slot_bytes))

        # Where a run finds values. Nothing but new ones is written there.
        found = [tensor for tensor in plan.inputs if state.has(tensor)]
        self._found = {tensor.kept: at(memory.offsets[tensor]) for tensor in found}
        homes = {name: at(place) for name, place in memory.region.offsets.items()} | self._found
        made = [at(memory.offsets[tensor]) for tensor in plan.outputs]
        # Each new value, where a run makes it, and where it goes before outputs are taken: to where
        # the next run finds it, or, if None, to its own buffer.
        self._left: list[tuple[str, Place, Place | None]] = []
        for tensor, place in zip(plan.outputs, made, strict=True):
            if state.has(tensor):
                home = homes.get(tensor.kept)
                # The old value may be an output, too, or another value's next one.
                is_free = home is place or home not in made
                self._left.append((tensor.kept, place, home if is_free else None))
        for name, _, home in self._left:
            if home is None:
                state.own(name)
        self._stays = all(place is home for _, place, home in self._left)
        self._written = self._found | {name: home for name, _, home in self._left if home}

    def restore(self) -> None:
        """Enqueue what brings the values to the arena; raises DeviceError where they are lost."""
        state = self.state
        with state.lock:
            state.require()
            self.store()
            if state.settled is not self._mark:
                state.settled = None
                for name, place in self._found.items():
                    state.by_name[name].bring(state.device.queue, place)

    def store(self) -> None:
        """Enqueue what brings the program's constants to the arena, if another one's lie there."""
        if self.arena is None or self.arena.last is self._mark:
            return
        self.arena.last = None
        queue = self.state.device.queue
        for each in self._stored:
            cl.enqueue_copy(queue, self._buffer, each.values, dst_offset=each.offset)
        self.arena.last = self._mark

    def keep(self) -> None:
        """Enqueue what keeps the arena's new values."""
        state = self.state
        with state.lock:
            if state.settled is self._mark:
                return
            for name, made, home in self._left:
                value = state.by_name[name]
                place = home or state.own(name)
                value.copy(state.device.queue, made, place)
                value.places = {place}
                if home is not None:
                    value.own = None
            state.settled = self._mark if self._stays else None

    def leave(self) -> None:
        """Take the values out of the arena, which may be given back then, or be written to.

        They are lost where that fails.
        """
        state, queue = self.state, self.state.device.queue
        with state.lock:
            state.settled = None
            values = state.by_name
            written = [(name, at) for name, at in self._written.items() if name in values]
            held = {name: place for name, place in written if place in values[name].places}
            if not held:
                return
            calls = Guarded(state.device.calling("keeping state"), state)
            with contextlib.suppress(DeviceError), calls:
                for name in held:
                    values[name].bring(queue, state.own(name))
                queue.finish()
            for name, place in held.items():
                value = values[name]
                value.places.discard(place)
                if not value.places:  # it is lost
                    value.become(value.initial)
