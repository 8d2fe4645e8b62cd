# SPDX-License-Identifier: Apache-2.0
"""A State and the arena of one executor: what a run finds there, and what it leaves."""

from __future__ import annotations

import contextlib

import pyopencl as cl

from delegate.errors import DeviceError
from delegate.plan.record import PartitionPlan
from delegate.run.arena import Arena, Location
from delegate.run.state import State, StateGuard


class StateBinding:
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
        self._buffer, self._stored = buffer, memory.arena_constants
        # This StateBinding in its place would make a circle, which holds the device's context.
        self._token = object()
        known = {} if arena is None else arena.locations

        def at(offset: int) -> Location:
            return known.setdefault(offset, Location(buffer, offset, memory.slot_bytes))

        # Where a run finds values. Nothing but new ones is written there.
        found = [tensor for tensor in plan.inputs if state.has(tensor)]
        self._inputs = {tensor.state_name: at(memory.offsets[tensor]) for tensor in found}
        homes = {
            name: at(location) for name, location in memory.region.offsets.items()
        } | self._inputs
        made = [at(memory.offsets[tensor]) for tensor in plan.outputs]
        # Each new value, where a run makes it, and where it goes before outputs are taken: to where
        # the next run finds it, or, if None, to its own buffer.
        self._outputs: list[tuple[str, Location, Location | None]] = []
        for tensor, location in zip(plan.outputs, made, strict=True):
            if state.has(tensor):
                home = homes.get(tensor.state_name)
                # The old value may be an output, too, or another value's next one.
                is_free = home is location or home not in made
                self._outputs.append((tensor.state_name, location, home if is_free else None))
        for name, _, home in self._outputs:
            if home is None:
                state.own_buffer(name)
        self._is_in_place = all(location is home for _, location, home in self._outputs)
        self._homes = self._inputs | {name: home for name, _, home in self._outputs if home}

    def restore(self) -> None:
        """Enqueue what brings the values to the arena; raises DeviceError where they are lost."""
        state = self.state
        with state.lock:
            state.require()
            self.write_constants()
            if state.resident is not self._token:
                state.resident = None
                for name, location in self._inputs.items():
                    state.by_name[name].copy_to(state.device.queue, location)

    def write_constants(self) -> None:
        """Enqueue what brings the program's constants to the arena, if another one's lie there."""
        if self.arena is None or self.arena.last_token is self._token:
            return
        self.arena.last_token = None
        queue = self.state.device.queue
        for each in self._stored:
            cl.enqueue_copy(queue, self._buffer, each.values, dst_offset=each.offset)
        self.arena.last_token = self._token

    def save(self) -> None:
        """Enqueue what keeps the arena's new values."""
        state = self.state
        with state.lock:
            if state.resident is self._token:
                return
            for name, made, home in self._outputs:
                value = state.by_name[name]
                location = home or state.own_buffer(name)
                value.copy(state.device.queue, made, location)
                value.locations = {location}
                if home is not None:
                    value.own_buffer = None
            state.resident = self._token if self._is_in_place else None

    def evict(self) -> None:
        """Take the values out of the arena, which may be given back then, or be written to.

        They are lost where that fails.
        """
        state, queue = self.state, self.state.device.queue
        with state.lock:
            state.resident = None
            values = state.by_name
            written = [(name, at) for name, at in self._homes.items() if name in values]
            held = {
                name: location for name, location in written if location in values[name].locations
            }
            if not held:
                return
            calls = StateGuard(state.device.calling("keeping state"), state)
            with contextlib.suppress(DeviceError), calls:
                for name in held:
                    values[name].copy_to(queue, state.own_buffer(name))
                queue.finish()
            for name, location in held.items():
                value = values[name]
                value.locations.discard(location)
                if not value.locations:  # it is lost
                    value.set_values(value.initial)
