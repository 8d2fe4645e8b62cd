# SPDX-License-Identifier: Apache-2.0
"""A partition as a TFLite kernel: prepare, invoke, free."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from delegate.errors import REFUSALS, DelegateError, DeviceError, NotRestarted
from delegate.graph.partition import Partition
from delegate.guard.isolation.backend import AnyExecutor
from delegate.host.mixed import MixedPartition
from delegate.host.tflite.callbacks import Shapes
from delegate.host.variable_tensors import VariableTensors
from delegate.launch import NodeAlternatives, size_bytes
from delegate.plan.key import share_plan
from delegate.plan.layout import as_bytes
from delegate.plan.record import PartitionPlan
from delegate.run.inspection import (
    LaunchTime,
    PartitionRun,
    StepRun,
    Values,
    by_node,
    of_tflite,
)
from delegate.run.range_watch import RangeWatch
from delegate.run.requirements import Requirements, requirements_of

Arrays = Sequence[NDArray[np.uint8]]
# Replaces an executor's own `run`, and returns records of it.
RunMethod = Callable[[AnyExecutor, Arrays, Arrays], Sequence[Any]]


class PartitionBuilder(Protocol):
    """What a kernel requires of its claim."""

    tensors: VariableTensors

    def executor(self, partition: Partition) -> AnyExecutor:
        """Compile a partition and allocate its memory; raises Unsupported or DeviceError."""

    def fp32_executor(self, partition: Partition) -> AnyExecutor:
        """Return a float32 executor; raises DelegateError."""

    def resized_executor(self, partition: Partition) -> AnyExecutor:
        """As `executor`, at new shapes."""

    def mixed(self, partition: Partition) -> MixedPartition:
        """Return a partition split in parts if it does not fit; raises as `resized_executor`."""

    def on_tflite(self, partition: Partition, why: NotRestarted) -> MixedPartition:
        """Return one on TFLite's kernels, as the device is lost; raises NotRestarted."""

    def report(self, partition: Partition, left: Mapping[int, str]) -> None:
        """Update the verdicts of a partition; `left`: nodes on TFLite's kernels, and why."""

    def repartition(self, partition: Partition, shapes: Shapes) -> Partition:
        """Return the same nodes at other shapes."""


