# SPDX-License-Identifier: Apache-2.0
"""Small launches that each work-group of a persistent kernel repeats for itself. Op-agnostic.

The outputs of such a launch have a copy per group, written and read by that group alone: no group
waits, and no cache line moves between cores.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from delegate.graph.ir import Tensor
from delegate.launch import Launch, Schedule, size_bytes

# A launch of one tile keeps all other groups waiting, so repeating it is free. With more tiles it
# pays only if a core holds the data in its L1 cache.
_ONE_TILE_BYTES = 1 << 15  # read and written
_MORE_TILES_BYTES = 5 << 12
_MOST_WEIGHTS = 1 << 13  # bytes of constants


@dataclass(frozen=True, slots=True, eq=False)
class GroupCopies:
    """The launches and tensors of a schedule that are duplicated per group."""

    order: tuple[int, ...]  # indices of the launches in execution order
    launches: frozenset[int]  # indices of those that each group runs
    tensors: frozenset[Tensor]  # their outputs, and views of these


def no_group_copies(schedule: Schedule) -> GroupCopies:
    """Return the record without any per-group launch."""
    return GroupCopies(tuple(range(len(schedule.launches))), frozenset(), frozenset())


def group_copies(schedule: Schedule) -> GroupCopies:
    """Return the launches and tensors to duplicate per group.

    A group that starts late runs such a launch late. So no later launch may overwrite what it
    reads, and memory planning keeps that live to the end of a run.
    """
    launches, root = schedule.launches, schedule.roots()
    reads = [[root.get(tensor, tensor) for tensor in each.reads] for each in launches]
    writes = [[root.get(tensor, tensor) for tensor in each.writes] for each in launches]
    writers: dict[Tensor, list[int]] = {}  # indices
    for place, written in enumerate(writes):
        for tensor in written:
            writers.setdefault(tensor, []).append(place)
    # The host accesses these.
    shared = {root.get(tensor, tensor) for tensor in (*schedule.inputs, *schedule.outputs)}
    # updated in place
    kept = {tensor for tensor in schedule.inputs if tensor.state_name}
    one_item = any(launch.group_items == 1 for launch in launches)
    found = {
        place
        for place, launch in enumerate(launches)
        if _is_small(launch, one_item) and kept.isdisjoint(reads[place])
    }
    while True:
        own = {t for t, places in writers.items() if t not in shared and found.issuperset(places)}
        staying = {
            place
            for place in found
            if own.issuperset(writes[place])
            and all(writers[t][-1] < place for t in reads[place] if t in writers and t not in own)
        }
        if staying == found:
            break
        found = staying
    own |= {view for view, source in root.items() if source in own}
    return GroupCopies(_order(reads, writes, found), frozenset(found), frozenset(own))


def _is_small(launch: Launch, one_item: bool) -> bool:
    touched = sum(size_bytes(tensor) for tensor in {*launch.reads, *launch.writes})
    if launch.tiles == 1:
        return touched <= _ONE_TILE_BYTES and launch.constant_bytes <= _MOST_WEIGHTS
    # Groups of many items wait for memory in each tile.
    return one_item and touched <= _MORE_TILES_BYTES and not launch.constant_bytes


def _order(
    reads: Sequence[Sequence[Tensor]],
    writes: Sequence[Sequence[Tensor]],
    found: Collection[int],
) -> tuple[int, ...]:
    """Return an order in which each of `found` runs just before the first launch that needs it.

    Shared launches keep their order, and move closer together: there is less waiting.
    """
    order: list[int] = []
    waiting: list[int] = []
    for place in range(len(reads)):
        if place in found:
            waiting.append(place)
            continue
        needed = set(reads[place])
        touched: set[Tensor] = set()  # by the launches that follow
        taken: list[int] = []
        for each in reversed(waiting):
            # It produces what is needed, or touches what one of them overwrites.
            if not (
                needed.isdisjoint(writes[each])
                and touched.isdisjoint((*reads[each], *writes[each]))
            ):
                taken.append(each)
                needed.update(reads[each])
                touched.update(writes[each])
        waiting = [each for each in waiting if each not in taken]
        order += [*reversed(taken), place]
    return (*order, *waiting)
