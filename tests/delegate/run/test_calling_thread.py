# SPDX-License-Identifier: Apache-2.0
"""PoCL's driver without threads: when it is offered, and that it stays hidden."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence

import pytest

from delegate import DeviceInfo, list_devices
from delegate.guard.children import environment
from delegate.run import calling_thread
from delegate.run.device import Device

NAME, VALUE = environment.BOTH_THREADINGS
POCL = "libpocl.so.2.10.0"
DRIVERS = ("libpocl-devices-basic.so", "libpocl-devices-pthread.so")


@pytest.mark.parametrize(
    ("libraries", "drivers", "chosen", "is_offered"),
    [
        ((POCL, "libRusticlOpenCL.so.1"), DRIVERS, None, True),
        ((POCL,), DRIVERS, {NAME: "basic"}, False),
        ((POCL,), DRIVERS, {environment.OFFERED: "0"}, False),
        ((POCL,), (*DRIVERS, "libpocl-devices-cuda.so"), None, False),
        ((POCL,), DRIVERS[:1], None, False),
        ((POCL, "libpocl.so.2.9.0"), DRIVERS, None, False),
        (("libRusticlOpenCL.so.1",), DRIVERS, None, False),
    ],
)
def test_driver_without_threads_is_offered(
    monkeypatch: pytest.MonkeyPatch,
    libraries: Sequence[str],
    drivers: Sequence[str],
    chosen: dict[str, str] | None,
    is_offered: bool,
) -> None:
    before = chosen or {}
    monkeypatch.setattr(os, "environ", dict(before))
    found = [f"/usr/lib/x/pocl/{each}" for each in drivers]
    monkeypatch.setattr(glob, "glob", lambda place: found if "/*/pocl" in place else [])
    digest = environment.digest()
    calling_thread.offer(libraries)
    assert environment.offers_both() == is_offered
    assert (os.environ != before) == is_offered
    assert environment.digest() == digest  # what a driver killed stays banned


def test_user_s_own_choice_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {NAME: VALUE})
    assert not calling_thread.is_hidden("Portable Computing Language", "basic-x")
    monkeypatch.setattr(os, "environ", {NAME: "basic", environment.OFFERED: "1"})
    assert not calling_thread.is_hidden("Portable Computing Language", "basic-x")


@pytest.mark.device
def test_hidden_device_is_the_same_processor(device: DeviceInfo) -> None:
    opened = Device(device)
    other = opened.without_threads()
    if other is None:
        pytest.skip(f"{device.name} has no driver without threads")
    assert (other.compute_units, other.info.platform_version) == (1, device.platform_version)
    assert other.info.name.partition("-")[2] == device.name.partition("-")[2]
    assert other.info not in list_devices()
    opened.close()
    assert other.is_closed
