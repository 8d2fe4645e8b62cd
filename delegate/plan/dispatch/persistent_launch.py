# SPDX-License-Identifier: Apache-2.0
"""All launches of a schedule as one persistent kernel; groups claim tiles. Op-agnostic."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from delegate.errors import DeviceError, KernelBuildError
from delegate.guard.children.trials import KERNEL
from delegate.isa import ORDER_ARM, ORDER_PTX, ORDER_X86, ORDERS
from delegate.launch import Launch
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.dispatch.multi_kernel_source import (
    body,
    in_groups_of,
    numbered,
    scratch_of,
    tile_function,
)
from delegate.plan.layout import HEAD_INTS, MemoryLayout
from delegate.plan.record import ProgramPlan
from delegate.plan.sources import source_of
from delegate.run.device import Device

_LINE_INTS = 32  # spacing of counters, which have their own cache lines
_ITEMS_A_UNIT = 128  # below that units mostly wait for memory: each runs another group
_FILE = KERNEL_NAME = "runtime_persistent"
_log = logging.getLogger("delegate")


@dataclass(frozen=True, slots=True, eq=False)
class PersistentKernel:
    """A schedule as one persistent launch."""

    program: ProgramPlan
    groups: int
    group_items: int
    table: Sequence[int]  # of launches, with padding at the end; see runtime_persistent.cl
    control_ints: int  # of its counters, zero before the first run; see there


def persistent_kernel(
    device: Device,
    kernels: Kernels,
    launches: Sequence[Launch],
    layout: MemoryLayout,
) -> PersistentKernel | None:
    """Return the kernel that runs all launches; None if the device is not proven to order memory
    between groups as it requires, or fails to build it.
    """
    proven = device.proven
    if not ORDERS & proven:
        return None
    # Kernels for groups of one item ignore their item; others run at any group size.
    one_item = any(launch.group_items == 1 for launch in launches)
    group_items = 1 if one_item else max(launch.group_items for launch in launches)
    launches = [in_groups_of(group_items, launch) for launch in launches]
    # A group copies the block of its current launch, with the offsets of its own copies.
    space = "private" if one_item else "local"
    source, runs, table = _merged_source(launches, layout, space)
    copied = layout.group_copies.launches
    shared = (each.tiles for place, each in enumerate(launches) if place not in copied)
    tiles = layout.batch * sum(shared)
    block_ints = HEAD_INTS + max(len(launch.params) for launch in launches)
    defines = {
        "BODIES": " ".join(runs),
        "TILES": str(tiles),
        "LAUNCHES": str(len(launches)),
        "BLOCK_INTS": str(block_ints),
        "PARAMS_SPACE": space,
        "ONE_ITEM": str(int(one_item)),
        **{way.upper(): str(int(way in proven)) for way in (ORDER_X86, ORDER_ARM, ORDER_PTX)},
        **scratch_of(launches),
    }
    file = _file_of(launches)
    try:
        source += source_of(_FILE, defines)
        build = kernels.build_of(file, source)
        program = kernels.source(file, source, defines)
        _, limit = kernels.create_kernel(program, build._replace(kind=KERNEL, kernel=KERNEL_NAME))
    except (DeviceError, KernelBuildError) as error:
        _log.info("launches run one by one: %s", error)
        return None
    group_items = min(group_items, limit)
    groups = device.compute_units * (1 if one_item else max(1, _ITEMS_A_UNIT // group_items))
    control_ints = (2 + groups) * _LINE_INTS + groups if one_item else 3 * _LINE_INTS
    # A group copies as many ints as the longest block has, so the last one needs padding.
    table += [0] * block_ints
    made_of = kernels.plan_of(file, source)
    return PersistentKernel(made_of, groups, group_items, table, control_ints)


def _merged_source(
    launches: Sequence[Launch], layout: MemoryLayout, space: str
) -> tuple[str, list[str], list[int]]:
    """Return the source of all kernels, a RUN for each of them, and the table of launches."""
    bodies: dict[str, int] = {}
    numbers: dict[Hashable, int] = {}  # of bodies, by their source
    runs: list[str] = []
    table: list[int] = []
    tiles = after = phase = 0
    for place in layout.group_copies.order:
        launch, is_copied = launches[place], place in layout.group_copies.launches
        values = launch.params.values() if launch.is_specialised else ()
        ints = tuple(value if isinstance(value, int) else None for value in values)
        made_of = (launch.file, launch.kernel, *launch.params, *launch.defines.items(), ints)
        if made_of not in numbers:
            text = body(launch, space)
            numbers[made_of] = number = bodies.setdefault(text, len(bodies))
            if number == len(runs):
                runs.append(f"RUN({number}, {tile_function(launch, number)})")
        if layout.phases[place] != phase:
            after, phase = tiles, layout.phases[place]
        own = launch.tiles * layout.batch
        tiles += 0 if is_copied else own
        table += [numbers[made_of], layout.firsts[place], own, after, int(is_copied)]
    return numbered(bodies), runs, table


def _file_of(launches: Sequence[Launch]) -> str:
    """Return the trial name: if a specialised kernel is given up, generic ones stay allowed."""
    return f"{_FILE}_specialised" if any(launch.is_specialised for launch in launches) else _FILE
