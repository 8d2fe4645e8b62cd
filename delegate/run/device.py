# SPDX-License-Identifier: Apache-2.0
"""An opened OpenCL device: its context, queues and limits; OpenCL errors become DeviceError."""

from __future__ import annotations

import math
from collections.abc import Collection

import pyopencl as cl

from delegate.errors import DeviceError, TooLarge
from delegate.profiles import DeviceProfile
from delegate.run.context import Context, opencl, shared_context
from delegate.run.device_list import DeviceInfo, all_entries, entry_without_threads
from delegate.run.forbidden import argument_bytes
from delegate.run.pages import in_large_pages


def identity_with(info: DeviceInfo, profile: DeviceProfile | None) -> str:
    """Return a key that identifies device, driver and profile across processes."""
    return info.identity if profile is None else f"{info.identity}|{profile.identity}"


def allowed(isa: Collection[str], profile: DeviceProfile | None) -> list[str]:
    """Return the subset that a profile allows."""
    return [name for name in isa if profile is None or name in profile.isa]


class Device:
    """An opened device: its context, an in-order queue and the limits lowering needs.

    Attributes:
        info; cl_device: pyopencl's object; max_alloc_bytes, max_argument_bytes, vector_width,
        compute_units.
        shares_memory: a CPU that reports fine-grained host-visible buffers.
        is_far: not a CPU, and it reports memory separate from the host's.
        proven: the names in delegate.isa that may be used: those whose self-tests passed here,
            without those excluded or missing in the profile.
        profile: another device's limits, enforced beside its own; type: the profile's, else its
            own; identity: the cache key of kernels and timings, profile included.
    Raises:
        DeviceError: the device is gone or refuses a context.
    """

    def __init__(
        self,
        info: DeviceInfo,
        profiling: bool = False,
        proven: Collection[str] = (),
        profile: DeviceProfile | None = None,
        shares_context: bool = False,
    ) -> None:
        """Open it; `shares_context`: with other devices of this process that were opened so."""
        entry = next((e for e in all_entries() if e[0] == info), None)
        if entry is None:
            raise DeviceError(f"device {info.name} ({info.platform}) is no longer there")
        self.info, self.cl_device = entry
        self.profile = profile
        self.type = info.type if profile is None else profile.device_type
        self.identity = identity_with(info, profile)
        self.proven = frozenset(allowed(proven, profile))
        flags = cl.command_queue_properties.PROFILING_ENABLE if profiling else 0
        self._context: Context | None = (
            shared_context(self.cl_device, self.identity)
            if shares_context
            else Context(self.cl_device)
        )
        self._queue_properties = flags
        self._shares_context = shares_context
        self._without_threads: Device | None = None
        self._queue: cl.CommandQueue | None = self.another_queue()
        with opencl("clGetDeviceInfo"):
            self.max_alloc_bytes: int = self.cl_device.max_mem_alloc_size
            self.max_argument_bytes: int = self.cl_device.max_parameter_size
            self.vector_width: int = self.cl_device.native_vector_width_int
            self.compute_units: int = self.cl_device.max_compute_units
        self.shares_memory = self.type == "cpu" and _is_coherent(self.cl_device)
        self.is_far = self.type != "cpu" and not self.cl_device.host_unified_memory
        if profile is not None:
            self.max_alloc_bytes = min(self.max_alloc_bytes, profile.max_alloc_bytes)
            self.vector_width = min(self.vector_width, profile.int_vector_width)
            self.max_argument_bytes = min(self.max_argument_bytes, profile.max_argument_bytes)

    @property
    def context(self) -> Context:
        """The context, with the programs built in it."""
        if self._context is None:
            raise DeviceError("the device was closed")
        return self._context

    @property
    def queue(self) -> cl.CommandQueue:
        """The first queue."""
        if self._queue is None:
            raise DeviceError("the device was closed")
        return self._queue

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._context is None

    def without_threads(self) -> Device | None:
        """Return the driver's device that runs kernels in the calling thread; None: it has none.

        It is closed with this one. Raises: DeviceError.
        """
        if self._without_threads is None and self.profile is None:
            entry = entry_without_threads(self.info)
            if entry is not None:
                own = bool(self._queue_properties), self.proven, None, self._shares_context
                self._without_threads = Device(entry[0], *own)
        return self._without_threads

    def calling(self, call: str) -> opencl:
        """Return a context manager for calls of this name; an error retires the OpenCL context."""
        return opencl(call, self._context)

    def check_buffer(self, what: str, size: int, largest: int | None = None) -> None:
        """Check that a buffer of this size can be created; `largest`: a limit beside the device's.

        Raises:
            TooLarge: it cannot.
        """
        limit = min(self.max_alloc_bytes, largest or self.max_alloc_bytes)
        if size > limit:
            raise TooLarge(
                f"{what} of {size} bytes: one buffer of this device holds at most {limit}"
                f"{self._whose()}"
            )

    def buffer(self, what: str, access: int, size: int) -> cl.Buffer:
        """Return a buffer of `size` bytes; `what` names it in messages.

        Raises:
            TooLarge: above the buffer limit, or the driver cannot allocate it.
        """
        self.check_buffer(what, size)
        with self.calling(f"allocating {size >> 10} KiB of {what}"):
            context, memory = self.context.cl_context, None
            if self.shares_memory and not access & cl.mem_flags.ALLOC_HOST_PTR:
                memory = in_large_pages(size)
            if memory is None:
                return cl.Buffer(context, access, size)
            return cl.Buffer(context, access | cl.mem_flags.USE_HOST_PTR, hostbuf=memory)

    def group_limit(self, kernel: cl.Kernel) -> int:
        """Return the largest work-group size of this kernel.

        Raises:
            DeviceError: it needs more work-items, local memory or arguments than there are.
        """
        wanted = cl.kernel_work_group_info
        with opencl(f"clGetKernelWorkGroupInfo {kernel.function_name}"):
            # The kernel's own limit, not the device's: register pressure may lower it.
            limit: int = kernel.get_work_group_info(wanted.WORK_GROUP_SIZE, self.cl_device)
            fixed = math.prod(
                kernel.get_work_group_info(wanted.COMPILE_WORK_GROUP_SIZE, self.cl_device)
            )
            local = kernel.get_work_group_info(wanted.LOCAL_MEM_SIZE, self.cl_device)
        if self.profile is not None:
            limit = min(limit, self.profile.max_work_group_size)
            most, arguments = self.profile.max_argument_bytes, argument_bytes(kernel)
            self._check(kernel, "bytes of arguments", arguments, most)
            # NOTE: rusticl of Mesa 22.3 counts it twice, but enforces its own limit correctly.
            with opencl("clGetDeviceInfo"):
                own = self.cl_device.local_mem_size
            if (most := self.profile.local_mem_bytes) < own:
                self._check(kernel, "bytes of local memory", local, most)
        self._check(kernel, "work-items a group", fixed, limit)
        return limit

    def _check(self, kernel: cl.Kernel, what: str, needed: int, limit: int) -> None:
        if needed > limit:
            raise TooLarge(
                f"kernel {kernel.function_name} needs {needed} {what}: this device has at most "
                f"{limit}{self._whose()}"
            )

    def _whose(self) -> str:
        return "" if self.profile is None else f" (device profile {self.profile.name})"

    def another_queue(self) -> cl.CommandQueue:
        """Return another in-order queue, for concurrent work.

        Raises:
            DeviceError: the driver has no more.
        """
        with self.calling("clCreateCommandQueue"):
            return cl.CommandQueue(self.context.cl_context, properties=self._queue_properties)

    def close(self) -> None:
        """Release the queue and the context; a shared context ends with its last user.

        Close everything created in the context first. A second call does nothing.
        """
        self._queue = self._context = None
        if self._without_threads is not None:
            self._without_threads.close()


def _is_coherent(cl_device: cl.Device) -> bool:
    """Whether the host sees device memory without mapping once kernels have finished."""
    try:
        return bool(cl_device.svm_capabilities & cl.device_svm_capabilities.FINE_GRAIN_BUFFER)
    except (cl.Error, AttributeError):  # OpenCL before 2.0 lacks the query
        return False