class PartitionKernel:
    """A partition as a TFLite kernel. Other threads may close it at any time."""

    def __init__(
        self,
        claim: PartitionBuilder,
        partition: Partition,
        executor: AnyExecutor | None,
        lock: threading.RLock | None = None,
    ) -> None:
        """`lock`: shared by kernels that must not run concurrently; None: a lock of its own."""
        self._claim, self._partition = claim, partition
        self._runner: AnyExecutor | MixedPartition | None = executor
        self._is_closed = False
        # Reentrant: a signal handler may close what its thread is running.
        self._lock = lock or threading.RLock()
        self._keeps = lock is not None
        self._is_busy = False
        self._run_method: RunMethod | None = None
        self._rows: list[Any] = []  # records of runs by `_run_method`
        self._requirements = _requirements_of(executor)
        self._tensors = claim.tensors
        self._watch = self._new_watch()

    @property
    def inputs(self) -> Sequence[int]:
        """The inputs at the present shapes, then all tensors that a failed run may corrupt."""
        return [*self._tensors.tflite_indices(self._partition.inputs), *self._tensors.indices]

    @property
    def outputs(self) -> Sequence[int]:
        """The outputs at the present shapes."""
        return self._tensors.tflite_indices(self._partition.outputs)

    def _new_watch(self) -> RangeWatch[AnyExecutor]:
        is_repeatable = not (self._keeps or self._tensors.indices)
        make = partial(self._claim.fp32_executor, self._partition) if is_repeatable else None
        return RangeWatch(make)

    def prepare(self, shapes: Shapes) -> Shapes:
        """Recompile if shapes or values have changed; return the outputs' shapes."""
        current = self._claim.repartition(self._partition, shapes)
        same = share_plan(current, self._partition)
        with self._opened():
            if self._runner is None or not same:
                self._renew(current, same)
        return {t.index: t.shape for t in self._partition.outputs if not t.state_name}

    def _renew(self, partition: Partition, are_same: bool) -> None:
        """Replace the executor; the old one is closed, and common constants stay on the device.

        `are_same`: the shapes are those of the verdicts, or were used before.
        """
        claim, old = self._claim, self._runner
        self._runner, self._partition = None, partition
        self._watch.close()
        self._watch = self._new_watch()
        with contextlib.ExitStack() as kept:
            if isinstance(old, AnyExecutor):
                kept.callback(old.constants().close)
            if old is not None:
                old.close()
            try:
                self._runner = (claim.executor if are_same else claim.resized_executor)(partition)
            except REFUSALS:
                kept.close()  # memory may not suffice for both
                self._runner = claim.mixed(partition)
        runner = self._runner
        claim.report(partition, runner.on_tflite if isinstance(runner, MixedPartition) else {})
        self._requirements = _requirements_of(self._runner)

    def invoke(self, inputs: Arrays, outputs: Arrays) -> None:
        """Run the partition once."""
        with self._lock:
            self._begin()
            try:
                made = self._runner
                if made is None:  # TFLite does not run what it failed to prepare
                    raise DeviceError("the delegate was closed")
                if self._tensors.indices:
                    self._run_with_variables(made, inputs, outputs)
                else:
                    self._run(made, inputs, outputs)
            finally:
                self._end()

    def _run(self, made: AnyExecutor | MixedPartition, inputs: Arrays, outputs: Arrays) -> None:
        try:
            if isinstance(made, MixedPartition):
                made.run(inputs, outputs, self._on_device)
            else:
                self._on_device(made, inputs, outputs)
        except NotRestarted as error:
            self._runner, self._requirements = self._claim.on_tflite(self._partition, error), None
            made.close()
            self._runner.run(inputs, outputs, self._on_device)

    def _on_device(self, executor: AnyExecutor, inputs: Arrays, outputs: Arrays) -> None:
        checks = self._requirements if executor is self._runner else _requirements_of(executor)
        if checks is not None:
            checks.require_inputs(inputs)
            outputs = checks.with_watched(outputs)
        if self._run_method is None:
            executor.run(inputs, outputs)
            if executor is self._runner:  # not a part of a mixed partition
                executor = self._in_range(executor, inputs, outputs)
        else:
            self._rows += self._run_method(executor, inputs, outputs)
        if checks is not None:
            with executor.guard():
                checks.require_outputs(outputs)

    def _in_range(self, executor: AnyExecutor, inputs: Arrays, outputs: Arrays) -> AnyExecutor:
        """Return the executor for later runs: the float32 one if this run overflowed fp16."""
        after = self._watch.checked(executor, inputs, outputs)
        if after is not executor:
            self._runner, self._requirements = after, _requirements_of(after)
            executor.close()
        return after

    def _run_with_variables(
        self, made: AnyExecutor | MixedPartition, inputs: Arrays, outputs: Arrays
    ) -> None:
        own, memory = self._tensors.split(inputs)
        self._tensors.require(memory)
        try:
            self._run(made, own, outputs)
        except BaseException as error:  # including Ctrl-C
            self._tensors.lose(memory, str(error) or type(error).__name__)
            raise

    def run_as(self, way: RunMethod | None) -> list[Any]:
        """Run this way from now on, None: as usual; return the records of earlier runs."""
        told, self._rows = self._rows, []
        self._run_method = way
        return told

    def by_nodes(self, executor: AnyExecutor, inputs: Arrays, outputs: Arrays) -> list[StepRun]:
        """Run node by node."""
        rows = executor.inspector().run(inputs, outputs, self._partition.computed)
        return by_node(rows, self._partition.inlined)

    def by_parts(
        self, executor: AnyExecutor, inputs: Arrays, outputs: Arrays
    ) -> list[PartitionRun]:
        """Run once, with the time of each phase."""
        called = time.perf_counter_ns()
        made = executor.inspector().run_timed(inputs, outputs, called)
        launches = tuple(of_tflite(each, self._partition.inlined) for each in made.launches)
        return [replace(made, returned=time.perf_counter_ns(), launches=launches)]

    def isolated(self, values: Values) -> list[StepRun]:
        """Run node by node, each on these input values.

        Raises:
            DelegateError: `values` lacks an input of the partition, or the run fails.
        """
        with self._opened():
            rows = []
            for executor in self._executors():
                read = [self._tensors.index(tensor) for tensor in executor.inputs]
                if missing := [index for index in read if index not in values]:
                    raise DelegateError(f"no values are given for tensor {missing[0]}")
                outputs = [np.empty(size_bytes(tensor), np.uint8) for tensor in executor.outputs]
                inputs, wanted = [as_bytes(values[i]) for i in read], self._partition.computed
                rows += executor.inspector().run(inputs, outputs, wanted, values)
            return by_node(rows, self._partition.inlined)

    def alternatives(self) -> list[NodeAlternatives]:
        """Return the alternatives of the nodes, in execution order."""
        return [
            NodeAlternatives(step.node_index, step.op, step.names, step.alternative)
            for executor in self._executors()
            for step in executor.plan.steps
        ]

    def plans(self) -> list[PartitionPlan]:
        """Return the plans of its executors."""
        return [executor.plan for executor in self._executors()]

    def profile(self) -> list[LaunchTime]:
        """Return the last run's launches."""
        with self._lock:
            rows = [row for executor in self._executors() for row in executor.profile()]
        return [of_tflite(row, self._partition.inlined) for row in rows]

    def _executors(self) -> list[AnyExecutor]:
        made = self._runner
        if isinstance(made, MixedPartition):
            return made.executors
        return [] if made is None else [made]

    def close(self) -> None:
        """Wait for a run in progress, then free the device memory."""
        self._is_closed = True
        with self._lock:
            if not self._is_busy:
                self._release()

    @contextlib.contextmanager
    def _opened(self) -> Iterator[None]:
        with self._lock:
            self._begin()
            try:
                yield
            finally:
                self._end()

    # NOTE: `invoke` calls these itself: a generator costs measurable time in tiny networks.
    def _begin(self) -> None:
        """Hold the memory until `_end`; raises DeviceError if it was freed."""
        if self._is_closed:
            raise DeviceError("the delegate was closed")
        self._is_busy = True

    def _end(self) -> None:
        self._is_busy = False
        if self._is_closed:
            self._release()

    def _release(self) -> None:
        self._watch.close()
        if self._runner is not None:
            self._runner.close()
            self._runner = None


def _requirements_of(executor: AnyExecutor | MixedPartition | None) -> Requirements | None:
    if not isinstance(executor, AnyExecutor):
        return None
    return requirements_of(executor.plan, executor.inputs, executor.outputs)
