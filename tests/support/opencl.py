# SPDX-License-Identifier: Apache-2.0
"""Errors as a driver's calls raise them, and devices with what engines do not ask them for."""

from __future__ import annotations

import pyopencl as cl
from pyopencl import _cl

from delegate import DeviceInfo
from delegate.isa import BY_NAME, COMMAND_BUFFER
from delegate.runtime.device import Device
from delegate.self_tests import PASSED, feature_test


def opencl_error(kind: type[cl.Error], call: str, status: int) -> cl.Error:
    """Return pyopencl's exception for a call that gave this status."""
    return kind(_cl._ErrorRecord(call, status, ""))


def records(device: DeviceInfo) -> bool:
    """Whether command buffers work there; where a persistent launch does, none is proven."""
    opened = Device(device, proven=[COMMAND_BUFFER])
    if "cl_khr_command_buffer" not in opened.cl_device.extensions.split():
        return False
    return feature_test(opened, BY_NAME[COMMAND_BUFFER]) == PASSED
