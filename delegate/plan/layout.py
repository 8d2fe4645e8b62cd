# SPDX-License-Identifier: Apache-2.0
"""Program + batch -> memory layout: arena, parameter blocks, constants. Pure planning."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from delegate.graph.ir import Tensor
from delegate.launch import Constant, Launch, Schedule, constants_of, size_bytes
from delegate.plan.per_group_copies import GroupCopies, group_copies, no_group_copies
from delegate.plan.record import NO_REGION, ArenaConstant, MemoryPlan, Region

Bytes = NDArray[np.uint8]
ALIGNMENT = 64  # bytes: a vector of 16 ints, and a cache line of most devices
# Kernels may read, but not write, a vector of 16 ints past a tensor's last element. The values are
# ignored, but the memory must exist behind the last tensor, too.
SLACK_BYTES = 64
LARGEST_BYTES = 2**31 - 1  # of a buffer: kernels' offsets are ints
_GROUP_COPY_ALIGNMENT = 256  # bytes: cores with adjacent-line prefetch do not share them
HEAD_INTS = 2  # before a launch's parameters, read by KERNEL of kernel.clh


@dataclass(frozen=True, slots=True, eq=False)
class MemoryLayout:
    """The memory layout of a schedule; offsets and sizes are in bytes."""

    batch: int
    slot_bytes: int  # the arena of one batch element; slots are contiguous
    inputs: tuple[tuple[int, int], ...]  # (offset, size) in each slot
    outputs: tuple[tuple[int, int], ...]
    offsets: Mapping[Tensor, int]  # of every tensor, in each slot
    # tensors with data that launches read from the arena -> offset
    arena_constants: Mapping[Tensor, int]
    firsts: tuple[int, ...]  # offset of each launch's parameters in the combined blocks
    # Of each launch; launches of one phase may run concurrently. Ascending in `group_copies` order.
    phases: Sequence[int]
    constant_bytes: int  # of all launches, in one buffer
    group_copies: GroupCopies
    region: Region
    # Size of a group's copies; they follow the arena by group, at `offsets` for the first.
    group_copy_bytes: int = 0
    groups: int = 1  # that have copies

    @property
    def arena_bytes(self) -> int:
        """The slots of the whole batch, and the per-group copies."""
        return self.slot_bytes * self.batch + self.group_copy_bytes * self.groups

    def memory(self) -> MemoryPlan:
        """Return the part of it that an executor needs."""
        stored = (
            ArenaConstant(at, as_bytes(np.asarray(t.data)))
            for t, at in self.arena_constants.items()
        )
        sizes = self.batch, self.slot_bytes, self.arena_bytes, self.inputs, self.outputs
        own = self.offsets, tuple(stored), self.constant_bytes, self.region
        return MemoryPlan(*sizes, *own)

    def blocks(
        self, launches: Sequence[Launch], offsets: Sequence[Mapping[Constant, int]]
    ) -> tuple[int, ...]:
        """Return the parameter blocks of all launches; `offsets`: of each launch's constants."""
        blocks: list[int] = []
        for launch, of_constant in zip(launches, offsets, strict=True):
            blocks += [launch.tiles, self.slot_bytes]  # KERNEL of kernel.clh reads these two
            for value in launch.params.values():
                if isinstance(value, Tensor):
                    value = self.offsets[value]
                blocks.append(of_constant[value] if isinstance(value, Constant) else value)
        return tuple(blocks)

    def strides(self, launches: Sequence[Launch]) -> tuple[int, ...]:
        """Return by how much each int of `blocks` changes from one group to the next, in bytes."""
        own, size = self.group_copies.tensors, self.group_copy_bytes
        return tuple(
            size if isinstance(value, Tensor) and value in own else 0
            for launch in launches
            for value in (*[0] * HEAD_INTS, *launch.params.values())
        )


