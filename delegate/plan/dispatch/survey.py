# SPDX-License-Identifier: Apache-2.0
"""Queries and measurements of drivers, devices and compilers, for tools, not for lowering.

A broken driver or compiler may crash the process: query in a child.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyopencl as cl

from delegate.errors import DeviceError
from delegate.graph.ir import Tensor
from delegate.launch import Alternative, Launch, Schedule, Step
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.dispatch.planned import planned_executor
from delegate.plan.dispatch.registers import registers
from delegate.profiles import DeviceProfile
from delegate.run.context import opencl
from delegate.run.device import Device
from delegate.run.device_list import DeviceInfo, device_info

# With it NVIDIA's build log reports a kernel's resources.
_VERBOSE_OPTION = ("cl_nv_compiler_options", "-cl-nv-verbose")
_LEAST_SECONDS = 0.2  # of a measurement; slow devices do fewer rounds
_COPY_BYTES = 16 << 20
_MULTIPLY_ADDS = 16  # per round of runtime_rates.cl
_ROUNDS = 256


@dataclass(frozen=True, slots=True)
class PlatformInfo:
    """What an OpenCL platform reports about itself."""

    name: str
    version: str
    vendor: str
    devices: tuple[str, ...]  # their names
    failure: str | None  # the failed device query


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What a device reports; sizes in bytes where the name says so."""

    profile: str  # "FULL_PROFILE" or "EMBEDDED_PROFILE"
    opencl_c: str
    compute_units: int
    clock_mhz: int
    address_bits: int
    max_work_group_size: int
    max_work_item_sizes: tuple[int, ...]
    local_mem_bytes: int
    is_local_mem_global: bool  # without dedicated memory
    global_mem_bytes: int
    max_alloc_bytes: int
    max_argument_bytes: int
    registers: int  # values certain to stay in registers; 0: unknown, or not queried yet
    sub_buffer_align_bytes: int
    int_vector_width: int
    float_vector_width: int
    has_int64: bool
    has_fp64: bool
    has_fp16: bool
    has_images: bool
    extensions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """Measured performance of a device."""

    launch_us: float  # an empty launch, including the wait
    upload_gb_s: float  # from the host's memory
    download_gb_s: float
    int8_giga_mads: float  # multiply-adds per second, of bytes summed in ints
    float_giga_mads: float


def probe_platforms() -> tuple[PlatformInfo, ...]:
    """Return every platform, including those without devices; none without a loader or driver.

    A library that crashes when opened takes this process down.
    """
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        return ()
    return tuple(_platform(each) for each in platforms)


def _platform(platform: cl.Platform) -> PlatformInfo:
    name = version = vendor = ""
    names, failure = [], None
    try:
        with opencl("clGetPlatformInfo"):
            name, version = platform.name.strip(), platform.version.strip()
            vendor = platform.vendor.strip()
        with opencl("clGetDeviceIDs"):
            devices = platform.get_devices()
        with opencl("clGetDeviceInfo"):
            names = [device.name.strip() for device in devices]
        for device in devices:  # the same queries as for listing devices
            with contextlib.suppress(DeviceError):
                device_info(device, name, version)
    except DeviceError as error:
        failure = str(error)
    return PlatformInfo(name, version, vendor, tuple(names), failure)


def device_limits(info: DeviceInfo) -> DeviceLimits:
    """Query a device's limits.

    Raises:
        DeviceError: it is gone, or a call fails.
    """
    device = Device(info).cl_device
    with opencl("clGetDeviceInfo"):
        extensions = tuple(sorted(device.extensions.split()))
        is_full = device.profile.strip() == "FULL_PROFILE"
        return DeviceLimits(
            profile=device.profile.strip(),
            opencl_c=device.opencl_c_version.strip(),
            compute_units=device.max_compute_units,
            clock_mhz=device.max_clock_frequency,
            address_bits=device.address_bits,
            max_work_group_size=device.max_work_group_size,
            max_work_item_sizes=tuple(device.max_work_item_sizes),
            local_mem_bytes=device.local_mem_size,
            is_local_mem_global=device.local_mem_type == cl.device_local_mem_type.GLOBAL,
            global_mem_bytes=device.global_mem_size,
            max_alloc_bytes=device.max_mem_alloc_size,
            max_argument_bytes=device.max_parameter_size,
            registers=0,
            sub_buffer_align_bytes=device.mem_base_addr_align // 8,
            int_vector_width=device.native_vector_width_int,
            float_vector_width=device.native_vector_width_float,
            has_int64=is_full or "cles_khr_int64" in extensions,
            has_fp64="cl_khr_fp64" in extensions,
            has_fp16="cl_khr_fp16" in extensions,
            has_images=bool(device.image_support),
            extensions=extensions,
        )


def device_registers(info: DeviceInfo) -> int:
    """Return the values that a work-item is certain to keep in registers; 0: unknown.

    Builds a few small kernels. Raises:
        DeviceError: it is gone, or a call fails.
    """
    device = Device(info)
    return registers(device, Kernels(device))


