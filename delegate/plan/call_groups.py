# SPDX-License-Identifier: Apache-2.0
"""Schedule -> groups of launches that share a kernel call, where not all do. Op-agnostic.

A launch costs a board's driver 20 to 200 microseconds, and a tile of a small one one or two. No
group needs memory order between work-groups, so any OpenCL 1.2 device can run it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from delegate.graph.ir import Tensor
from delegate.launch import Launch, Schedule, size_bytes

_MOST_TILES = 8  # of a small launch; with more, several work-groups are faster
_MOST_READ = 1 << 16  # bytes of tensors that it reads; attention reads whole caches
_MOST_WEIGHTS = 1 << 13  # bytes of constants that it reads: with more, its tiles take long
_MOST_LAUNCHES = 8  # in one call: long kernels compile slowly and spill registers
_MOST_REPEATS = 16  # of a chain: of so many work-groups each runs it for itself
_Stage = tuple[int, bool]


@dataclass(frozen=True, slots=True, eq=False)
class CallGroup:
    """Consecutive launches that one kernel call runs."""

    chain: tuple[Launch, ...]  # small ones: every work-group runs all of them in order
    spread: tuple[Launch, ...] = ()  # then one tile of these, which are independent

    @property
    def launches(self) -> tuple[Launch, ...]:
        """All of them in order."""
        return self.chain + self.spread

    @property
    def groups(self) -> int:
        """The work-groups of the call."""
        return sum(launch.tiles for launch in self.spread) or 1


def reordered(schedule: Schedule) -> Schedule:
    """Return the schedule with its steps in another order, in which larger groups share calls.

    A launch's stage is the number of large launches on the longest way to it. The small launches of
    a stage come first, and each step follows those that it depends on.
    """
    root = schedule.roots()
    stages: list[_Stage] = []  # of each step
    maker: dict[Tensor, int] = {}  # step that a tensor is computed or viewed by
    # By tensor: steps whose launches read or wrote it last, and the next stage after each launch.
    readers: dict[Tensor, list[tuple[int, int]]] = defaultdict(list)
    writers: dict[Tensor, list[tuple[int, int]]] = defaultdict(list)
    for number, step in enumerate(schedule.steps):
        view = step.alternative.view
        own: list[_Stage] = [(0, False)]
        if view is not None and view[0] in maker:
            own.append(stages[maker[view[0]]])
        for launch in step.alternative.launches:
            reads, writes = _roots(launch.reads, root), _roots(launch.writes, root)
            before = [each for tensor in {*reads, *writes} for each in writers[tensor]]
            before += [each for tensor in writes for each in readers[tensor]]
            own += [stages[earlier] for earlier, _ in before if earlier != number]
            is_large = not _is_small(launch)
            stage = max((following for _, following in before), default=0)
            own.append((stage, is_large))
            for tensor in writes:
                readers[tensor], writers[tensor] = [], [(number, stage + is_large)]
            for tensor in reads:
                readers[tensor].append((number, stage + is_large))
            maker |= dict.fromkeys(launch.writes, number)
        if view is not None:
            maker[view[1]] = number
        stages.append(max(own))
    order = sorted(range(len(stages)), key=stages.__getitem__)
    return replace(schedule, steps=tuple(schedule.steps[number] for number in order))


def call_groups(schedule: Schedule) -> list[CallGroup]:
    """Return the launches of a schedule in order, grouped by what may share a call."""
    root = schedule.roots()
    found: list[CallGroup] = []
    for launch in schedule.launches:
        last = found[-1] if found else CallGroup(())
        joint = _extend(last, launch, root) if last.launches else None
        if joint is not None:
            found[-1] = joint
        else:
            found.append(CallGroup((launch,)) if _is_small(launch) else CallGroup((), (launch,)))
    return found


def has_shared_calls(schedule: Schedule) -> bool:
    """Whether any of the launches may share a call with others."""
    return len(call_groups(reordered(schedule))) < len(schedule.launches)


def call_numbers(groups: Sequence[CallGroup]) -> list[int]:
    """Return for each launch the number of its call."""
    return [number for number, group in enumerate(groups) for _ in group.launches]


def _extend(group: CallGroup, launch: Launch, root: Mapping[Tensor, Tensor]) -> CallGroup | None:
    """Return the group with the launch that follows it; None: it needs a call of its own."""
    if len(group.launches) == _MOST_LAUNCHES:
        return None
    if (launch.group_items == 1) != (group.launches[0].group_items == 1):
        return None
    if _is_small(launch):
        return None if group.spread else CallGroup((*group.chain, launch))
    made = CallGroup(group.chain, (*group.spread, launch))
    if group.spread and not _are_alike(group.spread[0], launch):
        return None
    if group.chain and not (made.groups <= _MOST_REPEATS and _is_repeatable(made, root)):
        return None
    return made if _are_independent(made.spread, root) else None


def _is_small(launch: Launch) -> bool:
    read = sum(map(size_bytes, {*launch.reads}))
    return (
        launch.tiles <= _MOST_TILES
        and read <= _MOST_READ
        and launch.constant_bytes <= _MOST_WEIGHTS
    )


def _are_alike(one: Launch, other: Launch) -> bool:
    """Whether launches run the same function, whose registers suffice for both."""
    if one.is_specialised or other.is_specialised:
        return False
    return (one.file, one.kernel, one.group_items, [*one.params], one.defines) == (
        (other.file, other.kernel, other.group_items, [*other.params], other.defines)
    )


def _are_independent(launches: Sequence[Launch], root: Mapping[Tensor, Tensor]) -> bool:
    """Whether no launch reads or writes what another one writes."""
    read: set[Tensor] = set()
    written: set[Tensor] = set()
    for launch in launches:
        reads, writes = _roots(launch.reads, root), _roots(launch.writes, root)
        if not (written.isdisjoint((*reads, *writes)) and read.isdisjoint(writes)):
            return False
        read.update(reads)
        written.update(writes)
    return True


def _is_repeatable(group: CallGroup, root: Mapping[Tensor, Tensor]) -> bool:
    """Whether a work-group may run the chain while others are already past it.

    They write equal values, and no launch overwrites what it or an earlier one reads or writes.
    """
    seen: set[Tensor] = set()
    for launch in group.launches:
        seen.update(_roots(launch.reads, root))
        writes = _roots(launch.writes, root)
        if not seen.isdisjoint(writes):
            return False
        seen.update(writes)
    return True


def _roots(tensors: Sequence[Tensor], root: Mapping[Tensor, Tensor]) -> list[Tensor]:
    return [root.get(tensor, tensor) for tensor in tensors]
