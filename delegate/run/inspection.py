# SPDX-License-Identifier: Apache-2.0
"""Runs a plan node by node with results, or phase by phase with timings."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from delegate.errors import DeviceError
from delegate.graph.ir import Tensor
from delegate.graph.packed import BITS, packed, unpacked
from delegate.launch import size_bytes
from delegate.plan.layout import Bytes, as_bytes
from delegate.plan.record import LaunchPlan, PartitionPlan
from delegate.run.copy_strategies import CopyStrategy

_INLINED = "inlined"  # the alternative of a node that is replaced by its inlined subgraph
Values = Mapping[int, NDArray[Any]]  # tensor index -> its values, in its shape


@dataclass(frozen=True, slots=True)
class LaunchSize:
    """One launch of a node: its kernel, build options and sizes."""

    file: str  # stem of the .cl file
    kernel: str
    global_size: int  # work-items
    local_size: int  # work-items of a work-group
    macros: tuple[str, ...]  # "NAME=VALUE", its build defines
    params: tuple[str, ...]  # "name=value", the scalars of its parameter block
    microseconds: float  # on the host's clock, from the call until the wait returns


@dataclass(frozen=True, slots=True)
class LaunchTime:
    """One launch of a profiled run."""

    node: int  # TFLite's node index
    op: str
    kernel: str
    alternative: str
    global_size: int  # work-items
    microseconds: float  # on the device, from start to end of the event
    local_size: int = 0  # work-items of a work-group
    # Queued, submitted, started and ended, by the device's clock.
    clock_ns: tuple[int, int, int, int] = (0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class PartitionRun:
    """One run of a partition with its phases serialised; times of the host's clock in ns.

    TFLite calls at `called`. The inputs are uploaded from `begun` to `uploaded`. The last launch is
    enqueued at `enqueued`, and the device is done at `computed`. The outputs are downloaded until
    `ended`, and TFLite continues at `returned`.
    """

    called: int
    begun: int
    uploaded: int
    enqueued: int
    computed: int
    ended: int
    returned: int
    calls: tuple[tuple[int, int], ...]  # of each launch: before and after enqueueing it
    launches: tuple[LaunchTime, ...]
    live_bytes: tuple[int, ...]  # at each launch: of all tensors needed then or later
    up_bytes: int
    down_bytes: int
    arena_bytes: int
    constant_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class StepRun:
    """One node of a program that was run node by node."""

    node: int  # TFLite's node index
    op: str  # TFLite's name, or the delegate's own for a fused node
    alternative: str
    inputs: tuple[int, ...]  # indices of the computed tensors it read
    launches: tuple[LaunchSize, ...]  # none: the output aliases the input, or is constant
    values: Values  # what it computed


@dataclass(frozen=True, slots=True, eq=False)
class PlanInspector:
    """A plan of batch size 1, and the means to run it in parts."""

    plan: PartitionPlan
    strategy: CopyStrategy
    inputs: Sequence[Tensor]  # the plan's run inputs
    outputs: Sequence[Tensor]

    def run(
        self,
        inputs: Sequence[Bytes],
        outputs: Sequence[Bytes],
        wanted: Collection[Tensor],
        given: Values | None = None,
    ) -> list[StepRun]:
        """Run each node by itself and wait for it; return the results of each in `wanted`.

        `inputs`, `outputs`: as for Executor.run. `given`: values that nodes read in place of those
        computed by earlier nodes; the state is then left unchanged.

        Raises:
            DeviceError: a failed OpenCL call.
        """
        known, kernels = given or {}, iter(self.strategy.kernels)
        # A plan that a child made has tensors of its own.
        keys = {_key(tensor) for tensor in wanted}
        made = []
        binding = self.strategy.binding
        with self.strategy.calling("running a node at a time"):
            if binding is not None:
                binding.restore()
                if given is not None:
                    binding.evict()
            for tensor, values in zip(self.inputs, inputs, strict=True):
                if tensor.index not in known:
                    self._write(tensor, values)
            self.strategy.queue.finish()
            for step in self.plan.steps:
                for tensor in step.reads:
                    if tensor.index in known:
                        values = known[tensor.index]
                        if tensor.dtype in BITS:
                            values = packed(values, tensor.dtype)
                        self._write(tensor, as_bytes(values))
                sizes = [self._run_alone(each, *next(kernels)) for each in step.launches]
                made.append(
                    StepRun(
                        step.node_index,
                        step.op,
                        step.alternative,
                        tuple(tensor.index for tensor in step.reads if tensor.index >= 0),
                        tuple(sizes),
                        {t.index: self._values(t) for t in step.writes if _key(t) in keys},
                    )
                )
            if binding is not None and given is None:
                binding.save()
            for tensor, result in zip(self.outputs, outputs, strict=True):
                np.copyto(result, self._content(tensor))
        return made

    def run_timed(
        self, inputs: Sequence[Bytes], outputs: Sequence[Bytes], called: int
    ) -> PartitionRun:
        """Run once with the phases serialised; `called`: the time of TFLite's call.

        Raises:
            DeviceError: a failed OpenCL call.
        """
        strategy, clock = self.strategy, time.perf_counter_ns
        calls, events = [], []
        with strategy.calling("running"):
            begun = clock()
            strategy.write_inputs(inputs)
            if strategy.binding is not None:
                strategy.binding.restore()
            strategy.queue.finish()
            uploaded = clock()
            for kernel in strategy.kernels:
                before = clock()
                events.append(cl.enqueue_nd_range_kernel(strategy.queue, *kernel))
                calls.append((before, clock()))
            strategy.queue.flush()
            enqueued = clock()
            self._wait()
            if strategy.binding is not None:
                strategy.binding.save()
            computed = clock()
            strategy.read_outputs(outputs)
            ended = clock()
        memory = strategy.memory
        return PartitionRun(
            called=called,
            begun=begun,
            uploaded=uploaded,
            enqueued=enqueued,
            computed=computed,
            ended=ended,
            returned=ended,
            calls=tuple(calls),
            launches=tuple(self.times(events)),
            live_bytes=tuple(each.live_bytes for step in self.plan.steps for each in step.launches),
            up_bytes=sum(size for _, size in memory.inputs),
            down_bytes=sum(size for _, size in memory.outputs),
            arena_bytes=memory.arena_bytes,
            constant_bytes=memory.constant_bytes,
        )

    def times(self, events: Sequence[cl.Event]) -> list[LaunchTime]:
        """Return the launch times of a run's events: zeros where they are invalid."""
        rows = []
        steps = [(step, launch) for step in self.plan.steps for launch in step.launches]
        every = zip(steps, self.strategy.kernels, events, strict=True)
        for (step, launch), (_, (items,), (group,)), event in every:
            clock = _clock_of(event)
            took, name = (clock[3] - clock[2]) / 1000, step.alternative
            own = step.node_index, step.op, launch.kernel, name, items, took, group, clock
            rows.append(LaunchTime(*own))
        return rows

    def _run_alone(
        self, launch: LaunchPlan, kernel: cl.Kernel, items: tuple[int], group: tuple[int]
    ) -> LaunchSize:
        """Run a kernel, wait for it, and return its sizes and time."""
        begin = time.perf_counter()
        cl.enqueue_nd_range_kernel(self.strategy.queue, kernel, items, group)
        self._wait()
        microseconds = (time.perf_counter() - begin) * 1e6
        return LaunchSize(
            launch.file,
            launch.kernel,
            items[0],
            group[0],
            launch.macros,
            launch.params,
            microseconds,
        )

    def _wait(self) -> None:
        """Wait for all launches.

        NOTE: rusticl 22.3 on llvmpipe returns from clFinish while kernels run; a read does wait.
        """
        self.strategy.queue.finish()
        cl.enqueue_copy(self.strategy.queue, np.empty(4, np.uint8), self.strategy.arena)

    def _write(self, tensor: Tensor, values: Bytes) -> None:
        strategy, offset = self.strategy, self.strategy.memory.offsets[tensor]
        if values.nbytes != size_bytes(tensor):
            raise DeviceError(
                f"tensor {tensor.index} is given {values.nbytes} bytes of another size"
            )
        if values.nbytes:
            cl.enqueue_copy(strategy.queue, strategy.arena, values, dst_offset=offset)

    def _content(self, tensor: Tensor) -> Bytes:
        strategy, offset = self.strategy, self.strategy.memory.offsets[tensor]
        content = np.empty(size_bytes(tensor), np.uint8)
        if content.nbytes:
            cl.enqueue_copy(strategy.queue, content, strategy.arena, src_offset=offset)
        return content

    def _values(self, tensor: Tensor) -> NDArray[Any]:
        """Return a tensor's values as TFLite's Interpreter does: each int4 as an int8."""
        content = self._content(tensor)
        if tensor.dtype in BITS:
            return unpacked(content, tensor.shape, tensor.dtype)
        return content.view(tensor.dtype).reshape(tensor.shape)