def profile_of(
    info: DeviceInfo, limits: DeviceLimits, isa: frozenset[str], name: str
) -> DeviceProfile:
    """Return the device profile of a real device: what it reports, and what passed self-tests."""
    shared = {field.name for field in fields(DeviceProfile)} & {f.name for f in fields(limits)}
    values: dict[str, Any] = {each: getattr(limits, each) for each in shared}
    values |= {
        "name": name,
        "description": f"{info.name} ({info.platform}, {info.driver})",
        "device_type": info.type,
        "int_vector_width": max(limits.int_vector_width, 1),  # 0: no such vectors
        "sub_buffer_align_bytes": max(limits.sub_buffer_align_bytes, 1),
        "isa": tuple(sorted(isa)),
    }
    return DeviceProfile(**values)


def device_rates(info: DeviceInfo) -> DeviceRates:
    """Measure a device; takes a second or two.

    Raises:
        DeviceError: a call fails. KernelBuildError: the driver rejects a kernel.
    """
    device = Device(info)
    kernels = Kernels(device)
    up, down = _copies(device)
    return DeviceRates(
        launch_us=1e6 * _run_seconds(device, kernels, rate_launch("float", 1, 1)),
        upload_gb_s=_COPY_BYTES / up / 1e9,
        download_gb_s=_COPY_BYTES / down / 1e9,
        int8_giga_mads=_giga_mads(device, kernels, "quant8"),
        float_giga_mads=_giga_mads(device, kernels, "float"),
    )


def _giga_mads(device: Device, kernels: Kernels, family: str) -> float:
    launch = rate_launch(family, 16 * device.compute_units, _ROUNDS)
    _, items = kernels.kernel(launch)
    multiply_adds = launch.tiles * items * _ROUNDS * _MULTIPLY_ADDS
    return multiply_adds / _run_seconds(device, kernels, launch) / 1e9


def rate_launch(family: str, groups: int, rounds: int) -> Launch:
    """Return a launch of runtime_rates.cl: "float" or "quant8"."""
    answers = Tensor(0, "answers", (groups,), "float32" if family == "float" else "int32")
    return Launch(
        "runtime_rates",
        f"runtime_rates_{family}",
        tiles=groups,
        group_items=64,
        params={"rounds": rounds, "answers": answers},
        reads=(),
        writes=(answers,),
    )


def _copies(device: Device) -> tuple[float, float]:
    """Return the minimum seconds of a copy to the device and of one back."""
    host = np.ones(_COPY_BYTES, np.uint8)
    buffer = device.buffer("memory", cl.mem_flags.READ_WRITE, _COPY_BYTES)

    def seconds(to: object, source: object) -> float:
        with opencl("copying"):
            begin = time.perf_counter()
            cl.enqueue_copy(device.queue, to, source)
            device.queue.finish()
        return time.perf_counter() - begin

    try:
        return _least(lambda: seconds(buffer, host)), _least(lambda: seconds(host, buffer))
    finally:
        buffer.release()


def _run_seconds(device: Device, kernels: Kernels, launch: Launch) -> float:
    """Return the minimum seconds of a launch, including the wait."""
    step = Step(0, "", Alternative("", (launch,)))
    with planned_executor(device, kernels, Schedule((step,), (), launch.writes)) as executor:
        return _least(lambda: executor.repeat(1, wait=True))


def _least(seconds: Callable[[], float]) -> float:
    """Return the minimum seconds of a call, after a warm-up."""
    seconds()
    end = time.perf_counter() + _LEAST_SECONDS
    least = seconds()
    while time.perf_counter() < end:
        least = min(least, seconds())
    return least


@dataclass(frozen=True, slots=True)
class KernelBuild:
    """A kernel that a driver's compiler accepted."""

    seconds: float  # from source to a kernel ready to run
    group_limit: int  # largest work-group size
    private_bytes: int  # CL_KERNEL_PRIVATE_MEM_SIZE, per work-item
    local_bytes: int  # CL_KERNEL_LOCAL_MEM_SIZE, per work-group
    log: str  # of the build


class KernelBuilder:
    """Access to a device's compiler.

    Raises:
        DeviceError: it is gone, or a call fails.
    """

    def __init__(self, info: DeviceInfo) -> None:
        # NOTE: Mesa's panfrost and v3d under a drm-shim crash a process that opens a second one.
        self._device = Device(info)
        self._kernels = Kernels(self._device)
        with opencl("clGetDeviceInfo"):
            extensions = self._device.cl_device.extensions.split()
        extension, option = _VERBOSE_OPTION
        self._more = [option] if extension in extensions else []

    def options(self, file: str) -> tuple[str, ...]:
        """Return the build options for programs of a .cl file."""
        return tuple(self._kernels.programs.options(file))

    def build(self, file: str, kernel: str, source: str) -> KernelBuild:
        """Build a kernel from source, the text of a .cl file after its macros.

        Raises:
            DeviceError: the driver rejects the kernel; the text is the log.
        """
        wanted, cl_device = cl.kernel_work_group_info, self._device.cl_device
        begin = time.perf_counter()
        program, log = self._kernels.rebuild(file, source, self._more)
        with opencl(f"clCreateKernel {kernel}"):
            built = cl.Kernel(program, kernel)
            private = built.get_work_group_info(wanted.PRIVATE_MEM_SIZE, cl_device)
            local = built.get_work_group_info(wanted.LOCAL_MEM_SIZE, cl_device)
        limit = self._device.group_limit(built)
        return KernelBuild(time.perf_counter() - begin, limit, private, local, log)
