# SPDX-License-Identifier: Apache-2.0
"""Runs a program in parts: a node at a time with its results, or its phases with their times."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from delegate.errors import DeviceError
from delegate.graph.ir import Tensor
from delegate.launch import Launch, Program, Step, size_bytes
from delegate.runtime.copied import Copied
from delegate.runtime.device import Device
from delegate.runtime.layout import Bytes, Layout, as_bytes

Values = Mapping[int, NDArray[Any]]  # tensor index -> its values, in its shape


@dataclass(frozen=True, slots=True)
class LaunchSize:
    """One launch of a node: its kernel, how that is built, and its sizes."""

    file: str  # stem of the .cl file
    kernel: str
    global_size: int  # work-items
    local_size: int  # work-items of a work-group
    macros: tuple[str, ...]  # "NAME=VALUE", what it is built with
    params: tuple[str, ...]  # "name=value", the plain numbers of its parameter block
    microseconds: float  # on the host's clock, from the call to the end of the wait for it


@dataclass(frozen=True, slots=True)
class LaunchTime:
    """One launch of a profiled run."""

    node: int  # TFLite's node index
    op: str
    kernel: str
    alternative: str
    global_size: int  # work-items
    microseconds: float  # on the device, from the event's start to its end
    local_size: int = 0  # work-items of a work-group
    # When it was put into the queue, given to the device, begun and ended, by the device's clock.
    clock_ns: tuple[int, int, int, int] = (0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class PartitionRun:
    """One run of a partition with its parts one after the other; times of the host's clock in ns.

    TFLite calls at `called`. From `begun` on the inputs go up, which ends at `uploaded`. Then each
    launch is put into the queue, the last at `enqueued`, and the device is done at `computed`. Then
    the outputs come down until `ended`, and TFLite goes on at `returned`.
    """

    called: int
    begun: int
    uploaded: int
    enqueued: int
    computed: int
    ended: int
    returned: int
    calls: tuple[tuple[int, int], ...]  # of each launch: before and after it was put into the queue
    launches: tuple[LaunchTime, ...]
    live_bytes: tuple[int, ...]  # at each launch: of all tensors that are needed then or later
    up_bytes: int
    down_bytes: int
    arena_bytes: int
    constant_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class StepRun:
    """One node of a program that ran a node at a time."""

    node: int  # TFLite's node index
    op: str  # TFLite's name, or the delegate's own for a node that a pass made of several
    alternative: str
    inputs: tuple[int, ...]  # indices of the computed tensors that it read
    launches: tuple[LaunchSize, ...]  # none: the output is the input's bytes, or a constant
    values: Values  # what it computed


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """A program of one picture, its kernels in launch order, and the arena they work in."""

    device: Device
    queue: cl.CommandQueue
    arena: cl.Buffer
    layout: Layout
    program: Program
    kernels: Sequence[tuple[cl.Kernel, tuple[int], tuple[int]]]
    transfer: Copied

    def run(
        self,
        inputs: Sequence[Bytes],
        outputs: Sequence[Bytes],
        wanted: Collection[Tensor],
        given: Values | None = None,
    ) -> list[StepRun]:
        """Run each node by itself and wait for it; return what each computed of `wanted`.

        `inputs`, `outputs`: of the program, as Executor.run takes them. `given`: what a node reads
        in the place of what the nodes before it computed, where it holds that.

        Raises:
            DeviceError: a failed OpenCL call.
        """
        kernels = iter(self.kernels)
        made = []
        with self.device.calling("running a node at a time"):
            for tensor, values in zip(self.program.inputs, inputs, strict=True):
                self._write(tensor, values)
            self.queue.finish()
            for step in self.program.steps:
                read = _read(step)
                for tensor in read if given is not None else ():
                    if given is not None and tensor.index in given:
                        self._write(tensor, as_bytes(given[tensor.index]))
                sizes = []
                for launch in step.alternative.launches:
                    kernel = next(kernels)
                    begin = time.perf_counter()
                    cl.enqueue_nd_range_kernel(self.queue, *kernel)
                    self._wait()
                    spent = (time.perf_counter() - begin) * 1e6
                    sizes.append(_size(launch, kernel[1], kernel[2], spent))
                made.append(
                    StepRun(
                        step.node_index,
                        step.op,
                        step.alternative.name,
                        tuple(tensor.index for tensor in read),
                        tuple(sizes),
                        {t.index: self._values(t) for t in _written(step) if t in wanted},
                    )
                )
            for tensor, result in zip(self.program.outputs, outputs, strict=True):
                np.copyto(result, as_bytes(self._values(tensor)))
        return made

    def timed(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes], called: int) -> PartitionRun:
        """Run once, its parts one after the other; `called`: when TFLite did.

        Raises:
            DeviceError: a failed OpenCL call.
        """
        clock = time.perf_counter_ns
        begun = clock()
        self.transfer.up(inputs)
        uploaded = clock()
        calls, events = [], []
        with self.device.calling("running"):
            for kernel in self.kernels:
                before = clock()
                events.append(cl.enqueue_nd_range_kernel(self.queue, *kernel))
                calls.append((before, clock()))
            self.queue.flush()
            enqueued = clock()
            self._wait()
        computed = clock()
        self.transfer.down(outputs)
        ended = clock()
        launches, layout = self.times(events), self.layout
        return PartitionRun(
            called,
            begun,
            uploaded,
            enqueued,
            computed,
            ended,
            ended,
            tuple(calls),
            tuple(launches),
            _live_bytes(self.program),
            sum(size for _, size in layout.inputs),
            sum(size for _, size in layout.outputs),
            layout.arena_bytes,
            layout.constant_bytes,
        )

    def times(self, events: Sequence[cl.Event]) -> list[LaunchTime]:
        """Return what the events of a run's launches tell; raises DeviceError."""
        rows = []
        steps = [(s, launch) for s in self.program.steps for launch in s.alternative.launches]
        for (step, launch), (_, global_size, local_size), event in zip(
            steps, self.kernels, events, strict=True
        ):
            with self.device.calling("clGetEventProfilingInfo"):
                times = event.profile
                clock = (times.queued, times.submit, times.start, times.end)
            rows.append(
                LaunchTime(
                    step.node_index,
                    step.op,
                    launch.kernel,
                    step.alternative.name,
                    global_size[0],
                    (clock[3] - clock[2]) / 1000,
                    local_size[0],
                    clock,
                )
            )
        return rows

    def _wait(self) -> None:
        """Wait for the end of all launches.

        NOTE: rusticl 22.3 on llvmpipe returns from clFinish while kernels run; a read waits.
        """
        self.queue.finish()
        cl.enqueue_copy(self.queue, np.empty(4, np.uint8), self.arena)

    def _write(self, tensor: Tensor, values: Bytes) -> None:
        if values.nbytes != size_bytes(tensor):
            raise DeviceError(
                f"tensor {tensor.index} is given {values.nbytes} bytes of another size"
            )
        cl.enqueue_copy(self.queue, self.arena, values, dst_offset=self.layout.offsets[tensor])

    def _values(self, tensor: Tensor) -> NDArray[Any]:
        content = np.empty(size_bytes(tensor), np.uint8)
        cl.enqueue_copy(self.queue, content, self.arena, src_offset=self.layout.offsets[tensor])
        return content.view(tensor.dtype).reshape(tensor.shape)