def layout_of(
    schedule: Schedule,
    batch: int = 1,
    is_whole: bool = False,
    region: Region = NO_REGION,
    calls: Sequence[int] | None = None,
) -> MemoryLayout:
    """Return the layout of a schedule for a batch.

    `is_whole`: all launches are one kernel; else each node's results are complete after its last
    launch. `region`: of persistent values at the start of a shared arena. `calls`: of each launch.
    """
    # A batch keeps the device busy by itself.
    copies = group_copies(schedule) if is_whole and batch == 1 else no_group_copies(schedule)
    steps = [n for n, step in enumerate(schedule.steps) for _ in step.alternative.launches]
    phases = phases_of(schedule, copies) if is_whole else calls or steps
    slot_bytes, offsets = plan_arena(schedule, phases, copies, region)
    copy_bytes, own = plan_group_copies(schedule, copies)
    offsets = {**offsets, **{tensor: slot_bytes + offset for tensor, offset in own.items()}}
    sizes = (HEAD_INTS + len(launch.params) for launch in schedule.launches)
    return MemoryLayout(
        batch=batch,
        slot_bytes=slot_bytes,
        inputs=tuple((offsets[tensor], size_bytes(tensor)) for tensor in schedule.inputs),
        outputs=tuple((offsets[tensor], size_bytes(tensor)) for tensor in schedule.outputs),
        offsets=offsets,
        arena_constants={t: offset for t, offset in offsets.items() if t.data is not None},
        firsts=tuple(accumulate(sizes, initial=HEAD_INTS))[:-1],
        phases=phases,
        constant_bytes=plan_constants(constants_of(schedule.launches))[0],
        group_copies=copies,
        group_copy_bytes=copy_bytes,
        region=region,
    )


def block_of(blocks: Sequence[int], first: int, fields: int) -> Bytes:
    """Return a launch's parameters with the two ints before them; `first`: as in `firsts`."""
    return as_bytes(np.array(blocks[first - HEAD_INTS : first + fields], np.int32))


def phases_of(schedule: Schedule, copies: GroupCopies) -> tuple[int, ...]:
    """Return a phase for each launch; launches of a phase are independent.

    None reads or writes what another of the phase writes, nor writes what another reads, except
    in per-group copies, which each group computes in order.
    """
    launches, root, own = schedule.launches, schedule.roots(), copies.tensors
    phases = [0] * len(launches)
    read: set[Tensor] = set()  # in the current phase
    written: set[Tensor] = set()
    phase = 0
    for place in copies.order:
        launch = launches[place]
        reads = {root.get(tensor, tensor) for tensor in launch.reads if tensor not in own}
        writes = {root.get(tensor, tensor) for tensor in launch.writes if tensor not in own}
        if not (written.isdisjoint(reads | writes) and read.isdisjoint(writes)):
            phase, read, written = phase + 1, set(), set()
        read |= reads
        written |= writes
        phases[place] = phase
    return tuple(phases)


def plan_arena(
    schedule: Schedule, phases: Sequence[int], copies: GroupCopies, region: Region = NO_REGION
) -> tuple[int, Mapping[Tensor, int]]:
    """Return the arena's size and each tensor's offset, both in bytes; `phases`: MemoryLayout's.

    Tensors that are live at the same time do not overlap; the largest are placed first. A view
    shares its source's bytes. Constants read from the arena are always live, as are persistent
    inputs, which the next run may read in place. If the old value is no longer needed, a run
    writes the new one in its place, without a copy. What per-group launches read stays live to
    the end of the run.
    """
    root, own = schedule.roots(), copies.tensors
    touched: dict[Tensor, list[int]] = defaultdict(list)  # in which phases; -1: before the run
    now, end = 0, max(phases, default=0) + 1

    def touch(tensor: Tensor, phase: int) -> None:
        if tensor not in own:
            touched[root.get(tensor, tensor)].append(phase)

    for tensor in schedule.inputs:
        touch(tensor, -1)
    places = iter(enumerate(phases))
    for step in schedule.steps:
        if step.alternative.view is not None:
            touch(step.alternative.view[0], now)
        for launch in step.alternative.launches:
            place, now = next(places)
            for tensor in (*launch.reads, *launch.writes):
                touch(tensor, now)
            if place in copies.launches:
                for tensor in launch.reads:
                    touch(tensor, end)
    for tensor in schedule.outputs:
        touch(tensor, end)
    homes = _in_place_outputs(schedule, touched, root)
    for tensor in homes:
        del touched[tensor]
    for tensor in touched:
        if tensor.data is not None:
            touched[tensor] = [-1, end]
    for tensor in schedule.inputs:
        if tensor.state_name:
            touched[tensor].append(end)
    fixed = {
        tensor: at for tensor, at in _region_offsets(region, schedule).items() if tensor in touched
    }
    free = {tensor: phases for tensor, phases in touched.items() if tensor not in fixed}
    size, offsets = _place_tensors(free, region.size_bytes)
    offsets |= fixed
    offsets |= {tensor: offsets[home] for tensor, home in homes.items()}
    offsets |= {view: offsets[source] for view, source in root.items() if view not in own}
    return size, offsets


