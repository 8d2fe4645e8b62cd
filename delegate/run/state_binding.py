# SPDX-License-Identifier: Apache-2.0
"""Binding of a State to one executor's arena: restores values before a run, saves them after."""

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
        state; arena: if shared with other executors.
    """

    def __init__(
        self,
        state: State,
        arena: Arena | None,
        buffer: cl.Buffer,
        plan: PartitionPlan,
    ) -> None:
        """`arena`: shared with other executors, None: not shared; `buffer`: the arena's own.

        Raises: DeviceError: out of memory.
        """
        self.state, self.arena = state, arena
        memory = plan.memory
        self._buffer, self._stored = buffer, memory.arena_constants
        # Not `self`: the reference cycle would keep the device's context alive.
        self._token = object()
        known = {} if arena is None else arena.locations

        def at(offset: int) -> Location:
            return known.setdefault(offset, Location(buffer, offset, memory.slot_bytes))

        # Where a run reads values. Only new values are written there.
        found = [tensor for tensor in plan.inputs if state.has(tensor)]
        self._inputs = {tensor.state_name: at(memory.offsets[tensor]) for tensor in found}
        homes = {
            name: at(location) for name, location in memory.region.offsets.items()
        } | self._inputs
        made = [at(memory.offsets[tensor]) for tensor in plan.outputs]
        # Each new value, where a run produces it, and where it is copied before the outputs are
        # read: to where the next run reads it, or, if None, to its own buffer.
        self._outputs: list[tuple[str, Location, Location | None]] = []
        for tensor, location in zip(plan.outputs, made, strict=True):
            if state.has(tensor):
                home = homes.get(tensor.state_name)
                # The old value may also be an output, or the next value of another tensor.
                is_free = home is location or home not in made
                self._outputs.append((tensor.state_name, location, home if is_free else None))
        for name, _, home in self._outputs:
            if home is None:
                state.own_buffer(name)
        self._is_in_place = all(location is home for _, location, home in self._outputs)
        self._homes = self._inputs | {name: home for name, _, home in self._outputs if home}

    def restore(self) -> None:
        """Enqueue copies of the values to the arena; raises DeviceError if they are lost."""
        state = self.state
        with state.lock:
            state.require()
            self.write_constants()
            if state.resident is not self._token:
                state.resident = None
                for name, location in self._inputs.items():
                    state.by_name[name].copy_to(state.device.queue, location)

    def write_constants(self) -> None:
        """Enqueue copies of the program's constants if the arena holds another executor's."""
        if self.arena is None or self.arena.last_token is self._token:
            return
        self.arena.last_token = None
        queue = self.state.device.queue
        for each in self._stored:
            cl.enqueue_copy(queue, self._buffer, each.values, dst_offset=each.offset)
        self.arena.last_token = self._token

    def save(self) -> None:
        """Enqueue copies that save the arena's new values."""
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
        """Move the values out of the arena before it is freed or overwritten.

        They are lost if that fails.
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
