# SPDX-License-Identifier: Apache-2.0
"""Launches + dispatch mode -> kernel calls and their arguments."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from delegate.errors import DeviceError
from delegate.guard.children.trials import RUN, Trial
from delegate.launch import Launch, Schedule
from delegate.plan.call_groups import call_groups, call_numbers, reordered
from delegate.plan.dispatch import fused_launches as fused_file
from delegate.plan.dispatch import persistent_launch as persistent_file
from delegate.plan.dispatch.fused_launches import FusedLaunches, fused_kernels
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.dispatch.persistent_launch import PersistentKernel, persistent_kernel
from delegate.plan.layout import LARGEST_BYTES, MemoryLayout, block_of, layout_of
from delegate.plan.record import (
    FUSED,
    NO_REGION,
    ONE_BY_ONE,
    PERSISTENT,
    CallPlan,
    ProgramPlan,
    Region,
)
from delegate.run.device import Device


@dataclass(frozen=True, slots=True, eq=False)
class KernelCalls:
    """The kernel calls of a schedule in a dispatch mode."""

    kernels: Kernels
    schedule: Schedule  # in the order of the calls
    layout: MemoryLayout
    persistent: PersistentKernel | None = None  # runs all launches
    # fused launches, by the index of the first
    fused: Mapping[int, FusedLaunches] = field(default_factory=dict)

    @property
    def launches(self) -> Sequence[Launch]:
        """The schedule's launches in order."""
        return self.schedule.launches

    @property
    def dispatch_mode(self) -> str:
        """One of DISPATCH_MODES."""
        return PERSISTENT if self.persistent else FUSED if self.fused else ONE_BY_ONE

    @property
    def runs(self) -> list[Trial]:
        """Trials that run each kernel once."""
        if (persistent := self.persistent) is not None:
            sizes = persistent.groups, persistent.group_items, self.layout.batch
            return [_run_of(persistent.program, persistent_file.KERNEL_NAME, sizes)]
        own = self.kernels.runs(self.launches, self.layout.batch)
        return [
            own[place]
            if each is None
            else _run_of(each.program, fused_file.KERNEL_NAME, (each.groups, each.group_items))
            for place, each in self._in_order()
        ]

    def _in_order(self) -> Iterator[tuple[int, FusedLaunches | None]]:
        """Yield each launch with its own call, or the first of each fused group, by index."""
        place = 0
        while place < len(self.launches):
            several = self.fused.get(place)
            yield place, several
            place += several.count if several else 1

    def call_plans(
        self, constants: Sequence[int | None], blocks: Sequence[int]
    ) -> tuple[CallPlan, ...]:
        """Return the calls in order.

        `constants`: the buffer index for each launch. `blocks`: the parameters of all launches.

        Raises:
            DeviceError, KernelBuildError: the driver rejects a kernel.
        """

        def of(first: int, count: int) -> int | None:
            """Return the buffer of these launches' constants; None: they have none."""
            found = constants[first : first + count]
            return next((each for each in found if each is not None), None)

        if (persistent := self.persistent) is not None:
            items = persistent.group_items
            sizes = persistent.groups * items, items
            all_of_them = len(self.launches)
            return (
                CallPlan(
                    persistent.program,
                    persistent_file.KERNEL_NAME,
                    *sizes,
                    of(0, all_of_them),
                    len(blocks),
                    launches=all_of_them,
                ),
            )
        made: list[CallPlan] = []
        for place, several in self._in_order():
            launch, first, block = self.launches[place], self.layout.firsts[place], b""
            if several is not None:
                program, kernel, items = (
                    several.program,
                    fused_file.KERNEL_NAME,
                    several.group_items,
                )
                made.append(
                    CallPlan(
                        program, kernel, several.groups * items, items,
                        of(place, several.count), first, launches=several.count,
                    )
                )  # fmt: skip
                continue
            _, items = self.kernels.kernel(launch)
            program = self.kernels.plan_of(launch.file, self.kernels.source_of(launch))
            if self.kernels.is_argument(launch):
                block = block_of(blocks, first, len(launch.params)).tobytes()
            sizes = launch.tiles * self.layout.batch * items, items
            made.append(CallPlan(program, launch.kernel, *sizes, of(place, 1), first, block))
        return tuple(made)


def calls_of(
    device: Device,
    kernels: Kernels,
    schedule: Schedule,
    batch: int,
    dispatch_mode: str,
    region: Region = NO_REGION,
) -> KernelCalls:
    """Return a schedule's calls in a mode; in one with more calls if the device cannot do it.

    Raises:
        DeviceError, KernelBuildError: as Kernels.kernel; or it does not fit.
    """
    if dispatch_mode == PERSISTENT and len(schedule.launches) > 1:
        layout = _checked_layout(device, layout_of(schedule, batch, True, region))
        persistent = persistent_kernel(device, kernels, schedule.launches, layout)
        if persistent is not None:
            layout = _checked_layout(device, replace(layout, groups=persistent.groups))
            return KernelCalls(kernels, schedule, layout, persistent)
    if dispatch_mode != ONE_BY_ONE and batch == 1:
        in_order = reordered(schedule)
        groups = call_groups(in_order)
        with contextlib.suppress(DeviceError):  # more tensors live at once may not fit
            phases = call_numbers(groups)
            layout = _checked_layout(device, layout_of(in_order, 1, False, region, phases))
            if fused := fused_kernels(device, kernels, groups):
                return KernelCalls(kernels, in_order, layout, fused=fused)
    layout = _checked_layout(device, layout_of(schedule, batch, False, region))
    return KernelCalls(kernels, schedule, layout)


def _run_of(program: ProgramPlan, kernel: str, sizes: tuple[int, ...]) -> Trial:
    return Trial(RUN, program.file, program.digest, kernel, sizes)


def _checked_layout(device: Device, layout: MemoryLayout) -> MemoryLayout:
    for what, size in (("arena", layout.arena_bytes), ("constants", layout.constant_bytes)):
        device.check_buffer(what, size, LARGEST_BYTES)
    return layout