def plan_group_copies(schedule: Schedule, copies: GroupCopies) -> tuple[int, Mapping[Tensor, int]]:
    """Return the size of a group's copies, and each tensor's offset in them."""
    launches, root, own = schedule.launches, schedule.roots(), copies.tensors
    touched: dict[Tensor, list[int]] = defaultdict(list)
    for now, place in enumerate(copies.order):
        for tensor in (*launches[place].reads, *launches[place].writes):
            if tensor in own:
                touched[root.get(tensor, tensor)].append(now)
    if not touched:
        return 0, {}
    size, offsets = _place_tensors(touched)
    offsets |= {view: offsets[root[view]] for view in own if root.get(view) in offsets}
    return -(-size // _GROUP_COPY_ALIGNMENT) * _GROUP_COPY_ALIGNMENT, offsets


def _place_tensors(
    touched: Mapping[Tensor, Sequence[int]], begin: int = 0
) -> tuple[int, dict[Tensor, int]]:
    """Return the end of the memory that tensors need from `begin` on, and each one's offset.

    `touched`: when each is written and read; it is live from the first to the last of these.
    """
    # Begin and end of each placed tensor, in bytes and in phases; sorted by the first.
    placed: list[tuple[int, int, int, int]] = []
    offsets: dict[Tensor, int] = {}
    lives = {tensor: (min(phases), max(phases)) for tensor, phases in touched.items()}
    for tensor in sorted(lives, key=lambda t: (-padded_bytes(t), lives[t][0], t.index)):
        offset, size, (own_first, own_last) = begin, padded_bytes(tensor), lives[tensor]
        for at, behind, first, last in placed:
            if at >= offset + size:
                break
            if behind > offset and last >= own_first and own_last >= first:
                offset = behind
        offsets[tensor] = offset
        bisect.insort(placed, (offset, offset + size, own_first, own_last))
    size = max((behind for _, behind, _, _ in placed), default=begin)
    return size + SLACK_BYTES, offsets


def _region_offsets(region: Region, schedule: Schedule) -> Mapping[Tensor, int]:
    """Return the offsets of persistent inputs, and of new values without an old one."""
    root, offsets = schedule.roots(), region.offsets
    found = {
        tensor.state_name: tensor for tensor in schedule.inputs if tensor.state_name in offsets
    }
    new = {t.state_name: root.get(t, t) for t in schedule.outputs if t.state_name in offsets}
    made = {tensor: name for name, tensor in new.items() if name not in found}
    places = {tensor: offsets[name] for tensor, name in made.items() if tensor.data is None}
    return places | {tensor: offsets[name] for name, tensor in found.items()}


def _in_place_outputs(
    schedule: Schedule, touched: Mapping[Tensor, Sequence[int]], root: Mapping[Tensor, Tensor]
) -> dict[Tensor, Tensor]:
    """Return the persistent values that can be updated in place: new value -> old one.

    No launch may read the old value from the phase on that writes the new one.
    """
    old = {tensor.state_name: tensor for tensor in schedule.inputs if tensor.state_name}
    homes: dict[Tensor, Tensor] = {}
    for tensor in schedule.outputs:
        new, home = root.get(tensor, tensor), old.get(tensor.state_name)
        if home is None or new in homes:
            continue
        is_free = max(touched[home]) < min(touched[new])
        if is_free and padded_bytes(new) == padded_bytes(home) and new.data is None:
            homes[new] = home
    return homes


def padded_bytes(tensor: Tensor) -> int:
    """Return the size of a tensor in an arena."""
    return max(-(-size_bytes(tensor) // ALIGNMENT), 1) * ALIGNMENT


def aligned_bytes(constant: Constant) -> int:
    """Return the size of a constant in a buffer."""
    return -(-constant.size_bytes // ALIGNMENT) * ALIGNMENT


def plan_constants(constants: Iterable[Constant]) -> tuple[int, Mapping[Constant, int]]:
    """Return the size of a buffer of constants and each one's offset, both in bytes."""
    offsets: dict[Constant, int] = {}
    size = 0
    for constant in constants:
        offsets[constant] = size
        size += aligned_bytes(constant)
    return size + SLACK_BYTES, offsets


def as_bytes(values: NDArray[np.generic]) -> Bytes:
    """Return an array's bytes in C order."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)
