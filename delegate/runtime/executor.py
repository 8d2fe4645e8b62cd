# SPDX-License-Identifier: Apache-2.0
"""Runs one program: constants and arguments go up once; a run copies in, launches, copies out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np
import pyopencl as cl

from delegate import progress
from delegate.errors import DelegateError, DeviceError
from delegate.launch import Program
from delegate.runtime.device import Device
from delegate.runtime.inspection import LaunchTime, Steps
from delegate.runtime.kernels import Kernels
from delegate.runtime.layout import Bytes, as_bytes, layout_of
from delegate.runtime.persistent import Persistent, persistent_kernel
from delegate.runtime.transfers import COPIED, Copied, ReadyKernel, transfer_for
from delegate.sandbox.trials import EXECUTOR, Trial

# How a program's launches reach the device: each by a call, or as the tiles of one launch.
ONE_BY_ONE, PERSISTENT = FORMS = ("one by one", "persistent")
_LARGEST_BYTES = 2**31 - 1  # kernels' offsets are ints


class Executor:
    """A program with its memory and kernels on a device.

    Attributes:
        program, batch; form: one of FORMS.
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
        sibling: Executor | None = None,
        transfer: str = COPIED,
    ) -> None:
        """Take memory for `batch` pictures at once and upload what does not change.

        `form`: one of FORMS; where the device cannot do it, launches go one by one. `sibling`: an
        executor of the same program and batch, whose constants this one shares; each has a queue
        of its own. `transfer`: how bytes cross, one of TRANSFERS.
        """
        self.program = program
        self.batch = batch
        self._device = device
        self._trials = kernels.trials
        self._layout = layout = layout_of(program, batch)
        for what, size in (("arena", layout.arena_bytes), ("constants", layout.constant_bytes)):
            device.check_buffer(what, size, _LARGEST_BYTES)
        launches, whole = program.launches, None
        if form == PERSISTENT and len(launches) > 1:
            whole = persistent_kernel(device, kernels, launches, layout.firsts, batch)
        runs = kernels.runs(launches, batch) if whole is None else [whole.trial]
        facts = runs, form, transfer, layout.arena_bytes, layout.inputs
        self.trial = Trial.of(EXECUTOR, *facts)
        self._buffers: list[cl.Buffer] = []
        self._constants: cl.Buffer | None = None if sibling is None else sibling._constants
        self._transfer: Copied | None = None
        # The arrays of the last run, whose sizes were found to be right.
        self._sized: tuple[Sequence[Bytes] | None, Sequence[Bytes] | None] = (None, None)
        self._queue = device.queue if sibling is None else device.another_queue()
        try:
            with kernels.trials.of(self.trial):
                with progress.phase("upload"):
                    arguments = self._upload(whole)
                ready = self._ready_kernels(kernels, whole, arguments)
                for run, each in zip(runs, ready, strict=True):
                    if kernels.trials.is_due(run):
                        self._run_once(run, each)
                kind = transfer_for(transfer, batch, device.shares_memory)
                self._transfer = kind(device, self._queue, arguments[0], layout, ready)
        except BaseException:
            self.close()
            raise
        self.form = PERSISTENT if whole is not None else ONE_BY_ONE

    def _upload(self, whole: Persistent | None) -> list[cl.Buffer]:
        """Fill every buffer; return those that all kernels take."""
        flags, layout = cl.mem_flags, self._layout

        def own(access: int, values: Bytes, is_checked: bool) -> cl.Buffer:
            self._buffers.append(self._buffer(access, values, is_checked))
            return self._buffers[-1]

        kib = (layout.arena_bytes + layout.constant_bytes) >> 10
        with self._device.calling(f"allocating {kib} KiB"):
            arena = own(flags.READ_WRITE, np.zeros(layout.arena_bytes, np.uint8), False)
            # Kernels address memory by constants and params: wrong ones could end the process.
            if self._constants is None:
                # Not among the buffers to release: siblings may still read it.
                self._constants = self._buffer(flags.READ_ONLY, layout.packed_constants(), True)
            params = [*layout.blocks, *(() if whole is None else whole.table)]
            blocks = own(flags.READ_ONLY, as_bytes(np.array(params or [0], np.int32)), True)
            arguments = [arena, self._constants, blocks]
            for tensor, offset in layout.stored.items():
                data = as_bytes(np.asarray(tensor.data))
                for slot in range(layout.batch):
                    place = slot * layout.slot_bytes + offset
                    cl.enqueue_copy(self._queue, arena, data, dst_offset=place)
            if whole is not None:
                control = as_bytes(np.zeros(whole.control_ints, np.int32))
                arguments.append(own(flags.READ_WRITE, control, False))
        return arguments

    def _buffer(self, access: int, values: Bytes, is_checked: bool) -> cl.Buffer:
        """Return a buffer of these values; `is_checked`: it was read back, and holds them."""
        self._device.check_buffer("memory", values.nbytes)
        made = cl.Buffer(self._device.context.cl_context, access, values.nbytes)
        # Touching every byte makes a lazy driver allocate now, not within a run.
        cl.enqueue_copy(self._queue, made, values)
        if is_checked:
            kept = np.empty_like(values)
            cl.enqueue_copy(self._queue, kept, made)
            if not np.array_equal(kept, values):
                raise DeviceError("the device's memory does not hold what was written to it")
        return made

    def _ready_kernels(
        self, kernels: Kernels, whole: Persistent | None, arguments: list[cl.Buffer]
    ) -> list[ReadyKernel]:
        """Return the kernels in launch order; `arguments`: of `_upload`."""
        layout, device = self._layout, self._device
        if whole is not None:
            with device.calling("clSetKernelArg of the persistent kernel"):
                whole.kernel.set_args(*arguments, np.int32(len(layout.blocks)))
            return [(whole.kernel, (whole.groups * whole.group_items,), (whole.group_items,))]
        made = []
        for launch, first in zip(self.program.launches, layout.firsts, strict=True):
            kernel, group = kernels.kernel(launch)
            with device.calling(f"clSetKernelArg {launch.kernel}"):
                if kernels.is_argument(launch):
                    kernel.set_args(*arguments[:2], layout.block(first, len(launch.params)))
                else:
                    kernel.set_args(*arguments, np.int32(first))
            made.append((kernel, (launch.tiles * self.batch * group,), (group,)))
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
        return self._transfer

    def _checked(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> Copied:
        transfer, layout = self.transfer, self._layout
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
        with self.trying(), self._device.calling("running"):
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

    def steps(self) -> Steps:
        """Return what runs the program a node at a time.

        Raises:
            DelegateError: its launches are not apart, or it runs several pictures at once.
        """
        transfer = self.transfer
        if self.form != ONE_BY_ONE or self.batch != 1:
            raise DelegateError("its launches are not apart: make the delegate with profiling=True")
        return Steps(self.program, transfer)

    def profile(self) -> list[LaunchTime]:
        """Return the last run's launches; the device must have been opened for profiling."""
        if self._transfer is None or not self._transfer.events:
            return []  # it did not run yet
        return self.steps().times(self._transfer.events)

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the device's memory back; a second call does nothing."""
        if self._transfer is not None:
            self._transfer.close()
        self._transfer = self._constants = None
        buffers, self._buffers = self._buffers, []
        for buffer in buffers:
            buffer.release()
