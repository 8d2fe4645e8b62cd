# SPDX-License-Identifier: Apache-2.0
"""The delegate's claim on one graph: verdicts, partitions, and a kernel for each partition."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from delegate.engine import Engine, open_engine
from delegate.errors import REFUSALS, KilledChild, NotRestarted, Unsupported
from delegate.graph.infer import InferredGraph
from delegate.graph.ir import Graph
from delegate.graph.partition import (
    Partition,
    is_inlined,
    is_worth_its_launches,
    partition_of,
    partitions,
    too_small_or_too_many,
    without_dynamic,
)
from delegate.graph.verdict import KilledReason, Verdict
from delegate.guard.children import progress
from delegate.guard.isolation.backend import AnyExecutor
from delegate.host.mixed import MixedPartition, unknown_shapes, verdicts
from delegate.host.partition_kernel import PartitionKernel
from delegate.host.placement import Placement
from delegate.host.tflite.callbacks import Shapes
from delegate.host.variable_tensors import VariableTensors, apart
from delegate.host.variables import Variables
from delegate.isa import ORDERS
from delegate.options import FP32, Options
from delegate.run.pages import drop_pages
from delegate.target import Target

_LONG_BYTES = 1 << 16
_log = logging.getLogger("delegate")


class Claim:
    """The verdicts and kernels for one interpreter's graph at its present shapes.

    It does not refer to the delegate: C callbacks reach it, and must not keep the delegate alive.
    """

    def __init__(
        self,
        file: Graph,
        shapes: Shapes,
        target: Target,
        engine: Engine,
        options: Options,
        present: Collection[int],
        variables: Variables | None = None,
        threads: int | None = None,
    ) -> None:
        """Judge every node, and create an executor for each resulting partition.

        `file`: the graph as read; `graph`: the same with shapes and values inferred at `shapes`.
        `present`: nodes not taken by another delegate. `variables`: persistent ones of `file`.
        `threads`: the interpreter's; None: there is none that nodes could be left to.
        Raises:
            DeviceError: a call fails other than for a size. VariablesOnCpu: as Variables.require.
        """
        self._file = file
        self._inferred = InferredGraph(file, shapes)
        self.graph = self._inferred.graph
        self._target = target
        self._engine = engine
        self._options = options
        self._variables = variables
        self._executors: dict[tuple[int, ...], AnyExecutor] = {}
        self._grouped: set[int] = set()
        self._placement = Placement(self.graph, engine, target, options, threads)
        self.verdicts = self._judge()
        self._drop_pages()
        if not (options.min_nodes_per_partition or target.isa & ORDERS):
            self._refuse(
                self._slow_loops(), "once unrolled, its launches cost more than the loop on the CPU"
            )
        self._refuse(
            [index for index in range(len(self.graph.nodes)) if index not in present],
            "another delegate took it",
        )
        try:
            while True:
                # Nodes refused since may size tensors during a run.
                self.verdicts = without_dynamic(self.graph, self.verdicts)
                groups = partitions(self.graph, self._claimed())
                if variables is not None:
                    # Some versions of TFLite ignore the order of persistent tensors.
                    apart = partitions(self.graph, self._claimed(), keeps_order=False)
                    variables.require(self.graph, apart, self.verdicts)
                if not (
                    self._refuse_shared_variables(groups)
                    or self._refuse_small_or_too_many(groups)
                    or self._make_executors(groups)
                    or self._place(groups)
                ):
                    break
        except BaseException:
            self.close()
            raise
        self.tensors = VariableTensors(self.graph, self._claimed())
        self._drop_pages()

    def _drop_pages(self) -> None:
        """Release the pages of weights: reading a file also maps neighbouring pages."""
        for tensor in self._file.tensors:
            if tensor.data is not None and tensor.data.nbytes >= _LONG_BYTES:
                drop_pages(tensor.data)

    @property
    def is_complete(self) -> bool:
        """Whether TFLite has assigned every claimed node to a partition."""
        return self._claimed() <= self._grouped

    def _judge(self) -> list[Verdict]:
        return self._engine.verdicts(self.graph, self._target, (*self._options.exclude_ops,))

    def _slow_loops(self) -> list[int]:
        """Return the unrolled loops that a CPU runs faster than their separate launches."""
        loops = [each for each in self.graph.nodes if each.op == "WHILE" and is_inlined(each)]
        return [each.index for each in loops if not is_worth_its_launches(each)]

    def take(self, nodes: tuple[int, ...]) -> PartitionKernel:
        """Return the kernel of TFLite's partition; its executor is ready if it was predicted."""
        group = partition_of(self.graph, nodes)
        self._grouped.update(nodes)
        executor = self._executors.pop(group.indices, None)
        lock = None if self._variables is None else self._variables.lock
        return PartitionKernel(self, group, executor, lock)

    def fp32_executor(self, partition: Partition) -> AnyExecutor:
        """Return a float32 executor; raises DelegateError."""
        options = replace(self._options, precision=FP32)
        engine = open_engine(options, device=self._engine.device)
        return engine.executor(partition, self._target)

    def executor(self, partition: Partition) -> AnyExecutor:
        """Compile a partition and allocate its memory; raises Unsupported or DeviceError."""
        variables, engine = self._variables, self._engine
        if variables is None:
            return engine.executor(partition, self._target)
        with variables.lock:
            state = variables.state(engine, self.graph, partition)
            return engine.executor(partition, self._target, state=state)

    def resized_executor(self, partition: Partition) -> AnyExecutor:
        """As `executor`, for shapes that have changed since the verdicts."""
        if unknown := unknown_shapes(partition):
            node, why = next(iter(unknown.items()))
            raise Unsupported(f"node {node}: {why}")
        return self.executor(partition)

    def mixed(self, partition: Partition) -> MixedPartition:
        """Return a partition split in parts, if it does not fit the device as a whole.

        Raises:
            Unsupported: it has resource variables, or TFLite rejects a node as well. DeviceError.
        """
        if self._variables is not None:
            raise Unsupported("resource variables cannot leave the device after a resize")
        return MixedPartition(self._engine, partition, self._target)

    def on_tflite(self, partition: Partition, why: NotRestarted) -> MixedPartition:
        """Return a partition on TFLite's kernels, as the device is lost.

        Raises: NotRestarted: it has resource variables, or TFLite rejects a node.
        """
        left = {node.index: str(why) for node in partition.nodes}
        try:
            if self._variables is not None:
                raise Unsupported("resource variables cannot leave the device")
            found = MixedPartition(self._engine, partition, self._target, left)
        except Unsupported as error:
            raise NotRestarted(f"{why}; {error}") from error
        reason = KilledReason(f"on TFLite's kernel: {why}")
        for index in partition.indices:
            self.verdicts[index] = self.verdicts[index].refused(reason)
        return found

    def report(self, partition: Partition, left: Mapping[int, str]) -> None:
        """Update the verdicts of a partition; `left`: nodes on TFLite's kernels, and why."""
        for verdict in verdicts(partition, left):
            if verdict.reason is not None and verdict != self.verdicts[verdict.node]:
                _log.warning("node %d (%s) runs %s", *verdict)
            self.verdicts[verdict.node] = verdict

    def repartition(self, partition: Partition, shapes: Shapes) -> Partition:
        """Return the same nodes at other shapes."""
        if not self._inferred.holds_at(shapes):
            self._inferred = InferredGraph(self._file, shapes)
        return partition_of(self._inferred.graph, partition.indices)

    def close(self) -> None:
        """Close executors that no kernel has taken over."""
        for executor in self._executors.values():
            executor.close()
        self._executors.clear()

    def _claimed(self) -> set[int]:
        return {verdict.node for verdict in self.verdicts if verdict.is_taken}

    def _refuse(self, nodes: Collection[int], why: str) -> None:
        self.verdicts = [
            each.refused(why) if each.node in nodes else each for each in self.verdicts
        ]

    def _refuse_shared_variables(self, groups: Sequence[Partition]) -> bool:
        """Refuse nodes that share variables with the CPU; return whether there are any."""
        found = apart(self.graph, groups, self._claimed())
        if found is not None:
            self._refuse(*found)
        return found is not None

    def _refuse_small_or_too_many(self, groups: Sequence[Partition]) -> bool:
        """Refuse a small or excluded partition; return whether there was one."""
        options = self._options
        groups = groups if self._variables is None else self._variables.optional_groups(groups)
        # What is timed needs no estimate.
        least = options.min_nodes_per_partition or int(self._placement.is_measured)
        left = too_small_or_too_many(self.graph, groups, least, options.max_delegated_partitions)
        if left is not None:
            group, why = left
            self._refuse(group.indices, why)
        return left is not None

    def _make_executors(self, groups: Sequence[Partition]) -> bool:
        """Make each partition's executor; return whether nodes were refused instead."""
        for group, share in progress.shares(groups, progress.AT_GROUPS):
            if group.indices in self._executors:
                continue
            try:
                with share:
                    self._executors[group.indices] = self.executor(group)
            except REFUSALS as error:
                if self._lost_nodes(group):
                    return True
                _log.warning("%d nodes go to the CPU: %s", len(group.nodes), error)
                lost = isinstance(error, KilledChild)
                self._refuse(group.indices, KilledReason(error) if lost else str(error))
                return True
        for nodes in set(self._executors) - {group.indices for group in groups}:
            self._executors.pop(nodes).close()
        return False

    def _place(self, groups: Sequence[Partition]) -> bool:
        """Refuse nodes that the CPU runs faster; return whether there were any."""
        groups = groups if self._variables is None else self._variables.optional_groups(groups)
        found = [self._placement.refused(each, self._executors[each.indices]) for each in groups]
        for left in filter(None, found):
            self._refuse(*left)
        if any(found) and not (self._claimed() or self.graph.is_called):
            _log.warning(
                "placement='%s' leaves every node to the CPU: %s",
                self._options.placement,
                next(filter(None, found))[1],
            )
        return any(found)

    def _lost_nodes(self, group: Partition) -> bool:
        """Refuse nodes of a partition whose kernels have killed a child since the verdicts."""
        reasons = {each.node: each.reason for each in self._judge() if each.reason is not None}
        lost = reasons.keys() & {*group.indices}
        for node in lost:
            self._refuse((node,), reasons[node])
        return bool(lost)