def _clock_of(event: cl.Event) -> tuple[int, int, int, int]:
    """Return the four times of a launch in ns of the device's clock; zeros if invalid."""
    try:
        all_times = event.profile
        clock = (all_times.queued, all_times.submit, all_times.start, all_times.end)
    except cl.Error:
        clock = (0, 0, 0, 0)
    return clock if clock[2] <= clock[3] else (0, 0, 0, 0)


def by_node(steps: Sequence[StepRun], inlined: Mapping[int, str]) -> list[StepRun]:
    """Return the steps, those of an inlined node merged into one."""
    rows: list[StepRun] = []
    for step in steps:
        op = inlined.get(step.node)
        if op is not None and rows and rows[-1].node == step.node:
            before = rows.pop()
            step = replace(
                step,
                inputs=tuple(dict.fromkeys((*before.inputs, *step.inputs))),
                launches=(*before.launches, *step.launches),
                values={**before.values, **step.values},
            )
        rows.append(step if op is None else replace(step, op=op, alternative=_INLINED))
    return rows


def of_tflite(launch: LaunchTime, inlined: Mapping[int, str]) -> LaunchTime:
    """Return a launch attributed to TFLite's node, also if that node was inlined."""
    op = inlined.get(launch.node)
    return launch if op is None else replace(launch, op=op, alternative=_INLINED)


def _key(tensor: Tensor) -> tuple[int, str, tuple[int, ...]]:
    """Return what a tensor of a plan has in common with the graph's."""
    return tensor.index, tensor.dtype, tensor.shape
