# SPDX-License-Identifier: Apache-2.0
"""The OpenCL devices of this machine as records: listing and selection."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyopencl as cl

from delegate.errors import DeviceError, NoDeviceError
from delegate.guard.children import process
from delegate.run import calling_thread, driver_caches, icds
from delegate.run.context import opencl

_log = logging.getLogger("delegate")
_warned: set[str] = set()
_empty_platforms: list[str] = []  # names, from the last listing
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
PERMISSION_HINT = (
    "some drivers answer so where /dev/dri/renderD* or their own device may not be opened: see "
    "tflite-opencl info, and join the groups render and video"
)


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What a device reports about itself."""

    index: int  # position in list_devices()
    platform: str
    platform_version: str
    name: str
    vendor: str
    version: str  # OpenCL version
    driver: str  # driver version
    type: str  # "gpu", "accelerator", "cpu" or "custom"

    @property
    def identity(self) -> str:
        """A key that identifies device and driver across processes."""
        return "|".join((self.platform, self.platform_version, self.name, self.driver))

    def matches(self, selector: str) -> bool:
        """Whether the selector is its index, or words of its platform or device name.

        Every word must be a substring of these names, ignoring case.
        """
        if selector.isdecimal():
            return self.index == int(selector)
        text = f"{self.platform} {self.platform_version} {self.name} {self.vendor}".lower()
        return all(word in text for word in selector.lower().split())


def list_devices() -> tuple[DeviceInfo, ...]:
    """Return every device of every platform: GPUs, accelerators, CPUs, then others.

    A device whose queries fail is left out, with one warning.

    Raises:
        NoDeviceError: no platform or no device; says what exists and what to install.
        DeviceError: this process was forked from one that had already used OpenCL.
    """
    return tuple(info for info, _ in device_entries())


def device_entries() -> list[tuple[DeviceInfo, cl.Device]]:
    """Return the devices of `list_devices`, each with its pyopencl object.

    Raises:
        NoDeviceError, DeviceError: as `list_devices`.
    """
    return [entry for entry in all_entries() if not _is_hidden(entry[0])]


def entry_without_threads(info: DeviceInfo) -> tuple[DeviceInfo, cl.Device] | None:
    """Return the hidden device that is the same processor without threads."""
    for other, device in all_entries():
        is_same = (other.platform, other.platform_version) == (info.platform, info.platform_version)
        if is_same and _is_hidden(other) and calling_thread.are_twins(info.name, other.name):
            return other, device
    return None


def _is_hidden(info: DeviceInfo) -> bool:
    return calling_thread.is_hidden(info.platform, info.name)


def all_entries() -> list[tuple[DeviceInfo, cl.Device]]:
    """Return the devices, hidden ones last, each with its pyopencl object.

    Raises:
        NoDeviceError, DeviceError: as `list_devices`.
    """
    entries: list[tuple[DeviceInfo, cl.Device]] = []
    empty: list[str] = []
    silent: list[str] = []
    process.require_own()
    icds.prepare()
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise NoDeviceError(_why_no_platform(error)) from None
    for platform in platforms:
        try:
            with opencl("clGetPlatformInfo"):
                name, version = platform.name.strip(), platform.version.strip()
        except DeviceError as error:
            silent.append(f"a platform does not say its name: {error}")
            continue
        devices = []
        try:
            devices = platform.get_devices()
        except cl.Error as error:
            if error.code != cl.status_code.DEVICE_NOT_FOUND:
                silent.append(f"platform {name} lists no devices: {_status_of(error)}")
        if not devices:
            empty.append(name)
        for device in devices:
            try:
                entries.append((device_info(device, name, version), device))
            except DeviceError as error:
                silent.append(f"a device of platform {name} does not say what it is: {error}")
    for each in dict.fromkeys(silent):
        if each not in _warned:
            _warned.add(each)
            _log.warning("%s; it is left out", each)
    if not entries:
        raise NoDeviceError(_why_none(empty, silent))
    _empty_platforms[:] = empty
    entries.sort(key=lambda entry: (_is_hidden(entry[0]), _ORDER.index(entry[0].type)))
    return [(replace(info, index=index), device) for index, (info, device) in enumerate(entries)]


