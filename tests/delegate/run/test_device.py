# SPDX-License-Identifier: Apache-2.0
"""An opened device: limits, missing devices and translation of OpenCL errors."""

from __future__ import annotations

import dataclasses

import pyopencl as cl
import pytest

from delegate import DeviceError, DeviceInfo, TooLarge
from delegate.run.device import Device, opencl
from tests.support.opencl import opencl_error


def test_limits_of_opened_device(device: DeviceInfo) -> None:
    opened = Device(device)
    assert opened.info == device
    assert opened.max_alloc_bytes >= 1 << 20
    assert opened.vector_width >= 1
    assert opened.compute_units >= 1
    properties = opened.queue.properties
    assert not properties & cl.command_queue_properties.PROFILING_ENABLE
    assert not properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    profiled = Device(device, profiling=True).queue.properties
    assert profiled & cl.command_queue_properties.PROFILING_ENABLE


def test_missing_device_is_an_error(device: DeviceInfo) -> None:
    gone = dataclasses.replace(device, name="Gone")
    with pytest.raises(DeviceError, match=r"device Gone \(.*\) is no longer there"):
        Device(gone)


def test_opencl_errors_are_translated_with_call_and_status() -> None:
    with pytest.raises(DeviceError, match=r"^running: CL_OUT_OF_RESOURCES$"), opencl("running"):
        raise opencl_error(cl.LogicError, "clFinish", cl.status_code.OUT_OF_RESOURCES)
    with pytest.raises(DeviceError, match=r"^running: CL_status -9999$"), opencl("running"):
        raise opencl_error(cl.LogicError, "clFinish", -9999)


@pytest.mark.parametrize(
    ("call", "status", "is_size"),
    [
        ("enqueue_write_buffer", "MEM_OBJECT_ALLOCATION_FAILURE", True),
        ("create_buffer", "INVALID_BUFFER_SIZE", True),
        ("create_buffer", "OUT_OF_RESOURCES", True),
        ("create_buffer", "OUT_OF_HOST_MEMORY", True),
        ("enqueue_write_buffer", "OUT_OF_RESOURCES", False),
        ("create_buffer", "INVALID_CONTEXT", False),
    ],
)
def test_refused_size_differs_from_device_loss(call: str, status: str, is_size: bool) -> None:
    with pytest.raises(DeviceError, match=f"^allocating: CL_{status}$") as raised:  # noqa: SIM117
        with opencl("allocating"):
            raise opencl_error(cl.MemoryError, call, getattr(cl.status_code, status))
    assert isinstance(raised.value, TooLarge) == is_size
