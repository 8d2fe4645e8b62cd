# SPDX-License-Identifier: Apache-2.0
"""Runs the calls of a Reproducer on a device, with memory of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyopencl as cl

from delegate.errors import DeviceError
from delegate.plan.layout import Bytes
from delegate.plan.record import CallPlan
from delegate.plan.reproducer import Replay, Reproducer
from delegate.run.context import opencl
from delegate.run.device import Device
from delegate.run.programs import build


def replayed(device: Device, given: Reproducer) -> Replay:
    """Build and run; a driver's error is a result. Raises nothing, but may end the process."""
    programs: dict[str, cl.Program] = {}
    sizes: list[int] = []
    try:
        for call in given.calls:
            source = call.program.source
            if source not in programs:
                program = cl.Program(device.context.cl_context, source)
                try:
                    programs[source] = build(device, program, given.options)
                except DeviceError as error:
                    return Replay("clBuildProgram", str(error), (), ())
        kernels = []
        for call in given.calls:
            with opencl(f"clCreateKernel {call.kernel}"):
                kernel = cl.Kernel(programs[call.program.source], call.kernel)
            sizes.append(min(call.local_size, device.group_limit(kernel)))
            kernels.append(kernel)
        outputs = _run(device, given, kernels, sizes)
    except DeviceError as error:
        return Replay(str(error), "", tuple(sizes), ())
    return Replay("", "", tuple(sizes), outputs)


def _run(
    device: Device, given: Reproducer, kernels: list[cl.Kernel], sizes: list[int]
) -> tuple[Bytes, ...]:
    flags, queue = cl.mem_flags, device.queue
    buffers: list[cl.Buffer] = []
    try:
        for access, values in (
            (flags.READ_WRITE, given.arena),
            (flags.READ_ONLY, given.constants),
            (flags.READ_ONLY, given.ints),
        ):
            buffers.append(device.buffer("memory", access, max(values.nbytes, 4)))
            with device.calling("clEnqueueWriteBuffer"):
                cl.enqueue_copy(queue, buffers[-1], values)
        arena, constants, ints = buffers
        for call, kernel, size in zip(given.calls, kernels, sizes, strict=True):
            own: list[object] = [ints, np.int32(call.number)]
            if call.block:
                own = [np.frombuffer(call.block, np.uint8)]
            with device.calling(f"running {call.kernel}"):
                kernel.set_args(arena, arena if call.constants is None else constants, *own)
                groups = call.global_size // call.local_size
                cl.enqueue_nd_range_kernel(queue, kernel, (groups * size,), (size,))
                queue.finish()
        found = np.empty_like(given.arena)
        with device.calling("clEnqueueReadBuffer"):
            cl.enqueue_copy(queue, found, arena)
        return tuple(found[t.offset : t.offset + t.size_bytes].copy() for t in given.outputs)
    finally:
        for buffer in buffers:
            buffer.release()


def with_sizes(given: Reproducer, sizes: tuple[int, ...]) -> Reproducer:
    """Return a reproducer whose calls have the work-group sizes of a replay."""

    def sized(call: CallPlan, size: int) -> CallPlan:
        groups = call.global_size // call.local_size
        return replace(call, global_size=groups * size, local_size=size)

    return replace(given, calls=tuple(map(sized, given.calls, sizes))) if sizes else given
