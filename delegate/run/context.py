# SPDX-License-Identifier: Apache-2.0
"""OpenCL contexts: shared by all devices opened in this process, and given up after an error.

A shared context lives as long as an opened device uses it. Creating one costs NVIDIA's driver 0.2
to 0.3 seconds.
"""

from __future__ import annotations

import threading
import weakref

import pyopencl as cl

from delegate.errors import DelegateError, DeviceError, KernelBuildError, TooLarge
from delegate.guard.children import process

_status = cl.status_code
# The driver has no room for a buffer of this size: nothing is wrong with the device.
_REFUSED_SIZES = {_status.MEM_OBJECT_ALLOCATION_FAILURE, _status.INVALID_BUFFER_SIZE}
# The same, if a buffer is created; from any other call the device is lost.
_NO_ROOM = {_status.OUT_OF_RESOURCES, _status.OUT_OF_HOST_MEMORY}
# No kernel is wrong: there is nothing left to build it for.
_LOST = {
    _status.DEVICE_NOT_AVAILABLE,
    _status.INVALID_DEVICE,
    _status.INVALID_CONTEXT,
    _status.INVALID_COMMAND_QUEUE,
}


def is_lost(error: DelegateError) -> bool:
    """Whether an error says that the device is gone, whatever was asked of it."""
    cause = error.__cause__
    return isinstance(cause, cl.Error) and cause.code in _LOST


def is_failed(error: Exception) -> bool:
    """Whether a driver's call failed, other than for a size: its context may be of no use now."""
    return isinstance(error.__cause__, cl.Error) and not isinstance(error, TooLarge)


# Looked up once: networks of a few microseconds notice it.
_enter, _exit = process.ProtectedCall.__enter__, process.ProtectedCall.__exit__


class opencl(process.ProtectedCall):
    """A context of a driver's calls, whose errors become DeviceError with the status name.

    It may be entered again and again, by several threads.
    """

    def __init__(self, call: str, context: Context | None = None) -> None:
        """`call`: its name in the text.

        `context`: the one that is used; no device opened later shares it after an error, unless the
        error is a refused size, which is TooLarge.
        """
        self._call = call
        self._context = context

    def __enter__(self) -> None:
        process.require_own()
        _enter(self)

    def __exit__(self, *exception: object) -> None:
        _exit(self)
        error = exception[1]
        if isinstance(error, cl.Error):
            raise self._translated(error) from error

    def _translated(self, error: cl.Error) -> DeviceError:
        text = f"{self._call}: CL_{_status.to_string(error.code, 'status %d')}"
        is_creating = "create_buffer" in str(error.routine).lower()
        if error.code in _REFUSED_SIZES or (is_creating and error.code in _NO_ROOM):
            return TooLarge(text)
        if self._context is not None:
            self._context.retire()
        return DeviceError(text)


class Context:
    """An OpenCL context of one device, and the programs that were built in it.

    Attributes:
        cl_context: pyopencl's object.
        programs, failures: by source; a failure is a build that the driver refused.
        of_binaries: the digests of programs that were made of a binary.
        lock: held while a program is built.
    Raises:
        DeviceError: the device refuses a context.
    """

    def __init__(self, cl_device: cl.Device) -> None:
        # NOTE: before the context. PoCL 3.0 aborts where a context is let go before its programs,
        # and Python lets attributes go in this order.
        self.programs: dict[str, cl.Program] = {}
        self.failures: dict[str, KernelBuildError] = {}
        self.of_binaries: set[str] = set()
        self.lock = threading.RLock()
        with opencl("clCreateContext"):
            self.cl_context = cl.Context([cl_device])

    def retire(self) -> None:
        """Leave this context to those that have it: devices opened later get another."""
        with _lock:
            for key in [key for key, context in _shared.items() if context is self]:
                del _shared[key]


# By pyopencl's device and by what kernels are kept by, which has the device profile in it.
_shared: weakref.WeakValueDictionary[tuple[int, str], Context] = weakref.WeakValueDictionary()
# One that a thread may take again: the garbage collector may let contexts go at any time.
_lock = threading.RLock()


def shared_context(cl_device: cl.Device, identity: str) -> Context:
    """Return the context that opened devices of this identity share; raises as Context."""
    key = (cl_device.int_ptr, identity)
    with _lock:
        context = _shared.get(key)
        if context is None:
            context = _shared[key] = Context(cl_device)
        return context
