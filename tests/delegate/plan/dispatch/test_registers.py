# SPDX-License-Identifier: Apache-2.0
"""How many values a work-item keeps in registers: what compilers tell -> a number."""

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


def told(private: dict[int, int], items: dict[int, int], most: int) -> list[tuple[int, int, int]]:
    """Return what a compiler tells of ALL; from the values named on, the bytes or items change."""
    asked, now, limit = [], 0, most
    for values in ALL:
        now, limit = private.get(values, now), items.get(values, limit)
        asked.append((values, now, limit))
    return asked


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        # As Mesa 25.0 tells it of Adreno 630, Mali-G52, Mali-G610 and V3D 4.2.
        (told({}, {}, 2048), 96),
        (told({64: 52, 96: 312}, {24: 128}, 256), 48),
        (told({64: 228, 96: 1220}, {}, 1024), 48),
        (told({}, {32: 32}, 64), 24),
        # A compiler that uses private memory for all kernels.
        ([(values, 1024, 4096) for values in ALL], 96),
        (told({16: 64}, {}, 64), 4),
    ],
)
def test_what_is_told(asked: list[tuple[int, int, int]], kept: int) -> None:
    assert most_registers(asked) == kept


def is_told(opened: Device) -> bool:
    """Whether the driver's options tell the compiler how many to use."""
    options = Programs(opened).options("runtime_registers")
    return any(option.startswith("-cl-nv-maxrregcount") for option in options)


def test_a_device_and_its_profile(device: DeviceInfo) -> None:
    own = device_registers(device)
    if device.type == "cpu" or is_told(Device(device)):
        assert own == 0
    else:
        assert own > 0

    def under_a_profile(count: int) -> int:
        profile = replace(read_device_profile("v3d"), registers=count)
        opened = Device(device, profile=profile)
        opened.type = device.type
        return registers(opened, Kernels(opened))

    asked = under_a_profile(0)  # without the driver's own options, which a profile hides
    assert asked == own or is_told(Device(device))
    for count in (24, 48):
        assert under_a_profile(count) == (min(asked, count) if asked else count)


@slow
def test_it_is_asked_once(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Device(device)
    if is_told(opened):
        pytest.skip("the driver's options tell this compiler how many to use")
    opened.type = "gpu"
    kernels = Kernels(opened)
    first = registers(opened, kernels)
    assert first > 0

    def refuse(*_: object) -> None:
        raise AssertionError("it was asked before")

    monkeypatch.setattr(Kernels, "kernel", refuse)
    assert registers(opened, kernels) == first


def test_a_compiler_that_is_told_is_not_asked(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Device(device)
    opened.type = "gpu"
    kernels = Kernels(opened)
    monkeypatch.setattr(Programs, "_own_options", lambda *_: ["-cl-nv-maxrregcount=128"])
    assert registers(opened, kernels) == 0
