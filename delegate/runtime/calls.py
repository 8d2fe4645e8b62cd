# SPDX-License-Identifier: Apache-2.0
"""Launches and a form -> the kernels that a driver is called with, and their arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyopencl as cl

from delegate.launch import Launch, Program
from delegate.runtime.device import Device
from delegate.runtime.joined import Joined, joined_kernels
from delegate.runtime.kernels import Kernels
from delegate.runtime.layout import LARGEST_BYTES, NOWHERE, Layout, Region, block_of, layout_of
from delegate.runtime.persistent import Persistent, persistent_kernel
from delegate.runtime.transfers import ReadyKernel
from delegate.sandbox.trials import Trial

# How a program's launches reach the device: each by a call; neighbours of few tiles by one call; or
# all as the tiles of one launch.
ONE_BY_ONE, JOINED, PERSISTENT = FORMS = ("one by one", "joined", "persistent")


class Memory(NamedTuple):
    """What kernels take."""

    arena: cl.Buffer
    constants: list[cl.Buffer | None]  # of each launch; None: it has none
    more: list[cl.Buffer]  # the blocks of params; of the persistent kernel its counts, too
    blocks: Sequence[int]


@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """The kernels of a program in a form."""

    device: Device
    kernels: Kernels
    launches: Sequence[Launch]
    layout: Layout
    whole: Persistent | None = None  # runs all launches
    joined: Mapping[int, Joined] = field(default_factory=dict)  # run several, by the first's place

    @property
    def form(self) -> str:
        """The form that it is, one of FORMS."""
        return PERSISTENT if self.whole else JOINED if self.joined else ONE_BY_ONE

    @property
    def trials(self) -> list[Trial]:
        """The trials to run each kernel once."""
        if self.whole is not None:
            return [self.whole.trial]
        own = self.kernels.runs(self.launches, self.layout.batch)
        return [own[place] if each is None else each.trial for place, each in self._in_order()]

    def _in_order(self) -> Iterator[tuple[int, Joined | None]]:
        """Yield the place of each launch that has a call of its own, or is the first of several."""
        place = 0
        while place < len(self.launches):
            several = self.joined.get(place)
            yield place, several
            place += several.count if several else 1

    def ready(self, memory: Memory) -> list[ReadyKernel]:
        """Return the kernels in order, with their arguments.

        Raises:
            DeviceError, KernelBuildError: the driver refuses one.
        """
        device, layout, (arena, of_each, more, blocks) = self.device, self.layout, memory

        def constants_of(first: int, count: int) -> cl.Buffer:
            """Return the buffer of some launches' constants, or any where they have none."""
            found = of_each[first : first + count]
            return next((each for each in found if each is not None), arena)

        if (whole := self.whole) is not None:
            constants = constants_of(0, len(of_each))
            with device.calling("clSetKernelArg of the persistent kernel"):
                whole.kernel.set_args(arena, constants, *more, np.int32(len(blocks)))
            return [(whole.kernel, (whole.groups * whole.group_items,), (whole.group_items,))]
        made: list[ReadyKernel] = []
        for place, several in self._in_order():
            launch, first = self.launches[place], layout.firsts[place]
            if several is None:
                kernel, group = self.kernels.kernel(launch)
                tiles, count = launch.tiles * layout.batch, 1
                is_argument = self.kernels.is_argument(launch)
            else:
                kernel, group, count = several.kernel, several.group_items, several.count
                tiles, is_argument = 1, False
            with device.calling(f"clSetKernelArg {kernel.function_name}"):
                own: list[object] = [*more, np.int32(first)]
                if is_argument:
                    own = [block_of(blocks, first, len(launch.params))]
                kernel.set_args(arena, constants_of(place, count), *own)
            made.append((kernel, (tiles * group,), (group,)))
        return made


def calls_of(
    device: Device,
    kernels: Kernels,
    program: Program,
    batch: int,
    form: str,
    region: Region = NOWHERE,
) -> Calls:
    """Return what runs a program in a form; where the device cannot do it, one by one.

    Raises:
        DeviceError, KernelBuildError: as Kernels.trial; it does not fit.
    """
    launches = program.launches
    if form == PERSISTENT and len(launches) > 1:
        layout = _that_fits(device, layout_of(program, batch, True, region))
        whole = persistent_kernel(device, kernels, launches, layout)
        if whole is not None:
            layout = _that_fits(device, replace(layout, groups=whole.groups))
            return Calls(device, kernels, launches, layout, whole)
    layout = _that_fits(device, layout_of(program, batch, False, region))
    is_joined = form == JOINED and batch == 1
    joined = joined_kernels(device, kernels, launches) if is_joined else {}
    return Calls(device, kernels, launches, layout, joined=joined)


def _that_fits(device: Device, layout: Layout) -> Layout:
    for what, size in (("arena", layout.arena_bytes), ("constants", layout.constant_bytes)):
        device.check_buffer(what, size, LARGEST_BYTES)
    return layout
