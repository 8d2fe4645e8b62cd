# SPDX-License-Identifier: Apache-2.0
"""The number of values in registers, derived from reports of compilers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delegate import DeviceInfo
from delegate.inspect import device_registers, read_device_profile
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.dispatch.registers import most_registers, registers
from delegate.run.device import Device
from delegate.run.programs import Programs
from tests.support.tiers import slow

ALL = (4, 16, 24, 32, 48, 64, 96)


def reports(
    private: dict[int, int], items: dict[int, int], most: int
) -> list[tuple[int, int, int]]:
    """Return a compiler's reports for ALL; bytes or items change from these values on."""
    rows, now, limit = [], 0, most
    for values in ALL:
        now, limit = private.get(values, now), items.get(values, limit)
        rows.append((values, now, limit))
    return rows


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        # As Mesa 25.0 reports for Adreno 630, Mali-G52, Mali-G610 and V3D 4.2.
        (reports({}, {}, 2048), 96),
        (reports({64: 52, 96: 312}, {24: 128}, 256), 48),
        (reports({64: 228, 96: 1220}, {}, 1024), 48),
        (reports({}, {32: 32}, 64), 24),
        # A compiler that uses private memory for all kernels.
        ([(values, 1024, 4096) for values in ALL], 96),
        (reports({16: 64}, {}, 64), 4),
    ],
)
def test_registers_from_reports(asked: list[tuple[int, int, int]], kept: int) -> None:
    assert most_registers(asked) == kept


def is_set(opened: Device) -> bool:
    """Whether the driver's options set the number for the compiler."""
    options = Programs(opened).options("runtime_registers")
    return any(option.startswith("-cl-nv-maxrregcount") for option in options)


def test_registers_of_device_and_profile(device: DeviceInfo) -> None:
    own = device_registers(device)
    if device.type == "cpu" or is_set(Device(device)):
        assert own == 0
    else:
        assert own > 0

    def under_a_profile(count: int) -> int:
        profile = replace(read_device_profile("v3d"), registers=count)
        opened = Device(device, profile=profile)
        opened.type = device.type
        return registers(opened, Kernels(opened))

    unlimited = under_a_profile(0)  # without the driver's options, which a profile hides
    assert unlimited == own or is_set(Device(device))
    for count in (24, 48):
        assert under_a_profile(count) == (min(unlimited, count) if unlimited else count)


@slow
def test_compiler_is_queried_once(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Device(device)
    if is_set(opened):
        pytest.skip("the driver's options tell this compiler how many to use")
    opened.type = "gpu"
    kernels = Kernels(opened)
    first = registers(opened, kernels)
    assert first > 0

    def refuse(*_: object) -> None:
        raise AssertionError("it was asked before")

    monkeypatch.setattr(Kernels, "kernel", refuse)
    assert registers(opened, kernels) == first


def test_compiler_with_option_is_not_queried(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Device(device)
    opened.type = "gpu"
    kernels = Kernels(opened)
    monkeypatch.setattr(Programs, "_own_options", lambda *_: ["-cl-nv-maxrregcount=128"])
    assert registers(opened, kernels) == 0
