# SPDX-License-Identifier: Apache-2.0
"""The list of devices, its order, and device selectors."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import NoReturn

import pyopencl as cl
import pytest

from delegate import DeviceInfo, NoDeviceError, list_devices
from delegate.plan.dispatch.survey import probe_platforms
from delegate.run import device_list
from delegate.run.device_list import INSTALL_HINT, PERMISSION_HINT, matching, several_devices
from tests.support.opencl import opencl_error
from tests.support.process import run_python
from tests.support.tiers import slow

# The loader in pyopencl's wheel reads its own driver folder on first use.
LIST = """
import os, sys
import pyopencl
os.environ["PYOPENCL_HOME"] = os.environ["OCL_ICD_VENDORS"]
from delegate import NoDeviceError, list_devices
try:
    print([info.platform for info in list_devices()])
except NoDeviceError as error:
    print(error)
"""


class FakeDevice:
    def __init__(self, name: str, kind: int) -> None:
        self.name, self.type = f" {name} ", kind
        self.vendor, self.version, self.driver_version = "Maker", "OpenCL 3.0", "1.0"


class FakePlatform:
    def __init__(self, name: str, *devices: FakeDevice) -> None:
        self.name, self.version, self.devices = name, f"OpenCL 3.0 {name} 1", devices
        self.vendor = "Maker"

    def get_devices(self) -> tuple[FakeDevice, ...]:
        if not self.devices:
            code = cl.status_code.DEVICE_NOT_FOUND
            raise opencl_error(cl.RuntimeError, "clGetDeviceIDs", code)
        return self.devices


GPU, CPU = cl.device_type.GPU, cl.device_type.CPU


@pytest.fixture
def four_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    platforms = [
        FakePlatform("Slow", FakeDevice("Core", CPU), FakeDevice("Odd", cl.device_type.CUSTOM)),
        FakePlatform("Empty"),
        FakePlatform(
            "Fast",
            FakeDevice("Alpha GC7000", GPU | cl.device_type.DEFAULT),
            FakeDevice("Beta GC7000", GPU),
            FakeDevice("Npu", cl.device_type.ACCELERATOR),
        ),
    ]
    monkeypatch.setattr(cl, "get_platforms", lambda: platforms)


def names(devices: tuple[DeviceInfo, ...]) -> list[str]:
    return [info.name for info in devices]


@pytest.mark.usefixtures("four_devices")
def test_order_of_device_types() -> None:
    devices = list_devices()
    assert names(devices) == ["Alpha GC7000", "Beta GC7000", "Npu", "Core", "Odd"]
    assert [info.index for info in devices] == [0, 1, 2, 3, 4]
    assert [info.type for info in devices] == ["gpu", "gpu", "accelerator", "cpu", "custom"]


@pytest.mark.usefixtures("four_devices")
@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, [0, 1, 2, 3, 4]),
        ("", [0, 1, 2, 3, 4]),
        (1, [1]),
        ("3", [3]),
        ("gc7000", [0, 1]),
        ("BETA", [1]),
        ("fast beta", [1]),
        ("beta fast", [1]),
        ("slow", [3, 4]),
    ],
)
def test_selector_is_index_or_words(selector: str | int | None, expected: list[int]) -> None:
    assert [info.index for info in matching(selector)] == expected


@pytest.mark.usefixtures("four_devices")
@pytest.mark.parametrize("selector", [5, "5", -1, "nonesuch", "slow beta", "²"])
def test_selector_without_match_lists_devices(selector: str | int) -> None:
    with pytest.raises(NoDeviceError) as raised:
        matching(selector)
    assert str(raised.value) == (
        f"no OpenCL device matches '{selector}'; the devices are 0: Alpha GC7000 (Fast, 1.0); "
        "1: Beta GC7000 (Fast, 1.0); 2: Npu (Fast, 1.0); 3: Core (Slow, 1.0); 4: Odd (Slow, 1.0)"
    )


@pytest.mark.usefixtures("four_devices")
@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("all", [0, 1, 2, 3, 4]),
        (" ALL  gc7000 ", [0, 1]),
        ("all fast beta", [1]),
        ("all 3", [3]),
        ("3,0", [0, 3]),
        ("beta, slow", [1, 3, 4]),
        ("gc7000,alpha", [0, 1]),
        ("2,", [2]),
        (None, []),
        ("", []),
        (0, []),
        ("gc7000", []),
    ],
)
def test_selector_of_several_devices(selector: str | int | None, expected: list[int]) -> None:
    assert [info.index for info in several_devices(selector)] == expected


@pytest.mark.usefixtures("four_devices")
@pytest.mark.parametrize("selector", ["all nonesuch", "0,nonesuch", "nonesuch,0"])
def test_part_without_match_is_an_error(selector: str) -> None:
    with pytest.raises(
        NoDeviceError, match="no OpenCL device matches 'nonesuch'; the devices are 0: "
    ):
        several_devices(selector)


@pytest.mark.usefixtures("four_devices")
def test_several_devices_are_an_error_if_one_is_needed() -> None:
    with pytest.raises(NoDeviceError) as raised:
        matching("all gc7000")
    assert str(raised.value) == (
        "'all gc7000' means several devices, and this runs on one: 0: Alpha GC7000 (Fast, 1.0); "
        "1: Beta GC7000 (Fast, 1.0)"
    )


def test_name_with_commas_is_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice("llvmpipe (LLVM 15, 256 bits)", CPU)
    monkeypatch.setattr(cl, "get_platforms", lambda: [FakePlatform("A", device)])
    assert several_devices("llvmpipe (LLVM 15, 256 bits)") == ()
    assert [info.index for info in matching("llvmpipe (LLVM 15, 256 bits)")] == [0]


def test_platforms_without_devices_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cl, "get_platforms", lambda: [FakePlatform("A"), FakePlatform("B")])
    with pytest.raises(NoDeviceError, match=r"no OpenCL device: platform A, B has none; install"):
        list_devices()


class Silent:
    """A device or platform that fails when queried for its version."""

    def __init__(self, name: str, *devices: object) -> None:
        self.name, self.type, self.vendor, self.devices = name, GPU, "Maker", devices

    @property
    def version(self) -> str:
        raise opencl_error(cl.RuntimeError, "clGetInfo", cl.status_code.OUT_OF_HOST_MEMORY)

    def get_devices(self) -> tuple[object, ...]:
        return self.devices


def test_device_without_version_is_skipped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    half = FakePlatform("Half", Silent("Broken"), FakeDevice("Core", CPU))  # type: ignore[arg-type]
    platforms = [half, Silent("Mute", FakeDevice("Unseen", GPU))]
    monkeypatch.setattr(cl, "get_platforms", lambda: platforms)
    monkeypatch.setattr(device_list, "_warned", set())
    with caplog.at_level(logging.WARNING, "delegate"):
        for _ in range(2):
            (devices,) = list_devices()
            assert (devices.index, devices.name, devices.platform) == (0, "Core", "Half")
    why = "CL_OUT_OF_HOST_MEMORY"
    silent = [
        f"a device of platform Half does not say what it is: clGetDeviceInfo: {why}",
        f"a platform does not say its name: clGetPlatformInfo: {why}",
    ]
    assert caplog.messages == [f"{each}; it is left out" for each in silent]
    assert [each.failure for each in probe_platforms()] == [None, f"clGetPlatformInfo: {why}"]
    half.devices = half.devices[:1]
    with pytest.raises(NoDeviceError, match=f"^no OpenCL device: {silent[0]}; {silent[1]}; "):
        list_devices()


@pytest.mark.parametrize("call", ["clGetPlatformIDs", "clGetDeviceIDs"])
def test_error_while_listing_is_reported(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> NoReturn:
        raise opencl_error(cl.RuntimeError, call, cl.status_code.OUT_OF_HOST_MEMORY)

    platforms = [FakePlatform("Shut")]
    if call == "clGetDeviceIDs":
        monkeypatch.setattr(platforms[0], "get_devices", fail, raising=False)
        monkeypatch.setattr(cl, "get_platforms", lambda: platforms)
    else:
        monkeypatch.setattr(cl, "get_platforms", fail)
    with pytest.raises(NoDeviceError) as caught:
        list_devices()
    assert f"{call}: CL_OUT_OF_HOST_MEMORY; {PERMISSION_HINT}" in str(caught.value)
    assert INSTALL_HINT not in str(caught.value)


def test_rusticl_by_name_without_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUSTICL_ENABLE", raising=False)
    platforms = [FakePlatform("Portable", FakeDevice("Core", GPU)), FakePlatform("rusticl")]
    monkeypatch.setattr(cl, "get_platforms", lambda: platforms)
    with pytest.raises(NoDeviceError, match="shows devices only with RUSTICL_ENABLE=<driver>; the"):
        matching("rusticl")
    with pytest.raises(NoDeviceError, match=r"^no OpenCL device matches 'mali'; the devices are 0"):
        matching("mali")


def test_identity_has_driver_version(device: DeviceInfo) -> None:
    assert dataclasses.replace(device, index=99).identity == device.identity
    assert dataclasses.replace(device, driver="other").identity != device.identity
    assert dataclasses.replace(device, platform_version="other").identity != device.identity
    assert dataclasses.replace(device, name="other").identity != device.identity


def test_device_is_found_by_its_words(device: DeviceInfo) -> None:
    assert device in matching(f"{device.name} {device.platform}".lower())
    assert matching(device.index) == (device,)


@slow
def test_error_without_driver_says_what_to_install(tmp_path: Path) -> None:
    message = run_python(LIST, OCL_ICD_VENDORS=str(tmp_path))
    hidden = f"OCL_ICD_VENDORS is {tmp_path}, where alone the loader looks"
    assert message == f"no OpenCL platform was found; {hidden}; {INSTALL_HINT}\n"


@slow
def test_missing_rusticl_variable_is_explained(tmp_path: Path) -> None:
    if not any(platform.name == "rusticl" for platform in cl.get_platforms()):
        pytest.skip("no rusticl here")
    (tmp_path / "rusticl.icd").write_text("libRusticlOpenCL.so.1\n")
    message = run_python(LIST, OCL_ICD_VENDORS=str(tmp_path), RUSTICL_ENABLE="")
    assert message.startswith(
        "no OpenCL device: platform rusticl has none; "
        "rusticl shows devices only with RUSTICL_ENABLE=<driver>; install one: "
    )
