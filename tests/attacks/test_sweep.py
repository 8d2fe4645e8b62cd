# SPDX-License-Identifier: Apache-2.0
"""Some of what the sweep tries: OpenCL calls that fail, lie, or end the process."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from delegate import DeviceInfo
from delegate.run.copy_strategies import COPIED, DIRECT, MAPPED, PINNED, STRATEGIES
from delegate.run.device import Device
from tests.attacks.bed import ATTACKS, CPU, LEFT, RIGHT, Bed
from tests.attacks.faults import CHILDREN, Fault
from tests.support.tiers import slow

BY_NAME = {attack.name: attack for attack in ATTACKS}
BedOf = Callable[..., Bed]
# The call that brings a run's results, a transfer.
READING = {
    COPIED: "clEnqueueReadBuffer",
    MAPPED: "clEnqueueMapBuffer",
    PINNED: "clEnqueueReadBuffer",
}
assert {*STRATEGIES} - {*READING} == {DIRECT}
# With the fourth, "direct", no call brings them.
each_transfer = pytest.mark.parametrize("transfer", READING)


@pytest.fixture(scope="module")
def bed_of(faults: Path, tmp_path_factory: pytest.TempPathFactory) -> BedOf:
    """Return a function that gives the bed of a device and a transfer."""

    @cache
    def bed(info: DeviceInfo, transfer: str = "copied") -> Bed:
        like = bed(info, "") if transfer else None
        return Bed(tmp_path_factory.mktemp("bed"), faults, str(info.index), transfer, like)

    return bed


def ran(bed: Bed, attack: str, call: str, kind: str, part: float, **more: object) -> str:
    """Return how a run ends with a fault after that part of a function's calls."""
    count = bed.calls(BY_NAME[attack])[call]
    assert count, f"the run makes no call of {call}"
    fault = Fault(call, 1 + int(part * (count - 1)), kind, **more)
    return bed.run(BY_NAME[attack], fault).outcome


@slow
@pytest.mark.parametrize(
    ("call", "part"),
    [("clGetPlatformIDs", 0), ("clCreateContext", 0), ("clBuildProgram", 1), ("clFinish", 1)],
)
def test_an_error(device: DeviceInfo, bed_of: BedOf, call: str, part: float) -> None:
    assert ran(bed_of(device), "error", call, "error", part) in (RIGHT, CPU)


@slow
def test_a_device_that_is_lost_while_it_runs(device: DeviceInfo, bed_of: BedOf) -> None:
    ended = ran(bed_of(device), "lost", "clEnqueueNDRangeKernel", "error", 1, lasts=True)
    assert ended == CPU


@slow
@each_transfer
def test_a_bit_that_falls_over_on_the_way(device: DeviceInfo, bed_of: BedOf, transfer: str) -> None:
    assert ran(bed_of(device, transfer), "lie", READING[transfer], "flip", 1) == CPU


@slow
@pytest.mark.parametrize("call", ["clEnqueueNDRangeKernel", "clWaitForEvents"])
def test_an_error_where_the_host_sees_the_device_s_memory(
    device: DeviceInfo, bed_of: BedOf, call: str
) -> None:
    bed = bed_of(device, DIRECT)
    for part in (0.5, 1):
        assert ran(bed, "error", call, "error", part) in (RIGHT, CPU)
    assert ran(bed, "lost", call, "error", 0, lasts=True) in (RIGHT, CPU)


@slow
@pytest.mark.parametrize("call", ["clEnqueueNDRangeKernel", "clEnqueueReadBuffer"])
def test_a_call_that_does_nothing(device: DeviceInfo, bed_of: BedOf, call: str) -> None:
    # The memory may still hold what the run before has put there, which is the same.
    assert ran(bed_of(device), "lie", call, "skip", 1) in (RIGHT, CPU)


@slow
def test_a_parameter_that_never_arrives_addresses_no_memory(
    device: DeviceInfo, bed_of: BedOf
) -> None:
    # The second write is of the constants, unless they are packed in place; then the kernels'
    # parameters are written.
    place = 2 if Device(device).shares_memory else 3
    fault = Fault("clEnqueueWriteBuffer", place, "skip")
    assert bed_of(device).run(BY_NAME["lie"], fault).outcome == CPU


@slow
@pytest.mark.parametrize("kind", ["abort", "crash", "hang"])
def test_a_child_dies_in_the_place_of_the_command(
    device: DeviceInfo, bed_of: BedOf, kind: str
) -> None:
    ended = ran(bed_of(device), "death", "clEnqueueNDRangeKernel", kind, 1, place=CHILDREN)
    assert ended == CPU


@slow
@pytest.mark.parametrize(
    ("attack", "call", "kind", "part"),
    [
        ("cold death", "clBuildProgram", "abort", 0.7),
        ("kernel death", "clBuildProgram", "abort", 1.0),
        ("kernel death", "clEnqueueNDRangeKernel", "crash", 0.0),
        ("kernel death", "clCreateKernel", "abort", 0.5),
        ("kernel death", "clCreateBuffer", "crash", 1.0),
    ],
)
def test_what_a_first_start_s_child_dies_of_is_not_used(
    device: DeviceInfo, bed_of: BedOf, attack: str, call: str, kind: str, part: float
) -> None:
    ended = ran(bed_of(device), attack, call, kind, part, place=CHILDREN)
    # Where the first launch of each child crashes, a plain kernel's does, too: nothing works there.
    is_all = (call, part) == ("clEnqueueNDRangeKernel", 0.0)
    assert ended in ((RIGHT, LEFT, CPU) if is_all else (RIGHT, LEFT))


@slow
@each_transfer
def test_wrong_rows_are_no_allowed_end(device: DeviceInfo, bed_of: BedOf, transfer: str) -> None:
    # The sweep would say so: the same flip where the command does not compare.
    bed = bed_of(device, transfer)
    attack = BY_NAME["lie"]
    call = READING[transfer]
    unchecked = type(attack)(attack.name, arguments=("--compare=false",))
    fault = Fault(call, bed.calls(attack)[call], "flip")
    assert bed.run(unchecked, fault).outcome.startswith("wrong rows, exit 0")
