# SPDX-License-Identifier: Apache-2.0
"""Some faults of the sweep: OpenCL calls that fail, lie, or end the process."""

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
# Copy strategy -> the call that reads a run's results.
READING = {
    COPIED: "clEnqueueReadBuffer",
    MAPPED: "clEnqueueMapBuffer",
    PINNED: "clEnqueueReadBuffer",
}
assert {*STRATEGIES} - {*READING} == {DIRECT}
# The fourth one, "direct", needs no call.
each_transfer = pytest.mark.parametrize("transfer", READING)


@pytest.fixture(scope="module")
def bed_of(faults: Path, tmp_path_factory: pytest.TempPathFactory) -> BedOf:
    """Return a function that makes the test bed for a device and a copy strategy."""

    @cache
    def bed(info: DeviceInfo, transfer: str = "copied") -> Bed:
        like = bed(info, "") if transfer else None
        return Bed(tmp_path_factory.mktemp("bed"), faults, str(info.index), transfer, like)

    return bed


def ran(bed: Bed, attack: str, call: str, kind: str, part: float, **more: object) -> str:
    """Return the outcome of a run with a fault after this share of a function's calls."""
    count = bed.calls(BY_NAME[attack])[call]
    assert count, f"the run makes no call of {call}"
    fault = Fault(call, 1 + int(part * (count - 1)), kind, **more)
    return bed.run(BY_NAME[attack], fault).outcome


@slow
@pytest.mark.parametrize(
    ("call", "part"),
    [("clGetPlatformIDs", 0), ("clCreateContext", 0), ("clBuildProgram", 1), ("clFinish", 1)],
)
def test_error(device: DeviceInfo, bed_of: BedOf, call: str, part: float) -> None:
    assert ran(bed_of(device), "error", call, "error", part) in (RIGHT, CPU)


@slow
def test_device_loss(device: DeviceInfo, bed_of: BedOf) -> None:
    ended = ran(bed_of(device), "lost", "clEnqueueNDRangeKernel", "error", 1, lasts=True)
    assert ended == CPU


@slow
@each_transfer
def test_bit_flip_in_copy(device: DeviceInfo, bed_of: BedOf, transfer: str) -> None:
    assert ran(bed_of(device, transfer), "lie", READING[transfer], "flip", 1) == CPU


@slow
@pytest.mark.parametrize("call", ["clEnqueueNDRangeKernel", "clWaitForEvents"])
def test_error_with_mapped_memory(device: DeviceInfo, bed_of: BedOf, call: str) -> None:
    bed = bed_of(device, DIRECT)
    for part in (0.5, 1):
        assert ran(bed, "error", call, "error", part) in (RIGHT, CPU)
    assert ran(bed, "lost", call, "error", 0, lasts=True) in (RIGHT, CPU)


@slow
@pytest.mark.parametrize("call", ["clEnqueueNDRangeKernel", "clEnqueueReadBuffer"])
def test_skipped_call(device: DeviceInfo, bed_of: BedOf, call: str) -> None:
    # The memory may still hold the equal values of the last run.
    assert ran(bed_of(device), "lie", call, "skip", 1) in (RIGHT, CPU)


@slow
def test_missing_parameters_cause_no_invalid_access(device: DeviceInfo, bed_of: BedOf) -> None:
    # The second write is of the constants, unless they are packed in place; then the kernels'
    # parameters are written.
    place = 2 if Device(device).shares_memory else 3
    fault = Fault("clEnqueueWriteBuffer", place, "skip")
    assert bed_of(device).run(BY_NAME["lie"], fault).outcome == CPU


@slow
@pytest.mark.parametrize("kind", ["abort", "crash", "hang"])
def test_child_dies_instead_of_command(device: DeviceInfo, bed_of: BedOf, kind: str) -> None:
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
def test_fatal_kernel_is_not_used(
    device: DeviceInfo, bed_of: BedOf, attack: str, call: str, kind: str, part: float
) -> None:
    ended = ran(bed_of(device), attack, call, kind, part, place=CHILDREN)
    # If the first launch of each child crashes, so does that of a fallback kernel.
    is_all = (call, part) == ("clEnqueueNDRangeKernel", 0.0)
    assert ended in ((RIGHT, LEFT, CPU) if is_all else (RIGHT, LEFT))


@slow
@each_transfer
def test_wrong_rows_are_a_finding(device: DeviceInfo, bed_of: BedOf, transfer: str) -> None:
    # The same bit flip is a finding if the command does not compare results.
    bed = bed_of(device, transfer)
    attack = BY_NAME["lie"]
    call = READING[transfer]
    unchecked = type(attack)(attack.name, arguments=("--compare=false",))
    fault = Fault(call, bed.calls(attack)[call], "flip")
    assert bed.run(unchecked, fault).outcome.startswith("wrong rows, exit 0")