def _live_bytes(program: Program) -> tuple[int, ...]:
    """Return for each launch the bytes of the tensors that were made and are still read."""
    first, last = dict.fromkeys(program.inputs, 0), dict.fromkeys(program.inputs, 0)
    root: dict[Tensor, Tensor] = {}  # a view's bytes are its source's
    number = 0
    for step in program.steps:
        if step.alternative.view is not None:
            source, result = step.alternative.view
            root[result] = root.get(source, source)
        for launch in step.alternative.launches:
            for tensor in (root.get(t, t) for t in (*launch.reads, *launch.writes)):
                first.setdefault(tensor, number)
                last[tensor] = number
            number += 1
    last |= {root.get(tensor, tensor): number for tensor in program.outputs}
    return tuple(
        sum(size_bytes(t) for t, begin in first.items() if begin <= place <= last[t])
        for place in range(number)
    )


def _written(step: Step) -> list[Tensor]:
    view = step.alternative.view
    written = [t for launch in step.alternative.launches for t in launch.writes]
    return list(dict.fromkeys([*written, *(() if view is None else view[1:])]))


def _read(step: Step) -> list[Tensor]:
    """Return the computed tensors that a step reads, and no other step of its own wrote."""
    view = step.alternative.view
    read = [t for launch in step.alternative.launches for t in launch.reads]
    own = set(_written(step))
    every = dict.fromkeys([*(() if view is None else view[:1]), *read])
    return [t for t in every if t.data is None and t not in own]


def _size(launch: Launch, whole: tuple[int], group: tuple[int], microseconds: float) -> LaunchSize:
    return LaunchSize(
        launch.file,
        launch.kernel,
        whole[0],
        group[0],
        tuple(f"{name}={value}" for name, value in launch.defines.items()),
        tuple(f"{name}={v}" for name, v in launch.params.items() if isinstance(v, int)),
        microseconds,
    )
