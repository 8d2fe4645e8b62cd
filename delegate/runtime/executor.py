# SPDX-License-Identifier: Apache-2.0
"""Runs one program: constants and arguments go up once; a run copies in, launches, copies out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from delegate.errors import DeviceError
from delegate.graph.ir import Tensor
from delegate.launch import Constant, Program, size_bytes
from delegate.runtime.device import Device, opencl
from delegate.runtime.kernels import Kernels
from delegate.runtime.memory import plan_arena, plan_constants

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class LaunchTime:
    """One launch of a profiled run."""

    node: int  # TFLite's node index
    op: str
    kernel: str
    alternative: str
    global_size: int  # work-items
    microseconds: float  # on the device, from the event's start to its end


class Executor:
    """A program with its memory and kernels on a device.

    Raises:
        DeviceError: it does not fit, or the driver refuses memory.
        KernelBuildError: a kernel does not build.
    """

    def __init__(self, device: Device, kernels: Kernels, program: Program) -> None:
        self.program = program
        self._device = device
        arena = plan_arena(program)
        constant_bytes, constant_offsets = plan_constants(program)
        for what, needed in (("arena", arena.size_bytes), ("constants", constant_bytes)):
            if needed > min(device.max_alloc_bytes, 2**31 - 1):
                raise DeviceError(
                    f"{what} of {needed} bytes: one buffer of this device holds at most "
                    f"{min(device.max_alloc_bytes, 2**31 - 1)}"
                )
        self._inputs = [(arena.offsets[t], size_bytes(t)) for t in program.inputs]
        self._outputs = [(arena.offsets[t], size_bytes(t)) for t in program.outputs]
        constants = np.zeros(constant_bytes, np.uint8)
        for constant, offset in constant_offsets.items():
            constants[offset : offset + constant.size_bytes] = _as_bytes(constant.pack())

        def resolve(value: int | Tensor | Constant) -> int:
            if isinstance(value, Tensor):
                return arena.offsets[value]
            return constant_offsets[value] if isinstance(value, Constant) else value

        blocks: list[int] = []
        firsts: list[int] = []
        for launch in program.launches:
            blocks += [launch.tiles, arena.size_bytes]  # what KERNEL of kernel.clh reads
            firsts.append(len(blocks))
            blocks.extend(resolve(value) for value in launch.params.values())
        params = np.array(blocks or [0], np.int32)

        queue, flags = device.queue, cl.mem_flags
        self._buffers: list[cl.Buffer] = []
        self._kernels: list[tuple[cl.Kernel, tuple[int], tuple[int]]] = []
        try:
            with opencl(f"allocating {(arena.size_bytes + constant_bytes) >> 10} KiB"):
                for size, access in (
                    (arena.size_bytes, flags.READ_WRITE),
                    (constant_bytes, flags.READ_ONLY),
                    (params.nbytes, flags.READ_ONLY),
                ):
                    self._buffers.append(cl.Buffer(device.context, access, size))
                self._arena = self._buffers[0]
                # Touching every byte makes a lazy driver allocate now, not in the middle of a run.
                cl.enqueue_copy(queue, self._arena, np.zeros(arena.size_bytes, np.uint8))
                cl.enqueue_copy(queue, self._buffers[1], constants)
                cl.enqueue_copy(queue, self._buffers[2], params)
                for tensor, offset in arena.offsets.items():
                    if tensor.data is not None:
                        data = _as_bytes(tensor.data)
                        cl.enqueue_copy(queue, self._arena, data, dst_offset=offset)
            for launch, first in zip(program.launches, firsts, strict=True):
                kernel, group = kernels.kernel(launch)
                with opencl(f"clSetKernelArg {launch.kernel}"):
                    kernel.set_args(*self._buffers, np.int32(first))
                self._kernels.append((kernel, (launch.tiles * group,), (group,)))
        except BaseException:
            self.close()
            raise
        self._events: list[cl.Event] = []

    def run(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        """Run once, from host bytes to host bytes.

        Shapes:
            one uint8 array a program input or output, as long as the tensor's bytes
        Raises:
            DeviceError: a size that does not fit, or a failed OpenCL call.
        """
        if not self._buffers:
            raise DeviceError("the delegate was closed")
        for given, planned in zip(
            (*inputs, *outputs), (*self._inputs, *self._outputs), strict=True
        ):
            if given.nbytes != planned[1]:
                raise DeviceError(f"{given.nbytes} bytes given, {planned[1]} planned")
        queue, arena = self._device.queue, self._arena
        with opencl("running"):
            # NOTE: pyopencl waits for a copy whose event is dropped, so they are held to the end.
            copies = [
                cl.enqueue_copy(queue, arena, source, dst_offset=offset, is_blocking=False)
                for source, (offset, _) in zip(inputs, self._inputs, strict=True)
            ]
            events = [
                cl.enqueue_nd_range_kernel(queue, kernel, global_size, local_size)
                for kernel, global_size, local_size in self._kernels
            ]
            copies += [
                cl.enqueue_copy(queue, result, arena, src_offset=offset, is_blocking=False)
                for result, (offset, _) in zip(outputs, self._outputs, strict=True)
            ]
            queue.finish()
        self._events = events

    def profile(self) -> list[LaunchTime]:
        """Return the last run's launches; the device must have been opened for profiling."""
        if not self._events:
            return []  # it did not run yet
        rows = []
        steps = [(s, launch) for s in self.program.steps for launch in s.alternative.launches]
        for (step, launch), (_, global_size, _), event in zip(
            steps, self._kernels, self._events, strict=True
        ):
            with opencl("clGetEventProfilingInfo"):
                spent = (event.profile.end - event.profile.start) / 1000
            rows.append(
                LaunchTime(
                    step.node_index,
                    step.op,
                    launch.kernel,
                    step.alternative.name,
                    global_size[0],
                    spent,
                )
            )
        return rows

    def close(self) -> None:
        """Give the device's memory back; a second call does nothing."""
        self._events = []
        self._kernels = []
        buffers, self._buffers = self._buffers, []
        for buffer in buffers:
            buffer.release()


def _as_bytes(values: NDArray[Any]) -> Bytes:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)
