# SPDX-License-Identifier: Apache-2.0
"""Program + batch -> where every byte goes: arena, parameter blocks, constants. Only plans."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delegate.graph.ir import Tensor
from delegate.launch import Constant, Launch, Program, size_bytes
from delegate.runtime.region import NOWHERE, Region, places_in
from delegate.runtime.replicated import Replication, not_replicated, replicated

Bytes = NDArray[np.uint8]
ALIGNMENT = 64  # bytes: a vector of 16 ints, and a cache line of most devices
# Kernels may read a vector of 16 ints past a tensor's last element, never write there: what they
# find does not count, but it must be theirs to read behind the last tensor, too.
SLACK_BYTES = 64
LARGEST_BYTES = 2**31 - 1  # of a buffer: kernels' offsets are ints
_REPLICA_ALIGNMENT = 256  # bytes: cores that fetch lines in pairs fetch no other's
HEAD_INTS = 2  # before a launch's parameters, for KERNEL of kernel.clh


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """What lies where; offsets and sizes are in bytes."""

    batch: int
    slot_bytes: int  # the arena of one picture; the pictures' arenas follow each other
    inputs: tuple[tuple[int, int], ...]  # (offset, size) in each picture's arena
    outputs: tuple[tuple[int, int], ...]
    offsets: Mapping[Tensor, int]  # of every tensor, in each picture's arena
    stored: Mapping[Tensor, int]  # tensors with data that launches read from the arena -> offset
    firsts: tuple[int, ...]  # where each launch's own parameters begin in the blocks of all
    # Of each launch; those of a phase may run at once. Rising in the order of `replication`.
    phases: tuple[int, ...]
    constant_bytes: int  # of all launches, in one buffer
    replication: Replication
    region: Region
    # A group's replicas; they lie behind the arena, group after group, at `offsets` for the first.
    replica_bytes: int = 0
    groups: int = 1  # which have replicas

    @property
    def arena_bytes(self) -> int:
        """The arenas of all pictures, and the replicas."""
        return self.slot_bytes * self.batch + self.replica_bytes * self.groups

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
        """Return how far each int of `blocks` moves from one group to the next, in bytes."""
        own, size = self.replication.tensors, self.replica_bytes
        return tuple(
            size if isinstance(value, Tensor) and value in own else 0
            for launch in launches
            for value in (*[0] * HEAD_INTS, *launch.params.values())
        )


def layout_of(
    program: Program, batch: int = 1, is_whole: bool = False, region: Region = NOWHERE
) -> Layout:
    """Return the layout of a program that runs for `batch` pictures at once.

    `is_whole`: its launches are one; others go one by one, and each node's results are there after
    its last launch. `region`: where kept values begin an arena that other programs have, too.
    """
    # A batch fills the device by itself.
    replication = replicated(program) if is_whole and batch == 1 else not_replicated(program)
    phases = phases_of(program, replication) if is_whole else _nodes_of(program)
    slot_bytes, offsets = plan_arena(program, phases, replication, region)
    replica_bytes, own = plan_replica(program, replication)
    offsets = {**offsets, **{tensor: slot_bytes + offset for tensor, offset in own.items()}}
    firsts, end = [], 0
    for launch in program.launches:
        firsts.append(end + HEAD_INTS)
        end = firsts[-1] + len(launch.params)
    return Layout(
        batch=batch,
        slot_bytes=slot_bytes,
        inputs=tuple((offsets[tensor], size_bytes(tensor)) for tensor in program.inputs),
        outputs=tuple((offsets[tensor], size_bytes(tensor)) for tensor in program.outputs),
        offsets=offsets,
        stored={t: offset for t, offset in offsets.items() if t.data is not None},
        firsts=tuple(firsts),
        phases=phases,
        constant_bytes=plan_constants(constants_of(program.launches))[0],
        replication=replication,
        replica_bytes=replica_bytes,
        region=region,
    )


def block_of(blocks: Sequence[int], first: int, fields: int) -> Bytes:
    """Return a launch's parameters with the two ints before them; `first`: one of `firsts`."""
    return as_bytes(np.array(blocks[first - HEAD_INTS : first + fields], np.int32))


def phases_of(program: Program, replication: Replication) -> tuple[int, ...]:
    """Return a phase for each launch, of which none needs another launch of its own.

    None reads what another one of the phase writes, and none writes what another one touches; but
    for what each group has for itself, and makes in order.
    """
    launches, root, own = program.launches, program.roots(), replication.tensors
    phases = [0] * len(launches)
    read: set[Tensor] = set()  # in the last phase
    written: set[Tensor] = set()
    phase = 0
    for place in replication.order:
        launch = launches[place]
        reads = {root.get(tensor, tensor) for tensor in launch.reads if tensor not in own}
        writes = {root.get(tensor, tensor) for tensor in launch.writes if tensor not in own}
        if not (written.isdisjoint(reads | writes) and read.isdisjoint(writes)):
            phase, read, written = phase + 1, set(), set()
        read |= reads
        written |= writes
        phases[place] = phase
    return tuple(phases)


def _nodes_of(program: Program) -> tuple[int, ...]:
    return tuple(
        place for place, step in enumerate(program.steps) for _ in step.alternative.launches
    )


@dataclass(slots=True)
class _Block:
    tensor: Tensor
    size: int
    first: int  # phase that writes it; -1 = before the run
    last: int  # phase that reads it last
    offset: int = -1


