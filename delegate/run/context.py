# SPDX-License-Identifier: Apache-2.0
"""OpenCL contexts, shared by the devices opened in this process and retired after an error.

A shared context lives as long as an opened device uses it. NVIDIA's driver takes 0.2 to 0.3 s to
create one.
"""

from __future__ import annotations

import threading
import weakref

import pyopencl as cl

from delegate.errors import DelegateError, DeviceError, KernelBuildError, TooLarge
from delegate.guard.children import process

_status = cl.status_code
# The driver cannot allocate a buffer of this size; the device itself is fine.
_REFUSED_SIZES = {_status.MEM_OBJECT_ALLOCATION_FAILURE, _status.INVALID_BUFFER_SIZE}
# The same when creating a buffer; from any other call, the device is lost.
_NO_ROOM = {_status.OUT_OF_RESOURCES, _status.OUT_OF_HOST_MEMORY}
# The device is lost, whichever kernel was being built.
_LOST = {
    _status.DEVICE_NOT_AVAILABLE,
    _status.INVALID_DEVICE,
    _status.INVALID_CONTEXT,
    _status.INVALID_COMMAND_QUEUE,
}


def is_lost(error: DelegateError) -> bool:
    """Whether an error means that the device is lost, whatever the call was."""
    cause = error.__cause__
    return isinstance(cause, cl.Error) and cause.code in _LOST


def is_failed(error: Exception) -> bool:
    """Whether a driver call failed for a reason other than size: the context may be unusable."""
    return isinstance(error.__cause__, cl.Error) and not isinstance(error, TooLarge)


# Looked up once: measurable in networks of a few microseconds.
_enter, _exit = process.ProtectedCall.__enter__, process.ProtectedCall.__exit__


class opencl(process.ProtectedCall):
    """A context manager around driver calls that turns OpenCL errors into DeviceError.

    Reentrant and thread-safe.
    """

    def __init__(self, call: str, context: Context | None = None) -> None:
        """`call`: its name in the error message.

        `context`: the context in use; after an error no device opened later shares it, unless the
        error is a refused size (TooLarge).
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
        programs, failures: by source; a failure is a build that the driver rejected.
        of_binaries: digests of the programs loaded from binaries.
        lock: held while a program is being built.
    Raises:
        DeviceError: the device refuses a context.
    """

    def __init__(self, cl_device: cl.Device) -> None:
        # NOTE: before the context. PoCL 3.0 aborts if a context is released before its programs,
        # and Python releases attributes in this order.
        self.programs: dict[str, cl.Program] = {}
        self.failures: dict[str, KernelBuildError] = {}
        self.of_binaries: set[str] = set()
        self.lock = threading.RLock()
        with opencl("clCreateContext"):
            self.cl_context = cl.Context([cl_device])

    def retire(self) -> None:
        """Stop sharing this context: devices opened later get a new one."""
        with _lock:
            for key in [key for key, context in _shared.items() if context is self]:
                del _shared[key]


# By pyopencl device and by cache identity, which includes the device profile.
_shared: weakref.WeakValueDictionary[tuple[int, str], Context] = weakref.WeakValueDictionary()
# Reentrant: the garbage collector may release contexts at any time.
_lock = threading.RLock()


def shared_context(cl_device: cl.Device, identity: str) -> Context:
    """Return the context shared by opened devices of this identity; raises as Context."""
    key = (cl_device.int_ptr, identity)
    with _lock:
        context = _shared.get(key)
        if context is None:
            context = _shared[key] = Context(cl_device)
        return context
