# SPDX-License-Identifier: Apache-2.0
"""Fuses the launches of a call group into one kernel. Op-agnostic."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from delegate.errors import DeviceError, KernelBuildError
from delegate.guard.children.trials import KERNEL
from delegate.plan.call_groups import CallGroup
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.dispatch.multi_kernel_source import (
    body,
    in_groups_of,
    numbered,
    scratch_of,
    tile_function,
)
from delegate.plan.layout import HEAD_INTS
from delegate.plan.record import ProgramPlan
from delegate.plan.sources import source_of
from delegate.run.device import Device

FILE = KERNEL_NAME = "runtime_fused"
# llvmpipe of Mesa 25.0 does not inline a function of more than 45 values; called behind a barrier
# of the caller, it has no context and crashes the process. GPU compilers inline anyway, and spill
# registers when forced to. Work-groups of one item have no barrier, and functions with a target of
# their own, which may not be inlined.
_INLINED = "#define static __attribute__((always_inline)) static\n"
_log = logging.getLogger("delegate")


@dataclass(frozen=True, slots=True, eq=False)
class FusedLaunches:
    """Consecutive launches as one kernel."""

    count: int  # of launches
    program: ProgramPlan
    groups: int
    group_items: int


class FusedSource(NamedTuple):
    """The source of fused launches."""

    text: str
    defines: Mapping[str, str]  # for messages
    group_items: int  # requested work-group size


def fused_source(group: CallGroup, is_cpu: bool = False) -> FusedSource:
    """Return a kernel that runs a call group; the launches' parameter blocks are contiguous.

    `is_cpu`: whether the device reports itself as a CPU.
    """
    items = max(launch.group_items for launch in group.launches)
    launches = [in_groups_of(items, launch) for launch in group.launches]
    bodies: dict[str, int] = {}
    runs: list[str] = []
    place = begin = 0
    for number, launch in enumerate(launches):
        function = tile_function(launch, bodies.setdefault(body(launch), len(bodies)))
        if number < len(group.chain):
            runs.append(f"RUN({function}, {launch.tiles}, {place})")
        else:
            runs.append(f"SPREAD({begin}, {place})")
            begin += launch.tiles
        place += HEAD_INTS + len(launch.params)
    if group.spread:
        runs.append(f"RUN_ONE({function})")
    defines = {"BODIES": " ".join(runs), "ALONE": str(int(items == 1)), **scratch_of(launches)}
    text = (_INLINED if is_cpu and items > 1 else "") + numbered(bodies) + source_of(FILE, defines)
    return FusedSource(text, defines, items)


def fused_kernels(
    device: Device, kernels: Kernels, groups: Sequence[CallGroup]
) -> dict[int, FusedLaunches]:
    """Return the kernels of groups of several launches, by the index of the first launch.

    Empty if the device fails to build one.
    """
    made: dict[int, FusedLaunches] = {}
    place = 0
    for group in groups:
        if len(group.launches) > 1:
            try:
                made[place] = _fused(device, kernels, group)
            except (DeviceError, KernelBuildError) as error:
                _log.info("launches run one by one: %s", error)
                return {}
        place += len(group.launches)
    return made


def _fused(device: Device, kernels: Kernels, group: CallGroup) -> FusedLaunches:
    source = fused_source(group, is_cpu=device.info.type == "cpu")
    build = kernels.build_of(FILE, source.text)
    program = kernels.source(FILE, source.text, dict(source.defines))
    _, limit = kernels.create_kernel(program, build._replace(kind=KERNEL, kernel=KERNEL_NAME))
    items = min(source.group_items, limit)
    count = len(group.launches)
    return FusedLaunches(count, kernels.plan_of(FILE, source.text), group.groups, items)
