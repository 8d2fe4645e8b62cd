# SPDX-License-Identifier: Apache-2.0
"""Runs one program: constants and arguments go up once; a run copies in, launches, copies out."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from delegate.errors import DeviceError
from delegate.graph.ir import Tensor
from delegate.launch import Constant, Program, size_bytes
from delegate.runtime.command_buffer import CommandBuffer
from delegate.runtime.device import Device
from delegate.runtime.kernels import Kernels
from delegate.runtime.memory import plan_arena, plan_constants
from delegate.runtime.persistent import CONTROL_INTS, persistent_kernel

Bytes = NDArray[np.uint8]
# How a program's launches reach the device: each by a call, recorded in a command buffer, or as the
# tiles of one launch.
ONE_BY_ONE, RECORDED, PERSISTENT = FORMS = ("one by one", "recorded", "persistent")
_LARGEST_BYTES = 2**31 - 1  # kernels' offsets are ints
_log = logging.getLogger("delegate")


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

    Attributes:
        program, batch; form: one of FORMS.
        launches, work_items, up_bytes, down_bytes: what a run enqueues and copies.
    Raises:
        DeviceError: it does not fit, or the driver refuses memory.
        KernelBuildError: a kernel does not build.
    """

    def __init__(
        self,
        device: Device,
        kernels: Kernels,
        program: Program,
        batch: int = 1,
        form: str = ONE_BY_ONE,
        sibling: Executor | None = None,
    ) -> None:
        """Take memory for `batch` pictures at once and upload what does not change.

        `form`: one of FORMS; where the device cannot do it, launches go one by one. `sibling`: an
        executor of the same program and batch, whose constants this one shares; each has a queue
        of its own.
        """
        self.program = program
        self.batch = batch
        self._device = device
        self._staging: tuple[list[Bytes], list[Bytes]] | None = None
        arena = plan_arena(program)
        constant_bytes, constant_offsets = plan_constants(program)
        for what, needed in (("arena", arena.size_bytes * batch), ("constants", constant_bytes)):
            device.check_buffer(what, needed, _LARGEST_BYTES)
        self._slot_bytes = arena.size_bytes
        self._inputs = [(arena.offsets[t], size_bytes(t)) for t in program.inputs]
        self._outputs = [(arena.offsets[t], size_bytes(t)) for t in program.outputs]
        self.up_bytes = batch * sum(size for _, size in self._inputs)
        self.down_bytes = batch * sum(size for _, size in self._outputs)

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
        whole = None
        if form == PERSISTENT and len(program.launches) > 1:
            whole = persistent_kernel(device, kernels, program.launches, firsts, batch)
        table_first = len(blocks)
        if whole is not None:
            blocks.extend(whole.table)
        params = np.array(blocks or [0], np.int32)

        flags = cl.mem_flags
        self._queue = device.queue if sibling is None else device.another_queue()
        self._constants: cl.Buffer | None = None if sibling is None else sibling._constants
        self._buffers: list[cl.Buffer] = []
        self._kernels: list[tuple[cl.Kernel, tuple[int], tuple[int]]] = []
        self._recorded: CommandBuffer | None = None
        try:
            with device.calling(
                f"allocating {(arena.size_bytes * batch + constant_bytes) >> 10} KiB"
            ):

                def buffer(access: int, values: Bytes) -> cl.Buffer:
                    device.check_buffer("memory", values.nbytes)
                    made = cl.Buffer(device.context.cl_context, access, values.nbytes)
                    # Touching every byte makes a lazy driver allocate now, not within a run.
                    cl.enqueue_copy(self._queue, made, values)
                    return made

                def own(access: int, values: Bytes) -> cl.Buffer:
                    self._buffers.append(buffer(access, values))
                    return self._buffers[-1]

                self._arena = own(flags.READ_WRITE, np.zeros(arena.size_bytes * batch, np.uint8))
                if self._constants is None:
                    constants = np.zeros(constant_bytes, np.uint8)
                    for constant, offset in constant_offsets.items():
                        packed = _as_bytes(constant.pack())
                        constants[offset : offset + constant.size_bytes] = packed
                    # Not among the buffers to release: siblings may still read it.
                    self._constants = buffer(flags.READ_ONLY, constants)
                block_buffer = own(flags.READ_ONLY, _as_bytes(params))
                arguments = [self._arena, self._constants, block_buffer]
                for tensor, offset in arena.offsets.items():
                    if tensor.data is not None:
                        data = _as_bytes(tensor.data)
                        for slot in range(batch):
                            place = slot * arena.size_bytes + offset
                            cl.enqueue_copy(self._queue, self._arena, data, dst_offset=place)
                if whole is not None:
                    control = _as_bytes(np.zeros(CONTROL_INTS, np.int32))
                    arguments.append(own(flags.READ_WRITE, control))
            if whole is not None:
                with device.calling("clSetKernelArg of the persistent kernel"):
                    whole.kernel.set_args(*arguments, np.int32(table_first))
                size = whole.groups * whole.group_items
                self._kernels.append((whole.kernel, (size,), (whole.group_items,)))
            else:
                for launch, first in zip(program.launches, firsts, strict=True):
                    kernel, group = kernels.kernel(launch)
                    with device.calling(f"clSetKernelArg {launch.kernel}"):
                        kernel.set_args(*arguments, np.int32(first))
                    size = launch.tiles * batch * group
                    self._kernels.append((kernel, (size,), (group,)))
        except BaseException:
            self.close()
            raise
        self.form = PERSISTENT if whole is not None else ONE_BY_ONE
        if form == RECORDED:
            try:
                self._recorded = CommandBuffer(device, self._queue, self._kernels)
                self.form = RECORDED
            except DeviceError as error:
                _log.debug("launches are not recorded: %s", error)
        self.launches = len(self._kernels)
        self.work_items = sum(size for _, (size,), _ in self._kernels)
        self._events: list[cl.Event] = []
        self._copies: list[object] = []

    def run(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        """Run once, from host bytes to host bytes, by the device's best transfer.

        Shapes:
            one uint8 array a program input or output, as long as the tensor's bytes times the
            batch, picture after picture
        Raises:
            DeviceError: a size that does not fit, or a failed OpenCL call.
        """
        if self._device.transfer == "mapped" and self.batch == 1:
            self._run_mapped(inputs, outputs)
        elif self._device.transfer == "pinned":
            self._run_pinned(inputs, outputs)
        else:
            self.submit(inputs, outputs)
            self.wait()

    def _run_mapped(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        self._check(inputs, outputs)
        flags = cl.map_flags
        with self._device.calling("running"):
            for source, (offset, size) in zip(inputs, self._inputs, strict=True):
                with self._mapped(flags.WRITE_INVALIDATE_REGION, offset, size) as view:
                    np.copyto(view, source)
            self._events = self._enqueue()
            for result, (offset, size) in zip(outputs, self._outputs, strict=True):
                with self._mapped(flags.READ, offset, size) as view:
                    np.copyto(result, view)

    def _enqueue(self) -> list[cl.Event]:
        if self._recorded is not None:
            self._recorded.enqueue()
            return []
        return [cl.enqueue_nd_range_kernel(self._queue, *each) for each in self._kernels]

    @contextmanager
    def _mapped(self, access: int, offset: int, size: int) -> Iterator[Bytes]:
        view, _ = cl.enqueue_map_buffer(
            self._queue, self._arena, access, offset, (size,), np.uint8, is_blocking=True
        )
        try:
            yield view
        finally:
            view.base.release(self._queue)

    def _run_pinned(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        self._check(inputs, outputs)
        if self._staging is None:
            sizes = [self.batch * size for _, size in (*self._inputs, *self._outputs)]
            made = [self.host_array(size) for size in sizes]
            self._staging = made[: len(inputs)], made[len(inputs) :]
        staged_inputs, staged_outputs = self._staging
        for staged, source in zip(staged_inputs, inputs, strict=True):
            np.copyto(staged, source)
        self._submit(staged_inputs, staged_outputs)
        self.wait()
        for result, staged in zip(outputs, staged_outputs, strict=True):
            np.copyto(result, staged)

    def host_array(self, size: int) -> Bytes:
        """Return host bytes that are fast for `submit` to copy from and to; undefined values.

        Raises:
            DeviceError: the driver refuses the memory.
        """
        if self._device.transfer != "pinned":
            return np.zeros(size, np.uint8)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        pinned = self._device.buffer("pinned memory", flags, size)
        with self._device.calling(f"mapping {size >> 10} KiB of pinned memory"):
            # The array keeps the mapping, and that the buffer.
            array: Bytes = cl.enqueue_map_buffer(
                self._queue, pinned, cl.map_flags.READ | cl.map_flags.WRITE, 0, (size,), np.uint8
            )[0]
        return array

    def _check(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        if not self._buffers:
            raise DeviceError("the delegate was closed")
        for given, (_, size) in zip(
            (*inputs, *outputs), (*self._inputs, *self._outputs), strict=True
        ):
            if given.nbytes != size * self.batch:
                raise DeviceError(f"{given.nbytes} bytes given, {size * self.batch} planned")

    def submit(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        """Enqueue a run; the arrays are the device's until `wait`. Raises as `run`."""
        self._check(inputs, outputs)
        self._submit(inputs, outputs)

    def _submit(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        queue, arena = self._queue, self._arena
        with self._device.calling("running"):
            # NOTE: pyopencl waits for a copy whose event is dropped, so they are held to the end.
            copies: list[object] = [
                cl.enqueue_copy(queue, arena, source, is_blocking=False, **self._place(place, True))
                for source, place in zip(inputs, self._inputs, strict=True)
            ]
            events = self._enqueue()
            copies += [
                cl.enqueue_copy(
                    queue, result, arena, is_blocking=False, **self._place(place, False)
                )
                for result, place in zip(outputs, self._outputs, strict=True)
            ]
            queue.flush()
        self._copies, self._events = copies, events

    def _place(self, place: tuple[int, int], is_input: bool) -> dict[str, Any]:
        """The arguments that say where in the arena a tensor's bytes of all pictures lie."""
        offset, size = place
        if self.batch == 1:
            return {"dst_offset" if is_input else "src_offset": offset}
        return {
            "buffer_origin": (offset, 0, 0),
            "host_origin": (0, 0, 0),
            "region": (size, self.batch, 1),
            "buffer_pitches": (self._slot_bytes, 0),
            "host_pitches": (size, 0),
        }

    def wait(self) -> None:
        """Return when the submitted run's outputs are there.

        Raises:
            DeviceError: a failed OpenCL call.
        """
        with self._device.calling("running"):
            self._queue.finish()
        self._copies = []

    def repeat(self, count: int, wait: bool = False) -> float:
        """Run the launches alone `count` times; return one time's seconds on this clock.

        `wait`: for each time's end, as a run does; a command buffer needs it.

        Raises:
            DeviceError: a failed OpenCL call.
        """
        with self._device.calling("running"):
            self._queue.finish()
            begin = time.perf_counter()
            for _ in range(count):
                self._enqueue()
                if wait or self._recorded is not None:
                    self._queue.finish()
            self._queue.finish()
        return (time.perf_counter() - begin) / count

    def profile(self) -> list[LaunchTime]:
        """Return the last run's launches; the device must have been opened for profiling."""
        if not self._events:
            return []  # it did not run yet
        rows = []
        steps = [(s, launch) for s in self.program.steps for launch in s.alternative.launches]
        for (step, launch), (_, global_size, _), event in zip(
            steps, self._kernels, self._events, strict=True
        ):
            with self._device.calling("clGetEventProfilingInfo"):
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
        if self._recorded is not None:
            self._recorded.close()
        self._recorded = None
        self._events = []
        self._kernels = []
        self._copies = []
        self._staging = None
        self._constants = None
        buffers, self._buffers = self._buffers, []
        for buffer in buffers:
            buffer.release()


def _as_bytes(values: NDArray[Any]) -> Bytes:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)
