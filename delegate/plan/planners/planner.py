# SPDX-License-Identifier: Apache-2.0
"""Planning on an opened device: nodes -> verdicts, partitions -> the fastest plans.

Only this lowers, compiles, measures and packs: in a child process, or in the user's if the options
need no child.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from delegate.errors import KilledChild
from delegate.graph.ir import Graph, Node
from delegate.graph.partition import Partition
from delegate.graph.verdict import Verdict
from delegate.guard.children import progress
from delegate.guard.children.trials import CPU, WHOLE, Trial, Trials
from delegate.guard.isolation.backend import AnyConstants
from delegate.guard.store import Store
from delegate.host.tflite.reference import reference_outputs
from delegate.host.tflite.timed_graph import TimedGraph
from delegate.isa import ORDERS, is_one_launch_likely
from delegate.launch import Alternative, Schedule, Step, first_that_runs
from delegate.options import Options
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.dispatch.planned import planned_executor
from delegate.plan.dispatch.registers import registers
from delegate.plan.key import graph_facts, origin_of
from delegate.plan.lowering import compiler
from delegate.plan.lowering.lowering_cache import LoweringCache
from delegate.plan.record import NO_REGION, PartitionPlan, Region
from delegate.plan.tuning.agreement import outputs_of, random_inputs
from delegate.plan.tuning.bench import DeviceBench
from delegate.plan.tuning.chooser import FULL, QUICK, Choice, Chooser
from delegate.plan.tuning.dispatch import DispatchChooser, Selection
from delegate.plan.tuning.threads import ThreadChooser
from delegate.plan.tuning.tune import Tuner
from delegate.run.copy_strategies import COPIED, COPY_CHOICE, STRATEGIES
from delegate.run.device import Device
from delegate.run.executor import Executor
from delegate.run.weights import Lease, Weights
from delegate.target import Target

# Progress: 70 % when the alternatives of nodes are chosen; 80 % of that before passes.
_OF_NODES, _OF_FIRST = 0.7, 0.8
_log = logging.getLogger("delegate")


class Planning(Protocol):
    """What an Engine requires of any planner."""

    @property
    def unmeasured(self) -> int:
        """The number of choices that were not measured."""

    def registers(self) -> int:
        """Return the 32-bit values that a work-item is certain to keep in registers; 0: unknown."""

    def verdicts(self, graph: Graph, target: Target, exclude_ops: Sequence[str]) -> list[Verdict]:
        """Return for each node whether it is supported by the device."""

    def partition(
        self, partition: Partition, target: Target, batch: int, region: Region
    ) -> tuple[PartitionPlan, AnyConstants]:
        """Return the plan of a partition, and its constants, for the caller to close.

        Raises:
            Unsupported: a node does not lower. DeviceError, KernelBuildError: planning failed.
        """

    def placement(
        self, facts: Hashable, threads: int, measure: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return a partition's timings here and on the CPU, measured if they are not known."""

    def why_not_on_cpu(self, graph: Graph, package: str, threads: int) -> str:
        """Return why TFLite's CPU path cannot run a graph; "": it can."""


