# SPDX-License-Identifier: Apache-2.0
"""OpenCL devices: list, choose, open. Their facts leave here as records, their errors as ours."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyopencl as cl

from delegate.errors import DeviceError, NoDeviceError

_TYPES = (
    (cl.device_type.GPU, "gpu"),
    (cl.device_type.ACCELERATOR, "accelerator"),
    (cl.device_type.CPU, "cpu"),
)
_ORDER = ("gpu", "accelerator", "cpu", "custom")

# Copied by the driver from any memory; copied by the host into mapped memory; copied by the host
# into pinned memory and from there by the device.
TRANSFERS = ("copied", "mapped", "pinned")
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


@contextmanager
def opencl(call: str) -> Iterator[None]:
    """Turn pyopencl's errors into DeviceError with the call and the status name."""
    try:
        yield
    except cl.Error as error:
        status = cl.status_code.to_string(error.code, "status %d")
        raise DeviceError(f"{call}: CL_{status}") from error


def list_devices() -> tuple[DeviceInfo, ...]:
    """Return every device of every platform: GPUs, accelerators, CPUs, then others.

    Raises:
        NoDeviceError: no platform or no device; says what was found and what to install.
    """
    return tuple(info for info, _ in _found())


def _found() -> list[tuple[DeviceInfo, cl.Device]]:
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        raise NoDeviceError(f"no OpenCL platform was found; {INSTALL_HINT}") from None
    found: list[tuple[str, cl.Platform, cl.Device]] = []
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
            found.append((kind, platform, device))
    if not found:
        names = ", ".join(empty)
        hint = ""
        if "rusticl" in names and not os.environ.get("RUSTICL_ENABLE"):
            hint = "rusticl shows devices only with RUSTICL_ENABLE=<driver>; "
        raise NoDeviceError(f"no OpenCL device: platform {names} has none; {hint}{INSTALL_HINT}")
    found.sort(key=lambda entry: _ORDER.index(entry[0]))
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
        for index, (kind, platform, device) in enumerate(found)
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


class Device:
    """An opened device: context, in-order queue and the limits lowering needs.

    Attributes:
        info, context, queue; cl_device: pyopencl's object; max_alloc_bytes, vector_width,
        compute_units; proven: what self-tests found it can do beyond OpenCL C 1.2; transfer: how
        bytes cross best, one of TRANSFERS.
    Raises:
        DeviceError: the device is gone or refuses a context.
    """

    def __init__(
        self, info: DeviceInfo, profiling: bool = False, proven: Collection[str] = ()
    ) -> None:
        entry = next((e for e in _found() if e[0] == info), None)
        if entry is None:
            raise DeviceError(f"device {info.name} ({info.platform}) is no longer there")
        self.info, self.cl_device = entry
        self.proven = frozenset(proven)
        self.transfer = TRANSFERS[0]
        flags = cl.command_queue_properties.PROFILING_ENABLE if profiling else 0
        with opencl("clCreateContext"):
            self.context = cl.Context([self.cl_device])
        with opencl("clCreateCommandQueue"):
            self.queue = cl.CommandQueue(self.context, properties=flags)
        self._queue_properties = flags
        with opencl("clGetDeviceInfo"):
            self.max_alloc_bytes: int = self.cl_device.max_mem_alloc_size
            self.vector_width: int = self.cl_device.native_vector_width_int
            self.compute_units: int = self.cl_device.max_compute_units

    def another_queue(self) -> cl.CommandQueue:
        """Return one more in-order queue, for work that goes side by side.

        Raises:
            DeviceError: the driver has none left.
        """
        with opencl("clCreateCommandQueue"):
            return cl.CommandQueue(self.context, properties=self._queue_properties)
