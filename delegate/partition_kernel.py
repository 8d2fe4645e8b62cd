# SPDX-License-Identifier: Apache-2.0
"""A partition in TFLite's hands: what it prepares, runs and frees."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from delegate.errors import DelegateError, DeviceError, TooLarge
from delegate.graph.partition import Partition, given
from delegate.launch import NodeAlternatives, size_bytes
from delegate.requirements import Requirements, requirements_of
from delegate.runtime.executor import Executor
from delegate.runtime.inspection import LaunchTime, PartitionRun, StepRun, Values
from delegate.runtime.layout import as_bytes
from delegate.tflite.callbacks import Shapes
from delegate.variable_tensors import VariableTensors

Arrays = Sequence[NDArray[np.uint8]]
# What runs in the place of an executor's own `run`, and tells of it.
Way = Callable[[Executor, Arrays, Arrays], Sequence[Any]]


class Maker(Protocol):
    """What a kernel asks of the claim that it is of."""

    tensors: VariableTensors

    def executor(self, partition: Partition) -> Executor:
        """Compile a partition and take its memory; raises Unsupported or DeviceError."""

    def repartition(self, partition: Partition, shapes: Shapes) -> Partition:
        """Return the same nodes at other shapes."""


class PartitionKernel:
    """A partition in TFLite's hands. Threads may close it at any time."""

    def __init__(
        self,
        claim: Maker,
        partition: Partition,
        executor: Executor | None,
        lock: threading.RLock | None = None,
    ) -> None:
        """`lock`: of the kernels of which one runs at a time; None: it runs beside others."""
        self._claim = claim
        self._partition = partition
        self._executor = executor
        self._is_closed = False
        # One that a thread may take again: a signal's handler may close what its thread runs.
        self._lock = lock or threading.RLock()
        self._is_busy = False
        self._way: Way | None = None
        self._told: list[Any] = []  # by runs of this way
        self._requirements = _requirements_of(executor)
        self._tensors = tensors = claim.tensors
        inputs, outputs = (
            [tensors.index(t) for t in every if t.is_variable or not t.kept]
            for every in (partition.inputs, partition.outputs)
        )
        # Behind those of the executor all that a run that fails may leave half made.
        self._given = len(inputs)
        self.inputs: Sequence[int] = [*inputs, *tensors.indices]
        self.outputs: Sequence[int] = outputs

    def prepare(self, shapes: Shapes) -> Shapes:
        """Compile again where shapes or sizes have changed; return the outputs' shapes."""
        current = self._claim.repartition(self._partition, shapes)
        same = given(current) == given(self._partition)
        with self._opened():
            if self._executor is None or not same:
                self._renew(current)
        return {t.index: t.shape for t in self._partition.outputs if not t.kept}

    def _renew(self, partition: Partition) -> None:
        """Make the executor; the one before is closed, and what both have of constants stays."""
        old, self._executor, self._partition = self._executor, None, partition
        with contextlib.ExitStack() as kept:
            if old is not None:
                kept.callback(old.leave().close)
            try:
                self._executor = self._claim.executor(partition)
            except TooLarge:
                kept.close()  # perhaps there was no room beside them
                self._executor = self._claim.executor(partition)
        self._requirements = _requirements_of(self._executor)

    def invoke(self, inputs: Arrays, outputs: Arrays) -> None:
        """Run the partition once."""
        with self._lock:
            self._begin()
            try:
                if self._executor is None:  # TFLite does not run what it could not prepare
                    raise DeviceError("the delegate was closed")
                if self._tensors.indices:
                    self._run_with_variables(self._executor, inputs, outputs)
                else:
                    self._run(self._executor, inputs, outputs)
            finally:
                self._end()

    def _run(self, executor: Executor, inputs: Arrays, outputs: Arrays) -> None:
        requirements = self._requirements
        if requirements is not None:
            requirements.require_inputs(inputs)
            outputs = requirements.with_watched(outputs)
        if self._way is None:
            executor.run(inputs, outputs)
        else:
            self._told += self._way(executor, inputs, outputs)
        if requirements is not None:
            with executor.guarded():
                requirements.require_outputs(outputs)

    def _run_with_variables(self, executor: Executor, inputs: Arrays, outputs: Arrays) -> None:
        memory = inputs[self._given :]
        self._tensors.require(memory)
        try:
            self._run(executor, inputs[: self._given], outputs)
        except BaseException as error:  # Ctrl-C, too
            self._tensors.lose(memory, str(error) or type(error).__name__)
            raise

    def run_as(self, way: Way | None) -> list[Any]:
        """Run this way from here on, None: as usual; return what runs of the way before told."""
        told, self._told = self._told, []
        self._way = way
        return told

    def by_nodes(self, executor: Executor, inputs: Arrays, outputs: Arrays) -> list[StepRun]:
        """Run a node at a time."""
        return executor.steps().run(inputs, outputs, self._partition.computed)

    def by_parts(self, executor: Executor, inputs: Arrays, outputs: Arrays) -> list[PartitionRun]:
        """Run once, each part with its time."""
        called = time.perf_counter_ns()
        made = executor.steps().timed(inputs, outputs, called)
        return [replace(made, returned=time.perf_counter_ns())]

    def isolated(self, values: Values) -> list[StepRun]:
        """Run a node at a time, each on these values of what it reads.

        Raises:
            DelegateError: `values` lacks an input of the partition, or the run fails.
        """
        with self._opened():
            missing = [i for i in self.inputs[: self._given] if i not in values]
            if missing or self._executor is None:
                raise DelegateError(f"no values are given for tensor {(*missing, '?')[0]}")
            executor = self._executor
            outputs = [np.empty(size_bytes(tensor), np.uint8) for tensor in executor.outputs]
            inputs = [as_bytes(values[index]) for index in self.inputs[: self._given]]
            return executor.steps().run(inputs, outputs, self._partition.computed, values)

    def alternatives(self) -> list[NodeAlternatives]:
        """Return the alternatives of the nodes, in execution order."""
        executor = self._executor
        return [
            NodeAlternatives(step.node_index, step.op, step.names, step.alternative.name)
            for step in (() if executor is None else executor.program.steps)
        ]

    def profile(self) -> list[LaunchTime]:
        """Return the last run's launches."""
        with self._lock:
            return [] if self._executor is None else self._executor.profile()

    def close(self) -> None:
        """Wait for a run that is under way, then give the device memory back."""
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

    # NOTE: `invoke` calls these itself: networks of a few microseconds notice a generator.
    def _begin(self) -> None:
        """Keep the memory until `_end`; raises DeviceError where it was given back."""
        if self._is_closed:
            raise DeviceError("the delegate was closed")
        self._is_busy = True

    def _end(self) -> None:
        self._is_busy = False
        if self._is_closed:
            self._release()

    def _release(self) -> None:
        if self._executor is not None:
            self._executor.close()
            self._executor = None


def _requirements_of(executor: Executor | None) -> Requirements | None:
    if executor is None:
        return None
    return requirements_of(executor.program, executor.inputs, executor.outputs)