def device_info(device: cl.Device, platform: str, version: str) -> DeviceInfo:
    """Query a device, without its index; raises DeviceError."""
    with opencl("clGetDeviceInfo"):
        return DeviceInfo(
            index=0,
            platform=platform,
            platform_version=version,
            name=device.name.strip(),
            vendor=device.vendor.strip(),
            version=device.version.strip(),
            driver=device.driver_version.strip(),
            type=next((name for flag, name in _TYPES if device.type & flag), "custom"),
        )


def _status_of(error: cl.Error) -> str:
    """Return the failed call and its status code."""
    return f"{error.routine}: CL_{cl.status_code.to_string(error.code, 'status %d')}"


def _why_no_platform(error: cl.Error) -> str:
    """Return why the loader lists no platform, and how to fix it."""
    if error.code != cl.status_code.PLATFORM_NOT_FOUND_KHR:
        return f"no OpenCL platform can be listed: {_status_of(error)}; {PERMISSION_HINT}"
    return f"no OpenCL platform was found; {icds.hint()}{driver_caches.obstacles()}{INSTALL_HINT}"


def _why_none(empty: Sequence[str], silent: Sequence[str]) -> str:
    """Return why there is no device, and how to fix it."""
    if silent:  # a driver is installed and reported the cause
        return f"no OpenCL device: {'; '.join(silent)}; {PERMISSION_HINT}"
    hint = f"{driver_caches.obstacles()}{_rusticl_hint(empty)}{INSTALL_HINT}"
    return f"no OpenCL device: platform {', '.join(empty)} has none; {hint}"


def _rusticl_hint(empty: Sequence[str]) -> str:
    """Return why rusticl has no devices, as the start of a sentence; "" if it has some."""
    if "rusticl" not in empty:
        return ""
    enabled = os.environ.get("RUSTICL_ENABLE")
    if not enabled:
        return "rusticl shows devices only with RUSTICL_ENABLE=<driver>; "
    return f"RUSTICL_ENABLE={enabled} names no driver of this Mesa, or none with hardware here; "


def matching(selector: str | int | None) -> tuple[DeviceInfo, ...]:
    """Return the devices that match a single-device selector: an index, words, or None for all.

    Raises:
        NoDeviceError: no match, or several devices meant; the message lists the devices.
    """
    if several := several_devices(selector):
        raise NoDeviceError(
            f"'{selector}' means several devices, and this runs on one: {_table(several)}"
        )
    return _matching(selector)


def several_devices(selector: str | int | None) -> tuple[DeviceInfo, ...]:
    """Return the devices of a multi-device selector, in list order; (): it selects a single one.

    "all" selects every device, "all nvidia" those that match the words, and "0,llvmpipe" the
    union of the comma-separated parts. Words that match a device name with commas select that one.

    Raises:
        NoDeviceError: no match, or a part has none; the message lists the devices.
    """
    if not isinstance(selector, str):
        return ()
    words = selector.split()
    if words and words[0].lower() == "all":
        return _matching(" ".join(words[1:]))
    parts = [part.strip() for part in selector.split(",") if part.strip()]
    if "," not in selector or any(info.matches(selector) for info in list_devices()):
        return ()
    meant = {info.index: info for part in parts for info in _matching(part)}
    return tuple(meant[index] for index in sorted(meant))


def _matching(selector: str | int | None) -> tuple[DeviceInfo, ...]:
    devices = list_devices()
    if selector is None or selector == "":
        return devices
    chosen = tuple(info for info in devices if info.matches(str(selector)))
    if not chosen:
        hint = _rusticl_hint(_empty_platforms) if "rusticl" in str(selector).lower() else ""
        raise NoDeviceError(
            f"no OpenCL device matches '{selector}'; {hint}the devices are {_table(devices)}"
        )
    return chosen


def _table(devices: Sequence[DeviceInfo]) -> str:
    return "; ".join(
        f"{info.index}: {info.name} ({info.platform}, {info.driver})" for info in devices
    )