class Planner:
    """Planning in this process.

    Attributes:
        chooser: measures and records all choices.
        trials: guards builds and runs.
        weights: the constants of all executors.
    """

    def __init__(
        self, options: Options, device: Device, trials: Trials | None = None, seconds: float = 0.0
    ) -> None:
        """`trials`: None: everything is allowed. `seconds`: that this start has taken so far."""
        self.device = device
        self.chooser = Chooser(options.tune, Store(device.identity), seconds, options.is_ieee)
        self.trials = trials or Trials()
        self._kernels = Kernels(device, self.trials)
        self.weights = Weights(device, is_shared=True)
        self._bench = DeviceBench(device, self._kernels, self.weights, options.is_ieee)
        self._tuner = Tuner(self.chooser, self._bench, options.alternative)
        self._options = options
        self._threads = ThreadChooser(
            device, self.chooser, self.trials, options.profiling, options.is_ieee
        )
        # Of the last graph with verdicts, until partitions take it: each node is lowered once.
        self._lowering: tuple[Target | None, LoweringCache] = None, LoweringCache()

    def _dispatch_chooser(self, origin: str) -> DispatchChooser:
        # Not cached: the reference cycle would keep the context alive.
        own = self._options.profiling, bool(self.device.proven & ORDERS), origin
        return DispatchChooser(self.chooser, self._bench, self._executor, *own)

    @property
    def unmeasured(self) -> int:
        """The number of choices that were not measured."""
        return self.chooser.unmeasured

    def registers(self) -> int:
        """Return the 32-bit values that a work-item is certain to keep in registers; 0: unknown."""
        with progress.phase("build"):
            return registers(self.device, self._kernels)

    def verdicts(
        self, graph: Graph, target: Target, exclude_ops: Sequence[str] = ()
    ) -> list[Verdict]:
        """Return for each node whether it is supported here."""
        lowered = LoweringCache()
        self._lowering = target, lowered
        nodes = progress.share(progress.AT_VERDICTS, progress.AT_GROUPS)
        with progress.phase("build"), nodes:
            return compiler.verdicts(graph, target, self._bench.check, exclude_ops, lowered)

    def partition(
        self, partition: Partition, target: Target, batch: int = 1, region: Region = NO_REGION
    ) -> tuple[PartitionPlan, Lease]:
        """Return the plan of a partition, and its constants, for the caller to close.

        Raises:
            Unsupported: a node does not lower. DeviceError, KernelBuildError: planning failed.
        """
        with progress.phase("build"), self.chooser.saving():
            chosen = self.select(partition, target, batch)
            whole = Trial.of(WHOLE, chosen.key, batch, *filter(None, region), self._copy_strategy())
            with self._executor(chosen.schedule, chosen.dispatch_mode, batch, region) as executor:
                if self.trials.is_due(whole):
                    with self.trials.attempt(whole):
                        # On uninitialised memory a loop may run long.
                        executor.first_run()
                        outputs_of(executor, random_inputs(executor))
                if region == NO_REGION and batch == 1:
                    other = self._threads.executor_without(executor, chosen)
                    if other is not None:
                        with other:
                            return replace(other.plan, has_no_threads=True), other.constants()
                return executor.plan, executor.constants()

    def placement(
        self, facts: Hashable, threads: int, measure: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return `measure()`: without a child no answer is cached."""
        return measure()

    def why_not_on_cpu(self, graph: Graph, package: str, threads: int) -> str:
        """Return why TFLite's CPU path cannot run a graph; "": it can, or this is no child.

        Some of its kernels end the process, which the user's survives.
        """
        if not self.trials.reports:
            return ""
        trial = Trial.of(CPU, package, graph_facts(graph))
        try:
            with self.trials.attempt(trial):
                TimedGraph(package, graph, threads).close()
        except (KilledChild, ImportError, RuntimeError, ValueError) as error:
            return str(error)
        return ""

    def _lowered_nodes(self, partition: Partition, target: Target) -> LoweringCache:
        """Return the lowered nodes of a partition, and forget them here."""
        judged_for, lowered = self._lowering
        known = LoweringCache(lowered if judged_for == target else None)
        for node in partition.nodes:
            found = lowered.pop(node, ())
            if found and judged_for == target:
                known[node] = found
        return known

    def select(self, partition: Partition, target: Target, batch: int) -> Selection:
        """Return the fastest schedule and dispatch mode of a partition; raises Unsupported."""
        origin = origin_of(partition)
        chooser, lowered = self._dispatch_chooser(origin), self._lowered_nodes(partition, target)
        fused = self._rewritten(partition, target, lowered)
        if self._options.allows_fp16:  # unfused nodes round elsewhere: not equivalent
            partition = fused
        with progress.share(0, _OF_NODES):
            expected = self._as_one_launch(chooser, fused, target, batch, lowered)
            self._tuner.has_unmeasured = False
            schedules = self._schedules(partition, fused, target, batch, lowered, origin)
            if expected is not None and self._tuner.has_unmeasured:
                schedules = [expected]  # in one launch the choices of nodes gain less
        with progress.share(_OF_NODES, 1):
            is_likely = self._is_one_launch_likely(fused)
            return chooser.fastest(schedules, batch, expected, is_likely)

    def _rewritten(self, partition: Partition, target: Target, lowered: LoweringCache) -> Partition:
        check, options = self._bench.check, self._options
        passes = frozenset(options.passes)
        return compiler.rewritten(partition, target, check, passes, lowered, options.allows_fp16)

    def _as_one_launch(
        self,
        chooser: DispatchChooser,
        fused: Partition,
        target: Target,
        batch: int,
        lowered: LoweringCache,
    ) -> Schedule | None:
        """Return what to run until all nodes are measured: lower()'s first choices, if they are
        faster as one launch. That gains more than the nodes' choices, so it is tested first.
        """
        if not (self.chooser.mode == QUICK and self._may_be_one_launch(batch)):
            return None
        schedule = self._of_first_choices(fused, target, lowered)
        is_likely = self._is_one_launch_likely(fused)
        return schedule if chooser.is_one_launch_faster(schedule, is_likely) else None

    def _is_one_launch_likely(self, partition: Partition) -> bool:
        is_float = any(tensor.dtype == "float32" for tensor in partition.inputs)
        return is_one_launch_likely(self.device.proven, is_float)

    def _schedules(
        self,
        partition: Partition,
        fused: Partition,
        target: Target,
        batch: int,
        lowered: LoweringCache,
        origin: str,
    ) -> list[Schedule]:
        """Return the candidate schedules of a partition, with the alternatives chosen for each.

        `fused`: the partition after passes. The unfused nodes are far more, and rarely faster: they
        are measured only in mode "full".
        """
        reference = partial(reference_outputs, target.rules)
        choose = partial(
            self._tuner.choose, batch=batch, reference=reference, lowered=lowered, origin=origin
        )
        steps: dict[Node, Step] = {}  # of nodes untouched by passes
        with progress.share(0, _OF_FIRST):
            schedules = [compiler.compile_partition(fused, target, choose, steps, lowered)]
        if fused is not partition and self.chooser.mode == FULL:
            with progress.share(_OF_FIRST, 1):
                schedules.append(
                    compiler.compile_partition(partition, target, choose, steps, lowered)
                )
        if target.group_items > 1 and self._may_be_one_launch(batch):
            # One by one, short launches all take the same time, so tuning cannot rank them. Inside
            # a persistent launch they differ, so try lower()'s first choices too.
            schedules.append(self._of_first_choices(fused, target, lowered))
        return schedules

    def _may_be_one_launch(self, batch: int) -> bool:
        return not self._options.alternative and batch == 1 and bool(self.device.proven & ORDERS)

    def _of_first_choices(
        self, partition: Partition, target: Target, lowered: LoweringCache
    ) -> Schedule:
        def expected(_: Node, alternatives: Sequence[Alternative]) -> Alternative:
            return first_that_runs(alternatives, self._bench.check)

        return compiler.compile_partition(partition, target, expected, lowered=lowered)

    def _executor(
        self, schedule: Schedule, dispatch_mode: str, batch: int, region: Region = NO_REGION
    ) -> Executor:
        how = dispatch_mode, self._copy_strategy(), self.weights
        return planned_executor(self.device, self._kernels, schedule, batch, *how, region=region)

    def _copy_strategy(self) -> str:
        """Return the fastest copy strategy."""
        ways = Choice(COPY_CHOICE, STRATEGIES, default=COPIED)
        found = self.chooser.choose(
            ways, lambda: self.chooser.fastest(self._bench.copy_strategies())
        )
        assert found is not None
        return found
