# SPDX-License-Identifier: Apache-2.0
"""Fuses consecutive launches of few tiles into one kernel, run by one work-group. Op-agnostic.

A launch costs a board's driver 20 to 200 microseconds, and such a tile one or two. A single group
needs no memory order between groups, so any OpenCL 1.2 device can run it.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from delegate.errors import DeviceError, KernelBuildError
from delegate.guard.children.trials import KERNEL
from delegate.launch import Launch
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
_MOST_TILES = 4  # of a launch; with more, several groups are faster
_MOST_LAUNCHES = 8  # in one kernel: long kernels compile slowly and spill registers
_MOST_WEIGHTS = 1 << 13  # bytes of constants of a launch: with more, its tiles take long
# llvmpipe of Mesa 25.0 does not inline a function of more than 45 values; called behind a barrier
# of the caller, it has no context and crashes the process. GPU compilers inline anyway, and spill
# registers when forced to.
_INLINED = "#define static __attribute__((always_inline)) static\n"
_log = logging.getLogger("delegate")


@dataclass(frozen=True, slots=True, eq=False)
class FusedLaunches:
    """Consecutive launches as one kernel."""

    count: int  # of launches
    program: ProgramPlan
    group_items: int


def fusible_groups(launches: Sequence[Launch]) -> list[Sequence[Launch]]:
    """Return the launches in order, grouped by what may be fused."""

    def kind(launch: Launch) -> object:
        """Return a key that fusible neighbours share, unique if the launch is not fusible."""
        is_small = launch.tiles <= _MOST_TILES and launch.constant_bytes <= _MOST_WEIGHTS
        return launch.group_items == 1 if is_small else launch

    alike = (tuple(group) for _, group in itertools.groupby(launches, kind))
    return [
        group[first : first + _MOST_LAUNCHES]
        for group in alike
        for first in range(0, len(group), _MOST_LAUNCHES)
    ]


def can_fuse(launches: Sequence[Launch]) -> bool:
    """Whether any of the launches may be fused."""
    return len(fusible_groups(launches)) < len(launches)


class FusedSource(NamedTuple):
    """The source of fused launches."""

    text: str
    defines: Mapping[str, str]  # for messages
    group_items: int  # requested work-group size


def fused_source(launches: Sequence[Launch], is_cpu: bool = False) -> FusedSource:
    """Return a kernel that runs launches in sequence; their parameter blocks are contiguous.

    `is_cpu`: whether the device reports itself as a CPU.
    """
    items = max(launch.group_items for launch in launches)
    launches = [in_groups_of(items, launch) for launch in launches]
    bodies: dict[str, int] = {}
    runs: list[str] = []
    place = 0
    for launch in launches:
        number = bodies.setdefault(body(launch), len(bodies))
        runs.append(f"RUN({tile_function(launch, number)}, {launch.tiles}, {place})")
        place += HEAD_INTS + len(launch.params)
    defines = {"BODIES": " ".join(runs), "ALONE": str(int(items == 1)), **scratch_of(launches)}
    text = (_INLINED if is_cpu else "") + numbered(bodies) + source_of(FILE, defines)
    return FusedSource(text, defines, items)


def fused_kernels(
    device: Device, kernels: Kernels, launches: Sequence[Launch]
) -> dict[int, FusedLaunches]:
    """Return the kernels of fused launches, by the index of the first launch.

    Empty if the device fails to build one.
    """
    made: dict[int, FusedLaunches] = {}
    place = 0
    for group in fusible_groups(launches):
        if len(group) > 1:
            try:
                made[place] = _fused(device, kernels, group)
            except (DeviceError, KernelBuildError) as error:
                _log.info("launches run one by one: %s", error)
                return {}
        place += len(group)
    return made


def _fused(device: Device, kernels: Kernels, launches: Sequence[Launch]) -> FusedLaunches:
    source = fused_source(launches, is_cpu=device.info.type == "cpu")
    build = kernels.build_of(FILE, source.text)
    program = kernels.source(FILE, source.text, dict(source.defines))
    _, limit = kernels.create_kernel(program, build._replace(kind=KERNEL, kernel=KERNEL_NAME))
    items = min(source.group_items, limit)
    return FusedLaunches(len(launches), kernels.plan_of(FILE, source.text), items)
