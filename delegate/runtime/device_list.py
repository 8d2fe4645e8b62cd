# SPDX-License-Identifier: Apache-2.0
"""The OpenCL devices of this machine, as records: list them, and find those that a user means."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pyopencl as cl

from delegate.errors import NoDeviceError

_TYPES = (
    (cl.device_type.GPU, "gpu"),
    (cl.device_type.ACCELERATOR, "accelerator"),
    (cl.device_type.CPU, "cpu"),
)
_ORDER = ("gpu", "accelerator", "cpu", "custom")

INSTALL_HINT = (
    "install one: on Debian pocl-opencl-icd (any CPU) or mesa-opencl-icd (with "
    "RUSTICL_ENABLE=<driver>: panfrost, v3d, freedreno, llvmpipe, ...), or the vendor's driver"
)


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What a device says of itself."""

    index: int  # position in list_devices()
    platform: str
    platform_version: str
    name: str
    vendor: str
    version: str  # of OpenCL
    driver: str  # the driver's own version
    type: str  # "gpu", "accelerator", "cpu" or "custom"

    @property
    def identity(self) -> str:
        """What makes it the same device with the same driver in another process."""
        return "|".join((self.platform, self.platform_version, self.name, self.driver))

    def matches(self, words: str) -> bool:
        """Whether every word is part of the platform's or the device's name, in any case."""
        text = f"{self.platform} {self.platform_version} {self.name} {self.vendor}".lower()
        return all(word in text for word in words.lower().split())


def list_devices() -> tuple[DeviceInfo, ...]:
    """Return every device of every platform: GPUs, accelerators, CPUs, then others.

    Raises:
        NoDeviceError: no platform or no device; says what was found and what to install.
    """
    return tuple(info for info, _ in found())


def found() -> list[tuple[DeviceInfo, cl.Device]]:
    """Return the devices of `list_devices`, each with pyopencl's object.

    Raises:
        NoDeviceError: as `list_devices`.
    """
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        raise NoDeviceError(f"no OpenCL platform was found; {INSTALL_HINT}") from None
    entries: list[tuple[str, cl.Platform, cl.Device]] = []
    empty: list[str] = []
    for platform in platforms:
        try:
            devices = platform.get_devices()
        except cl.Error:
            devices = []
        if not devices:
            empty.append(platform.name.strip())
        for device in devices:
            kind = next((name for flag, name in _TYPES if device.type & flag), "custom")
            entries.append((kind, platform, device))
    if not entries:
        names = ", ".join(empty)
        hint = ""
        if "rusticl" in names and not os.environ.get("RUSTICL_ENABLE"):
            hint = "rusticl shows devices only with RUSTICL_ENABLE=<driver>; "
        raise NoDeviceError(f"no OpenCL device: platform {names} has none; {hint}{INSTALL_HINT}")
    entries.sort(key=lambda entry: _ORDER.index(entry[0]))
    return [
        (
            DeviceInfo(
                index,
                platform.name.strip(),
                platform.version.strip(),
                device.name.strip(),
                device.vendor.strip(),
                device.version.strip(),
                device.driver_version.strip(),
                kind,
            ),
            device,
        )
        for index, (kind, platform, device) in enumerate(entries)
    ]


def matching(selector: str | int | None) -> tuple[DeviceInfo, ...]:
    """Return the devices a selector means, in list order: an index, words, or None for all.

    Raises:
        NoDeviceError: none matches; the text shows the list.
    """
    devices = list_devices()
    if selector is None or selector == "":
        return devices
    if isinstance(selector, int) or selector.isdecimal():
        chosen = tuple(info for info in devices if info.index == int(selector))
    else:
        chosen = tuple(info for info in devices if info.matches(selector))
    if not chosen:
        table = "; ".join(
            f"{info.index}: {info.name} ({info.platform}, {info.driver})" for info in devices
        )
        raise NoDeviceError(f"no OpenCL device matches '{selector}'; there are {table}")
    return chosen
