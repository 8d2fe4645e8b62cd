# SPDX-License-Identifier: Apache-2.0
"""One interpreter's graph: its verdicts, its groups, an executor and a kernel for each group."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import progress
from delegate.errors import DelegateError, DeviceError, KilledChild, TooLarge, Unsupported
from delegate.graph.infer import infer
from delegate.graph.ir import Graph, Tensor
from delegate.graph.partition import Partition, partition_of, partitions, too_small_or_too_many
from delegate.graph.verdict import Loss, Verdict
from delegate.launch import NodeAlternatives, size_bytes
from delegate.options import Options
from delegate.runtime.executor import Executor
from delegate.runtime.inspection import LaunchTime, PartitionRun, StepRun, Values
from delegate.runtime.layout import as_bytes
from delegate.start.engine import Engine
from delegate.target import Target
from delegate.tflite.callbacks import Shapes

_log = logging.getLogger("delegate")
Arrays = Sequence[NDArray[np.uint8]]
# What runs in the place of an executor's own `run`, and tells of it.
Way = Callable[[Executor, Arrays, Arrays], Sequence[Any]]


class Claim:
    """What was judged and built for one interpreter's graph at its present shapes.

    It does not know the delegate: C's callbacks reach it, and must not keep the delegate alive.
    """

    def __init__(
        self,
        file: Graph,
        shapes: Shapes,
        target: Target,
        engine: Engine,
        options: Options,
        present: Collection[int],
    ) -> None:
        """Judge every node, and make an executor for each partition that this leads to.

        `file`: the graph as it was read; `graph` is the same with what is known at `shapes`.
        `present`: the nodes that no other delegate took.
        Raises:
            DeviceError: an OpenCL call fails, other than for a size.
        """
        self._file = file
        self._shapes = shapes
        self.graph = infer(file, shapes)
        self._target = target
        self._engine = engine
        self._options = options
        self._executors: dict[tuple[int, ...], Executor] = {}
        self._taken: set[int] = set()
        self.verdicts = self._judged()
        self._refuse(
            [index for index in range(len(self.graph.nodes)) if index not in present],
            "another delegate took it",
        )
        try:
            while True:
                groups = partitions(self.graph, self._claimed())
                if not (self._is_left(groups) or self._do_not_fit(groups)):
                    return
        except BaseException:
            self.close()
            raise

    @property
    def is_taken(self) -> bool:
        """Whether TFLite has put every claimed node into a group."""
        return self._claimed() <= self._taken

    def _judged(self) -> list[Verdict]:
        return self._engine.verdicts(self.graph, self._target, (*self._options.exclude_ops,))

    def take(self, nodes: tuple[int, ...]) -> PartitionKernel:
        """Return the kernel of TFLite's group, whose executor is ready if it was foreseen."""
        group = partition_of(self.graph, nodes)
        self._taken.update(nodes)
        executor = self._executors.pop(group.indices, None)
        return PartitionKernel(self, group, executor)

    def executor(self, partition: Partition) -> Executor:
        """Compile a partition and take its memory; raises Unsupported or DeviceError."""
        return self._engine.executor(partition, self._target)

    def repartition(self, partition: Partition, shapes: Shapes) -> Partition:
        """Return the same nodes at other shapes."""
        # TFLite prepares every partition once more at the shapes that were just judged.
        graph = self.graph if shapes == self._shapes else infer(self._file, shapes)
        return partition_of(graph, partition.indices)

    def close(self) -> None:
        """Release executors no kernel has taken over."""
        for executor in self._executors.values():
            executor.close()
        self._executors.clear()

    def _claimed(self) -> set[int]:
        return {verdict.node for verdict in self.verdicts if verdict.is_taken}

    def _refuse(self, nodes: Collection[int], why: str) -> None:
        self.verdicts = [
            each.refused(why) if each.node in nodes else each for each in self.verdicts
        ]

    def _is_left(self, groups: Sequence[Partition]) -> bool:
        """Give one group that the options exclude back to the CPU; return whether there was one."""
        options = self._options
        left = too_small_or_too_many(
            self.graph, groups, options.min_nodes_per_partition, options.max_delegated_partitions
        )
        if left is not None:
            group, why = left
            self._refuse(group.indices, why)
        return left is not None

    def _do_not_fit(self, groups: Sequence[Partition]) -> bool:
        for group, share in progress.shares(groups, progress.AT_GROUPS):
            if group.indices in self._executors:
                continue
            try:
                with share:
                    self._executors[group.indices] = self.executor(group)
            except (KilledChild, TooLarge, Unsupported) as error:
                if self._lost_nodes(group):
                    return True
                _log.warning("%d nodes go to the CPU: %s", len(group.nodes), error)
                lost = isinstance(error, KilledChild)
                self._refuse(group.indices, Loss(error) if lost else str(error))
                return True
        for nodes in set(self._executors) - {group.indices for group in groups}:
            self._executors.pop(nodes).close()
        return False

    def _lost_nodes(self, group: Partition) -> bool:
        """Refuse the nodes of a group whose kernels a child has died of since they were judged."""
        reasons = {each.node: each.reason for each in self._judged() if each.reason is not None}
        lost = reasons.keys() & {*group.indices}
        for node in lost:
            self._refuse((node,), reasons[node])
        return bool(lost)


