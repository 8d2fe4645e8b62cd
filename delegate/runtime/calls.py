# SPDX-License-Identifier: Apache-2.0
"""Launches and a dispatch mode -> the kernels that a driver is called with, and their arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from delegate.launch import Launch, Program
from delegate.plan.record import (
    JOINED,
    NOWHERE,
    ONE_BY_ONE,
    PERSISTENT,
    CallPlan,
    ProgramPlan,
    Region,
)
from delegate.runtime import joined as joined_file
from delegate.runtime import persistent as persistent_file
from delegate.runtime.device import Device
from delegate.runtime.joined import Joined, joined_kernels
from delegate.runtime.kernels import Kernels
from delegate.runtime.layout import LARGEST_BYTES, Layout, block_of, layout_of
from delegate.runtime.persistent import Persistent, persistent_kernel
from delegate.sandbox.trials import RUN, Trial


@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """The kernels of a program in a dispatch mode."""

    kernels: Kernels
    launches: Sequence[Launch]
    layout: Layout
    whole: Persistent | None = None  # runs all launches
    joined: Mapping[int, Joined] = field(default_factory=dict)  # run several, by the first's place

    @property
    def form(self) -> str:
        """The mode that it is, one of FORMS."""
        return PERSISTENT if self.whole else JOINED if self.joined else ONE_BY_ONE

    @property
    def runs(self) -> list[Trial]:
        """The trials to run each kernel once."""
        if (whole := self.whole) is not None:
            sizes = whole.groups, whole.group_items, self.layout.batch
            return [_run_of(whole.program, persistent_file.KERNEL_NAME, sizes)]
        own = self.kernels.runs(self.launches, self.layout.batch)
        return [
            own[place]
            if each is None
            else _run_of(each.program, joined_file.KERNEL_NAME, (1, each.group_items))
            for place, each in self._in_order()
        ]

    def _in_order(self) -> Iterator[tuple[int, Joined | None]]:
        """Yield the place of each launch that has a call of its own, or is the first of several."""
        place = 0
        while place < len(self.launches):
            several = self.joined.get(place)
            yield place, several
            place += several.count if several else 1

    def planned(
        self, constants: Sequence[int | None], blocks: Sequence[int]
    ) -> tuple[CallPlan, ...]:
        """Return the calls in order.

        `constants`: which buffer each launch's are in. `blocks`: the parameters of all launches.

        Raises:
            DeviceError, KernelBuildError: the driver refuses a kernel.
        """

        def of(first: int, count: int) -> int | None:
            """Return the buffer of some launches' constants; None: they have none."""
            found = constants[first : first + count]
            return next((each for each in found if each is not None), None)

        if (whole := self.whole) is not None:
            items = whole.group_items
            sizes = whole.groups * items, items
            all_of_them = len(self.launches)
            return (
                CallPlan(
                    whole.program,
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
                    joined_file.KERNEL_NAME,
                    several.group_items,
                )
                made.append(
                    CallPlan(
                        program, kernel, items, items, of(place, several.count), first,
                        launches=several.count,
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
    program: Program,
    batch: int,
    form: str,
    region: Region = NOWHERE,
) -> Calls:
    """Return what runs a program in a mode; where the device cannot do it, one by one.

    Raises:
        DeviceError, KernelBuildError: as Kernels.trial; it does not fit.
    """
    launches = program.launches
    if form == PERSISTENT and len(launches) > 1:
        layout = _that_fits(device, layout_of(program, batch, True, region))
        whole = persistent_kernel(device, kernels, launches, layout)
        if whole is not None:
            layout = _that_fits(device, replace(layout, groups=whole.groups))
            return Calls(kernels, launches, layout, whole)
    layout = _that_fits(device, layout_of(program, batch, False, region))
    is_joined = form == JOINED and batch == 1
    joined = joined_kernels(device, kernels, launches) if is_joined else {}
    return Calls(kernels, launches, layout, joined=joined)


def _run_of(program: ProgramPlan, kernel: str, sizes: tuple[int, ...]) -> Trial:
    return Trial(RUN, program.file, program.digest, kernel, sizes)


def _that_fits(device: Device, layout: Layout) -> Layout:
    for what, size in (("arena", layout.arena_bytes), ("constants", layout.constant_bytes)):
        device.check_buffer(what, size, LARGEST_BYTES)
    return layout
