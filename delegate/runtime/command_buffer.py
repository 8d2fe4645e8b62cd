# SPDX-License-Identifier: Apache-2.0
"""cl_khr_command_buffer: launches recorded once and enqueued by one call. Not in pyopencl.

Source: Khronos OpenCL Extension Specification, cl_khr_command_buffer 0.9
"""

from __future__ import annotations

import ctypes as C
from collections.abc import Sequence
from typing import Any

import pyopencl as cl

from delegate.errors import DeviceError
from delegate.isa import COMMAND_BUFFER
from delegate.runtime.device import Device

EXTENSION = "cl_khr_command_buffer"
_HANDLE, _COUNT = C.c_void_p, C.c_uint32
_SIZES = C.POINTER(C.c_size_t)


class CommandBuffer:
    """Launches of one in-order queue, recorded.

    Raises:
        DeviceError: a self-test did not prove it to work here, or a call fails.
    """

    def __init__(
        self,
        device: Device,
        queue: cl.CommandQueue,
        launches: Sequence[tuple[cl.Kernel, tuple[int], tuple[int]]],
    ) -> None:
        """Record; each launch is a kernel whose arguments are set, global size and local size."""
        if COMMAND_BUFFER not in device.proven:
            raise DeviceError("command buffers were not proven to work here")
        self._context = device.context
        self._queues = (_HANDLE * 1)(queue.int_ptr)
        self._kept = (queue, *launches)  # a command buffer does not keep what it uses
        find = _finder(device.cl_device.platform.int_ptr)
        create = find("clCreateCommandBufferKHR", _HANDLE, _COUNT, _HANDLE, _HANDLE, _HANDLE)
        record = find(
            "clCommandNDRangeKernelKHR", C.c_int,
            _HANDLE, _HANDLE, _HANDLE, _HANDLE, _COUNT, _SIZES, _SIZES, _SIZES,
            _COUNT, _HANDLE, _HANDLE, _HANDLE,
        )  # fmt: skip
        finalize = find("clFinalizeCommandBufferKHR", C.c_int, _HANDLE)
        self._enqueue = find(
            "clEnqueueCommandBufferKHR", C.c_int, _COUNT, _HANDLE, _HANDLE, _COUNT, _HANDLE, _HANDLE
        )
        self._release = find("clReleaseCommandBufferKHR", C.c_int, _HANDLE)
        status = C.c_int(0)
        self._handle = create(1, self._queues, None, C.byref(status))
        _check("clCreateCommandBufferKHR", status.value)
        try:
            for kernel, global_size, local_size in launches:
                sizes = [(C.c_size_t * 1)(*size) for size in (global_size, local_size)]
                _check(
                    "clCommandNDRangeKernelKHR",
                    record(
                        self._handle, None, None, kernel.int_ptr, 1, None, *sizes, 0, None, None,
                        None,
                    ),
                )  # fmt: skip
            _check("clFinalizeCommandBufferKHR", finalize(self._handle))
        except DeviceError:
            self.close()
            raise

    def enqueue(self) -> None:
        """Enqueue all launches.

        Raises:
            DeviceError: the call fails.
        """
        status = self._enqueue(1, self._queues, self._handle, 0, None, None)
        if status:
            self._context.retire()
            _check("clEnqueueCommandBufferKHR", status)

    def close(self) -> None:
        """Release it, once its last run has ended; a second call does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._release(handle)


def _finder(platform: int) -> Any:
    # pyopencl's module brings the ICD loader; a symbol is looked for in what it is linked to.
    loader = C.CDLL(cl._cl.__file__)
    address_of = loader.clGetExtensionFunctionAddressForPlatform
    address_of.restype, address_of.argtypes = _HANDLE, (_HANDLE, C.c_char_p)

    def find(name: str, result: Any, *arguments: Any) -> Any:
        address = address_of(platform, name.encode())
        if not address:
            raise DeviceError(f"{EXTENSION} without {name}")
        return C.CFUNCTYPE(result, *arguments)(address)

    return find


def _check(call: str, status: int) -> None:
    if status:
        raise DeviceError(f"{call}: CL_{cl.status_code.to_string(status, 'status %d')}")