class PartitionKernel:
    """A partition in TFLite's hands. Threads may close it at any time."""

    def __init__(self, claim: Claim, partition: Partition, executor: Executor | None) -> None:
        self._claim = claim
        self._partition = partition
        self._executor = executor
        self._is_closed = False
        # One that a thread may take again: a signal's handler may close what its thread runs.
        self._lock = threading.RLock()
        self._is_busy = False
        self._way: Way | None = None
        self._told: list[Any] = []  # by runs of this way
        self.inputs: Sequence[int] = [tensor.index for tensor in partition.inputs]
        self.outputs: Sequence[int] = [tensor.index for tensor in partition.outputs]

    def prepare(self, shapes: Shapes) -> Shapes:
        """Compile again where shapes or sizes have changed; return the outputs' shapes."""
        current = self._claim.repartition(self._partition, shapes)
        same = _given(current) == _given(self._partition)
        with self._opened():
            if self._executor is None or not same:
                self._renew(current)
        return {tensor.index: tensor.shape for tensor in self._partition.outputs}

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

    def invoke(self, inputs: Arrays, outputs: Arrays) -> None:
        """Run the partition once."""
        with self._lock:
            self._begin()
            try:
                if self._executor is None:  # TFLite does not run what it could not prepare
                    raise DeviceError("the delegate was closed")
                if self._way is None:
                    self._executor.run(inputs, outputs)
                else:
                    self._told += self._way(self._executor, inputs, outputs)
            finally:
                self._end()

    def run_as(self, way: Way | None) -> list[Any]:
        """Run this way from here on, None: as usual; return what runs of the way before told."""
        told, self._told = self._told, []
        self._way = way
        return told

    def by_nodes(self, executor: Executor, inputs: Arrays, outputs: Arrays) -> list[StepRun]:
        """Run a node at a time."""
        return executor.steps().run(inputs, outputs, self._results())

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
            missing = [index for index in self.inputs if index not in values]
            if missing or self._executor is None:
                raise DelegateError(f"no values are given for tensor {(*missing, '?')[0]}")
            program = self._executor.program
            outputs = [np.empty(size_bytes(tensor), np.uint8) for tensor in program.outputs]
            inputs = [as_bytes(values[tensor.index]) for tensor in program.inputs]
            return self._executor.steps().run(inputs, outputs, self._results(), values)

    def _results(self) -> set[Tensor]:
        return {tensor for node in self._partition.nodes for tensor in node.outputs}

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


def _given(partition: Partition) -> tuple[object, ...]:
    """Return the shapes and folded sizes that a program of these nodes depends on."""
    results = [tensor for node in partition.nodes for tensor in node.outputs]
    read = [tensor for node in partition.nodes for tensor in node.inputs if tensor is not None]
    # Sizes may be computed in another partition. Folded weights stay what they are.
    folded = [t for t in (*results, *read) if t.is_folded and t.dtype in ("int32", "int64")]
    return (
        [tensor.shape for tensor in (*results, *partition.inputs)],
        [(tensor.index, np.asarray(tensor.data).tolist()) for tensor in folded],
    )
