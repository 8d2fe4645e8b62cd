# SPDX-License-Identifier: Apache-2.0
"""Runs one program: what stays goes up once; a run copies in, launches, copies out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np
import pyopencl as cl

from delegate import progress
from delegate.errors import DelegateError, DeviceError
from delegate.launch import Program, size_bytes
from delegate.runtime.calls import ONE_BY_ONE, Calls, Memory, calls_of
from delegate.runtime.device import Device
from delegate.runtime.inspection import LaunchTime, Steps
from delegate.runtime.kernels import Kernels
from delegate.runtime.layout import NOWHERE, Bytes, Layout, Region, as_bytes
from delegate.runtime.link import Link
from delegate.runtime.state import State
from delegate.runtime.transfers import COPIED, Copied, ReadyKernel, transfer_for
from delegate.runtime.upload import write
from delegate.runtime.weights import Taken, Weights
from delegate.sandbox.trials import EXECUTOR, Trial


class Executor:
    """A program with its memory and kernels on a device.

    Attributes:
        program, batch; form: one of FORMS.
        inputs, outputs: of the program, those that a run is given and gives.
        has_halves: values of its float32 tensors are halves between launches.
        trial: to make it; see delegate.sandbox.trials.
    Raises:
        DeviceError: it does not fit, or the driver refuses memory or does not keep it.
        KernelBuildError: a kernel does not build.
    """

    def __init__(
        self,
        device: Device,
        kernels: Kernels,
        program: Program,
        batch: int = 1,
        form: str = ONE_BY_ONE,
        transfer: str = COPIED,
        weights: Weights | None = None,
        own_queue: bool = False,
        state: State | None = None,
        region: Region = NOWHERE,
    ) -> None:
        """Take memory for `batch` pictures at once and upload what does not change.

        `form`: one of FORMS; where the device cannot do it, launches go one by one. `transfer`: how
        bytes cross, one of TRANSFERS. `weights`: where constants are, shared with other executors;
        None: with none. `own_queue`: its runs go beside those of others. `state`: what brings and
        keeps the values that it has; others cross as all tensors do, as for measuring. `region`:
        the state's, also where it is tried without one.
        """
        self.program = program
        self.inputs, self.outputs = (
            tuple(tensor for tensor in tensors if state is None or not state.has(tensor))
            for tensors in (program.inputs, program.outputs)
        )
        self.has_halves = any(step.op == "to_halves" for step in program.steps)
        self.batch = batch
        self._device = device
        self._trials = kernels.trials
        calls = calls_of(device, kernels, program, batch, form, region)
        self._layout = layout = calls.layout
        self.form, runs = calls.form, calls.trials
        facts = runs, form, transfer, layout.arena_bytes, layout.inputs
        self.trial = Trial.of(EXECUTOR, *facts)
        self._buffers: list[cl.Buffer] = []
        self._weights = Weights(device) if weights is None else weights
        self._constants: Taken | None = None
        self._transfer: Copied | None = None
        # The arrays of the last run, whose sizes were found to be right.
        self._sized: tuple[Sequence[Bytes] | None, Sequence[Bytes] | None] = (None, None)
        self._queue = device.another_queue() if own_queue else device.queue
        try:
            with kernels.trials.of(self.trial):
                with progress.phase("upload"):
                    # That others have, too; None: it has its own.
                    self._arena = None if state is None else state.arena(layout.arena_bytes)
                    memory = self._upload(calls)
                self._calls, self._memory, self._state = calls, memory, state
                self._kind = transfer_for(transfer, batch, device.shares_memory)
                made = self._transfer = self._made(memory)
                for run, each in zip(runs, made.kernels, strict=True):
                    if kernels.trials.is_due(run):
                        self._run_once(run, each)
        except BaseException:
            self.close()
            raise

    def _made(self, memory: Memory) -> Copied:
        """Return what runs it in this memory."""
        ready = self._calls.ready(memory)
        crossing, link = self._crossing(memory.arena)
        return self._kind(self._device, self._queue, memory.arena, crossing, ready, link)

    def _crossing(self, arena: cl.Buffer) -> tuple[Layout, Link | None]:
        """Return the layout of what a run is given and gives, and what brings the rest."""
        layout, state = self._layout, self._state
        inputs, outputs = (
            tuple((layout.offsets[tensor], size_bytes(tensor)) for tensor in some)
            for some in (self.inputs, self.outputs)
        )
        crossing = replace(layout, inputs=inputs, outputs=outputs)
        if state is None:
            return crossing, None
        return crossing, Link(state, self._arena, arena, layout, self.program)

    def _upload(self, calls: Calls) -> Memory:
        """Fill every buffer."""
        flags, layout, launches = cl.mem_flags, self._layout, self.program.launches
        whole, as_one = calls.whole, calls.form != ONE_BY_ONE

        def own(access: int, values: Bytes, is_checked: bool) -> cl.Buffer:
            self._buffers.append(self._buffer(access, values, is_checked))
            return self._buffers[-1]

        kib = (layout.arena_bytes + layout.constant_bytes) >> 10
        with self._device.calling(f"allocating {kib} KiB"):
            if self._arena is not None:
                arena = self._arena.buffer
            else:
                arena = own(flags.READ_WRITE, np.zeros(layout.arena_bytes, np.uint8), False)
            self._constants = self._weights.take(self._queue, launches, as_one)
            places = self._constants.places
            blocks = layout.blocks(launches, [{} if p is None else p.offsets for p in places])
            more_ints = () if whole is None else (*layout.strides(launches), *whole.table)
            ints = [*blocks, *more_ints] or [0]
            # Kernels address memory by params: wrong ones could end the process.
            more = [own(flags.READ_ONLY, as_bytes(np.array(ints, np.int32)), True)]
            for tensor, offset in layout.stored.items():
                data = as_bytes(np.asarray(tensor.data))
                for slot in range(layout.batch):
                    place = slot * layout.slot_bytes + offset
                    cl.enqueue_copy(self._queue, arena, data, dst_offset=place)
            if whole is not None:
                control = as_bytes(np.zeros(whole.control_ints, np.int32))
                more.append(own(flags.READ_WRITE, control, False))
        return Memory(arena, [None if p is None else p.buffer for p in places], more, blocks)

    def _buffer(self, access: int, values: Bytes, is_checked: bool) -> cl.Buffer:
        """Return a buffer of these values; `is_checked`: it was read back, and holds them."""
        made = self._device.buffer("memory", access, values.nbytes)
        # Touching every byte makes a lazy driver allocate now, not within a run.
        if is_checked:
            write(self._queue, made, 0, values, np.empty_like(values))
        else:
            cl.enqueue_copy(self._queue, made, values)
        return made

    def _run_once(self, trial: Trial, ready: ReadyKernel) -> None:
        """Run a kernel by itself."""
        with self._trials.of(trial), self._device.calling(f"running {ready[0].function_name}"):
            cl.enqueue_nd_range_kernel(self._queue, *ready)
            self._queue.finish()

    def run(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        """Run once, from host bytes to host bytes.

        Shapes:
            one uint8 array a program input or output, as long as the tensor's bytes times the
            batch, picture after picture
        Raises:
            DeviceError: a size that does not fit, or a failed OpenCL call.
        """
        self._checked(inputs, outputs).run(inputs, outputs)

    def submit(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        """Enqueue a run; the arrays are the device's until `transfer.wait`. Raises as `run`."""
        self._checked(inputs, outputs).submit(inputs, outputs)

    @property
    def transfer(self) -> Copied:
        """What runs it, with its memory and kernels; raises DeviceError where it was closed."""
        if self._transfer is None:
            raise DeviceError("the delegate was closed")
        if self._arena is not None and self._arena.buffer is not self._transfer.arena:
            self._move(self._arena.buffer)
        return self._transfer

    def _move(self, arena: cl.Buffer) -> None:
        """Go on in another arena, as the one that it has was too small for another executor."""
        old, self._memory = self._transfer, self._memory._replace(arena=arena)
        self._transfer = self._made(self._memory)
        if old is not None:
            old.close()

    def _checked(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> Copied:
        transfer = self.transfer
        layout = transfer.layout
        if self._sized[0] is inputs and self._sized[1] is outputs:
            return transfer
        for given, (_, size) in zip(
            (*inputs, *outputs), (*layout.inputs, *layout.outputs), strict=True
        ):
            if given.nbytes != size * self.batch:
                raise DeviceError(f"{given.nbytes} bytes given, {size * self.batch} planned")
        if isinstance(inputs, tuple) and isinstance(outputs, tuple):  # they stay what they are
            self._sized = inputs, outputs
        return transfer

    def repeat(self, count: int, wait: bool = False) -> float:
        """Run the launches alone `count` times; return one time's seconds on this clock.

        `wait`: for each time's end, as a run does.

        Raises:
            DeviceError: a failed OpenCL call.
        """
        transfer = self.transfer
        if transfer.link is not None:
            transfer.link.leave()
        with self.trying(), self._device.calling("running"):
            if transfer.link is not None:
                transfer.link.store()
            self._queue.finish()
            begin = time.perf_counter()
            for _ in range(count):
                transfer.enqueue()
                if wait:
                    self._queue.finish()
            self._queue.finish()
        return (time.perf_counter() - begin) / count

    def trying(self) -> AbstractContextManager[object]:
        """Return the context of a run that may end the process, of which a child tells first."""
        return self._trials.of(self.trial)

    def guarded(self) -> AbstractContextManager[object]:
        """Return a context behind a run in which an error loses the state, as within the run."""
        return self.transfer.calling("running")

    def steps(self) -> Steps:
        """Return what runs the program a node at a time.

        Raises:
            DelegateError: its launches are not apart, or it runs several pictures at once.
        """
        transfer = self.transfer
        if self.form != ONE_BY_ONE or self.batch != 1:
            raise DelegateError("its launches are not apart: make the delegate with profiling=True")
        return Steps(self.program, transfer, self.inputs, self.outputs)

    def profile(self) -> list[LaunchTime]:
        """Return the last run's launches; the device must have been opened for profiling."""
        if self._transfer is None or not self._transfer.events:
            return []  # it did not run yet
        return self.steps().times(self._transfer.events)

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def leave(self) -> Taken:
        """Close it, but for its constants, which are the caller's; raises DeviceError if closed."""
        if (constants := self._constants) is None:
            raise DeviceError("the delegate was closed")
        self._constants = None
        self.close()
        return constants

    def close(self) -> None:
        """Give the device's memory back; a second call does nothing."""
        if self._transfer is not None:
            if self._transfer.link is not None and self._arena is None:
                self._transfer.link.leave()
            self._transfer.close()
        if self._constants is not None:
            self._constants.close()
        self._transfer = self._constants = None
        buffers, self._buffers = self._buffers, []
        for buffer in buffers:
            buffer.release()
