# SPDX-License-Identifier: Apache-2.0
"""All launches of a program as one kernel whose groups claim their tiles. Knows no op."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import pyopencl as cl

from delegate.errors import DeviceError, KernelBuildError
from delegate.isa import ORDER_ARM, ORDER_PTX, ORDER_X86, ORDERS
from delegate.launch import Launch
from delegate.runtime.context import opencl
from delegate.runtime.device import Device
from delegate.runtime.kernels import Kernels
from delegate.runtime.layout import Layout
from delegate.runtime.side_by_side import body, in_groups_of, numbered, tile_function
from delegate.runtime.sources import source_of
from delegate.sandbox.trials import KERNEL, RUN, Trial

_LINE_INTS = 32  # of a count, in cache lines of its own
_ITEMS_A_UNIT = 128  # fewer wait for memory most of the time: a unit takes another group then
_FILE, _KERNEL = "runtime_persistent", "runtime_persistent"
_log = logging.getLogger("delegate")


@dataclass(frozen=True, slots=True, eq=False)
class Persistent:
    """A program as one launch."""

    kernel: cl.Kernel
    groups: int
    group_items: int
    table: Sequence[int]  # a row a launch: body, first, end, after; see runtime_persistent.cl
    control_ints: int  # of its counts, zero before the first run; see there, too
    trial: Trial  # to run it


def persistent_kernel(
    device: Device,
    kernels: Kernels,
    launches: Sequence[Launch],
    layout: Layout,
    batch: int,
) -> Persistent | None:
    """Return the one kernel that runs all launches; None where the device was not proven to order
    memory between groups as it needs, or does not build it.
    """
    proven = device.proven
    if not ORDERS & proven:
        return None
    # Kernels for groups of one item do not look at their item; the others run at any group size.
    one_item = any(launch.group_items == 1 for launch in launches)
    group_items = 1 if one_item else max(launch.group_items for launch in launches)
    launches = [in_groups_of(group_items, launch) for launch in launches]
    # NVIDIA's units wait long for what is not in local memory, with one group each.
    is_local = ORDER_PTX in proven and not one_item
    source, runs, table = _side_by_side(launches, layout, batch, is_local)
    tiles = batch * sum(launch.tiles for launch in launches)
    scratch = max((int(launch.defines.get("SCRATCH_INTS", 0)) for launch in launches), default=0)
    defines = {
        "BODIES": " ".join(runs),
        "TILES": str(tiles),
        "LAUNCHES": str(len(launches)),
        "ONE_ITEM": str(int(one_item)),
        **{order.upper(): str(int(order in proven)) for order in (ORDER_X86, ORDER_ARM, ORDER_PTX)},
    }
    if scratch:
        defines["SCRATCH_INTS"] = str(scratch)
    if is_local:
        longest = max(len(launch.params) for launch in launches)
        defines |= {"PARAMS_SPACE": "local", "BLOCK_INTS": str(2 + longest)}
    try:
        source += source_of(_FILE, defines)
        build = kernels.build_of(_file_of(launches), source)
        program = kernels.source(_file_of(launches), source, defines)
        with kernels.trials.of(build._replace(kind=KERNEL, kernel=_KERNEL)):
            with opencl("clCreateKernel of the persistent kernel"):
                kernel = cl.Kernel(program, _KERNEL)
            limit = device.group_limit(kernel)
    except (DeviceError, KernelBuildError) as error:
        _log.info("launches run one by one: %s", error)
        return None
    group_items = min(group_items, limit)
    groups = device.compute_units * (1 if one_item else max(1, _ITEMS_A_UNIT // group_items))
    sizes = groups, group_items, tiles
    trial = build._replace(kind=RUN, kernel=_KERNEL, sizes=sizes)
    control_ints = (2 + groups) * _LINE_INTS + groups if one_item else 3 * _LINE_INTS
    return Persistent(kernel, groups, group_items, table, control_ints, trial)


def _side_by_side(
    launches: Sequence[Launch], layout: Layout, batch: int, is_local: bool
) -> tuple[str, list[str], list[int]]:
    """Return the source of all builds, a RUN for each of them, and the table of the launches."""
    bodies: dict[str, int] = {}
    numbers: dict[Hashable, int] = {}  # of bodies, by what they are made of
    runs: list[str] = []
    table: list[int] = []
    tiles = after = phase = 0
    for launch, first, own in zip(launches, layout.firsts, layout.phases, strict=True):
        values = launch.params.values() if launch.is_literal else ()
        ints = tuple(value if isinstance(value, int) else None for value in values)
        made_of = (launch.file, launch.kernel, *launch.params, *launch.defines.items(), ints)
        if made_of not in numbers:
            text = body(launch, is_local)
            numbers[made_of] = number = bodies.setdefault(text, len(bodies))
            if number == len(runs):
                runs.append(f"RUN({number}, {tile_function(launch, number)})")
        if own != phase:
            after, phase = tiles, own
        tiles += launch.tiles * batch
        table += [numbers[made_of], first, tiles, after]
    source = "".join(numbered(text, number) for text, number in bodies.items())
    return source, runs, table


def _file_of(launches: Sequence[Launch]) -> str:
    """Return the name that trials have: if a child gives up a literal one, the others stay."""
    return f"{_FILE}_literal" if any(launch.is_literal for launch in launches) else _FILE