def plan_arena(
    program: Program, phases: Sequence[int], replication: Replication, region: Region = NOWHERE
) -> tuple[int, Mapping[Tensor, int]]:
    """Return the arena's size and each tensor's offset, both in bytes; `phases`: as of Layout.

    No two tensors that live at once overlap; the largest are placed first.
    A view shares its source's bytes. Constants that launches read as tensors live for ever, and
    so do kept inputs: the next run may find there what this one leaves. A run leaves it there
    where nobody needs the old value any more: no copy is needed then. What a replicated launch
    reads stays to the end of the run.
    """
    root, own = program.roots(), replication.tensors
    blocks: dict[Tensor, _Block] = {}
    now = 0
    end = max(phases, default=now) + 1

    def touch(tensor: Tensor, phase: int) -> None:
        if tensor not in own:
            _touch(blocks, root.get(tensor, tensor), phase)

    for tensor in program.inputs:
        touch(tensor, -1)
    places = iter(enumerate(phases))
    for step in program.steps:
        if step.alternative.view is not None:
            touch(step.alternative.view[0], now)
        for launch in step.alternative.launches:
            place, now = next(places)
            for tensor in (*launch.reads, *launch.writes):
                touch(tensor, now)
            if place in replication.launches:
                for tensor in launch.reads:
                    touch(tensor, end)
    for tensor in program.outputs:
        touch(tensor, end)
    homes = _homes(program, blocks, root)
    for tensor in homes:
        del blocks[tensor]
    for tensor, block in blocks.items():
        if tensor.data is not None:
            block.first, block.last = -1, end
    for tensor in program.inputs:
        if tensor.kept:
            blocks[tensor].last = end
    fixed = {tensor: at for tensor, at in places_in(program, region).items() if tensor in blocks}
    free = {tensor: block for tensor, block in blocks.items() if tensor not in fixed}
    size, offsets = _placed(free, region.size_bytes)
    offsets |= fixed
    offsets |= {tensor: offsets[home] for tensor, home in homes.items()}
    offsets |= {view: offsets[source] for view, source in root.items() if view not in own}
    return size, offsets


def plan_replica(program: Program, replication: Replication) -> tuple[int, Mapping[Tensor, int]]:
    """Return the bytes of what each group has for itself, and each tensor's offset in them."""
    launches, root, own = program.launches, program.roots(), replication.tensors
    blocks: dict[Tensor, _Block] = {}
    for now, place in enumerate(replication.order):
        for tensor in (*launches[place].reads, *launches[place].writes):
            if tensor in own:
                _touch(blocks, root.get(tensor, tensor), now)
    if not blocks:
        return 0, {}
    size, offsets = _placed(blocks)
    offsets |= {view: offsets[root[view]] for view in own if root.get(view) in offsets}
    return -(-size // _REPLICA_ALIGNMENT) * _REPLICA_ALIGNMENT, offsets


def _touch(blocks: dict[Tensor, _Block], tensor: Tensor, phase: int) -> None:
    if tensor not in blocks:
        blocks[tensor] = _Block(tensor, room_of(tensor), phase, phase)
    block = blocks[tensor]
    block.first, block.last = min(block.first, phase), max(block.last, phase)


def _placed(blocks: Mapping[Tensor, _Block], begin: int = 0) -> tuple[int, dict[Tensor, int]]:
    """Return the bytes that blocks need, from `begin` on, and each one's offset."""
    # Where each that is placed begins and ends, in bytes and in phases; by the first.
    placed: list[tuple[int, int, int, int]] = []
    for block in sorted(blocks.values(), key=lambda b: (-b.size, b.first, b.tensor.index)):
        offset, size, own_first, own_last = begin, block.size, block.first, block.last
        for at, behind, first, last in placed:
            if at >= offset + size:
                break
            if behind > offset and last >= own_first and own_last >= first:
                offset = behind
        block.offset = offset
        bisect.insort(placed, (offset, offset + size, own_first, own_last))
    size = max((behind for _, behind, _, _ in placed), default=begin)
    return size + SLACK_BYTES, {tensor: block.offset for tensor, block in blocks.items()}


def _homes(
    program: Program, blocks: Mapping[Tensor, _Block], root: Mapping[Tensor, Tensor]
) -> dict[Tensor, Tensor]:
    """Return what may be made where a run finds a kept value: new value -> the old one.

    No launch needs the old value from the phase on that writes the new one.
    """
    ends = [root.get(tensor, tensor) for tensor in program.outputs]
    old = {tensor.kept: tensor for tensor in program.inputs if tensor.kept}
    homes: dict[Tensor, Tensor] = {}
    for tensor, new in zip(program.outputs, ends, strict=True):
        home = old.get(tensor.kept)
        if home is None or new in homes:
            continue
        made, found = blocks[new], blocks[home]
        if found.last < made.first and made.size == found.size and new.data is None:
            homes[new] = home
    return homes


def room_of(tensor: Tensor) -> int:
    """Return the bytes that a tensor takes in an arena."""
    return max(-(-size_bytes(tensor) // ALIGNMENT), 1) * ALIGNMENT


def constants_of(launches: Iterable[Launch]) -> tuple[Constant, ...]:
    """Return the constants that launches read, each once, in the order of the launches."""
    values = (value for launch in launches for value in launch.params.values())
    return tuple(dict.fromkeys(value for value in values if isinstance(value, Constant)))


def aligned(constant: Constant) -> int:
    """Return the bytes that a constant takes in a buffer."""
    return -(-constant.size_bytes // ALIGNMENT) * ALIGNMENT


def plan_constants(constants: Iterable[Constant]) -> tuple[int, Mapping[Constant, int]]:
    """Return the size of a buffer of constants and each one's offset, both in bytes."""
    offsets: dict[Constant, int] = {}
    size = 0
    for constant in constants:
        offsets[constant] = size
        size += aligned(constant)
    return size + SLACK_BYTES, offsets


def as_bytes(values: NDArray[np.generic]) -> Bytes:
    """Return an array's bytes in C order."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)
