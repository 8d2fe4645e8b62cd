# SPDX-License-Identifier: Apache-2.0
"""Errors as a driver's calls raise them, and devices with what engines do not ask them for."""

from __future__ import annotations

import pyopencl as cl
from pyopencl import _cl

from delegate import DeviceInfo, probe
from delegate.runtime import command_buffer
from delegate.runtime.device import Device


def opencl_error(kind: type[cl.Error], call: str, status: int) -> cl.Error:
    """Return pyopencl's exception for a call that gave this status."""
    return kind(_cl._ErrorRecord(call, status, ""))


def records(device: DeviceInfo) -> bool:
    """Whether command buffers work there; where a persistent launch does, none is proven."""
    opened = Device(device, proven=[command_buffer.PROVEN])
    if "cl_khr_command_buffer" not in opened.cl_device.extensions.split():
        return False
    return probe._isa_test(opened, command_buffer.PROVEN) == "passed"
