# SPDX-License-Identifier: Apache-2.0
"""What a driver's compiler makes of one kernel, for people. Nothing is run, and nothing is kept.

A compiler may end the process: ask in a child.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import pyopencl as cl

from delegate.runtime.context import opencl
from delegate.runtime.device import Device
from delegate.runtime.device_list import DeviceInfo
from delegate.runtime.kernels import Kernels

# NVIDIA's compiler then says in the log what a kernel needs.
_TELLING = ("cl_nv_compiler_options", "-cl-nv-verbose")


@dataclass(frozen=True, slots=True)
class KernelBuild:
    """A kernel that a driver's compiler took."""

    seconds: float  # from the source to a kernel that could run
    group_limit: int  # work-items a work-group of it may have
    private_bytes: int  # CL_KERNEL_PRIVATE_MEM_SIZE, a work-item's
    local_bytes: int  # CL_KERNEL_LOCAL_MEM_SIZE, a work-group's
    log: str  # of the build


class KernelBuilder:
    """A device whose compiler is asked.

    Raises:
        DeviceError: it is gone, or a call fails.
    """

    def __init__(self, info: DeviceInfo) -> None:
        # NOTE: Mesa's panfrost and v3d under a drm-shim end the process that opens a second one.
        self._device = Device(info)
        self._kernels = Kernels(self._device)
        with opencl("clGetDeviceInfo"):
            extensions = self._device.cl_device.extensions.split()
        extension, option = _TELLING
        self._more = [option] if extension in extensions else []

    def options(self, file: str) -> tuple[str, ...]:
        """Return the options that programs of a .cl file are built with."""
        return tuple(self._kernels.options(file))

    def build(self, file: str, kernel: str, source: str) -> KernelBuild:
        """Build a kernel of a source, the text of a .cl file after its macros.

        Raises:
            DeviceError: the driver refuses the kernel; the text is the log.
        """
        wanted, cl_device = cl.kernel_work_group_info, self._device.cl_device
        begin = time.perf_counter()
        program, log = self._kernels.anew(file, source, self._more)
        with opencl(f"clCreateKernel {kernel}"):
            built = cl.Kernel(program, kernel)
            private = built.get_work_group_info(wanted.PRIVATE_MEM_SIZE, cl_device)
            local = built.get_work_group_info(wanted.LOCAL_MEM_SIZE, cl_device)
        limit = self._device.group_limit(built)
        return KernelBuild(time.perf_counter() - begin, limit, private, local, log)
