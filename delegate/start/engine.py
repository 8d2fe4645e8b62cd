# SPDX-License-Identifier: Apache-2.0
"""An opened device with all that turns partitions into executors on it; TFLite is not needed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

from delegate import compiler, halves, progress
from delegate.errors import Unsupported
from delegate.graph.ir import Graph, Node
from delegate.graph.partition import Partition
from delegate.graph.verdict import Verdict
from delegate.isa import ORDERS, is_one_launch_likely
from delegate.launch import Alternative, Program, Step, first_that_runs
from delegate.lowered import Lowered
from delegate.options import Options
from delegate.runtime.agreement import outputs_of, random_inputs
from delegate.runtime.bench import DeviceBench
from delegate.runtime.device import Device
from delegate.runtime.executor import Executor
from delegate.runtime.kernels import Kernels
from delegate.runtime.layout import NOWHERE, Region
from delegate.runtime.registers import registers
from delegate.runtime.state import State
from delegate.runtime.transfers import COPIED, CROSSING, TRANSFERS
from delegate.runtime.weights import Weights
from delegate.sandbox.trials import DONE, WHOLE, Free, Trial
from delegate.start.opening import open_device, target_of
from delegate.start.plans import Plan, Plans
from delegate.store import Store
from delegate.target import Rules, Target
from delegate.tflite.reference import reference_outputs
from delegate.tuning.chooser import FULL, QUICK, Choice, Chooser
from delegate.tuning.forms import Chosen, Forms
from delegate.tuning.tune import Tuner

# Progress: 70 % when the kernels of nodes are chosen; 80 % of that before passes.
_OF_NODES, _OF_FIRST = 0.7, 0.8
_log = logging.getLogger("delegate")


class Engine:
    """A device and its programs.

    Attributes:
        device: the opened device; its `proven` lacks what is excluded.
        chooser: what measures and remembers, for all choices.
        trials: what may be built and run here.
        weights: the constants of all its executors.
    Raises:
        NoDeviceError: no device, none that matches, or none that passes its self-test.
        ProfileError: the device profile is unknown or wrong.
    """

    def __init__(
        self,
        options: Options,
        trials: Callable[[Device, Chooser], Free] | None = None,
        device: Device | None = None,
    ) -> None:
        """Open the device, if none is given; nothing is built yet.

        `trials`: what may be done; None: everything.
        """
        begun = time.perf_counter()
        with progress.phase("device"), progress.share(0, progress.AT_VERDICTS):
            self.device = device or open_device(options)
        seconds = time.perf_counter() - begun
        self.chooser = Chooser(options.tune, Store(self.device.identity), seconds)
        self.trials = Free() if trials is None else trials(self.device, self.chooser)
        self._kernels = Kernels(self.device, self.trials)
        self.weights = Weights(self.device, is_shared=True)
        self._bench = DeviceBench(self.device, self._kernels, self.weights)
        self._tuner = Tuner(self.chooser, self._bench, options.alternative)
        self._options = options
        if options.allows_halves and not halves.are_stored(self.device.proven):
            _log.warning("%s: not proven to store halves: floats stay", self.device.info.name)
        self._plans = Plans(self.device.identity, options, self.chooser, self.trials)
        # Of the graph that was judged last, until executors take it: each node is lowered once.
        self._lowered: tuple[Target | None, Lowered] = None, Lowered()

    @property
    def _forms(self) -> Forms:
        # Kept, it would be a circle that holds the device's context until garbage is collected.
        is_ordered = bool(self.device.proven & ORDERS)
        return Forms(self.chooser, self._bench, self._made, self._options.profiling, is_ordered)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self.device.is_closed

    def close(self) -> None:
        """Let the device's context go, once all executors were closed."""
        self.device.close()

    def target(self, rules: Rules) -> Target:
        """Return what lowering may know, with a runtime's arithmetic rules."""

        def look() -> int:
            with progress.phase("build"):
                return registers(self.device, self._kernels)

        return target_of(self.device, rules, self.trials.settled(("target", rules), look))

    def verdicts(
        self, graph: Graph, target: Target, exclude_ops: Sequence[str] = ()
    ) -> list[Verdict]:
        """Return for each node whether it runs here."""
        lowered = Lowered()
        self._lowered = target, lowered
        self._plans.judge(graph, target, exclude_ops)

        def look() -> list[Verdict]:
            if self._plans.are_known:  # only where all nodes run here
                return [Verdict(node.index, node.op, None) for node in graph.nodes]
            nodes = progress.share(progress.AT_VERDICTS, progress.AT_GROUPS)
            with progress.phase("build"), nodes:
                return compiler.verdicts(graph, target, self._bench.check, exclude_ops, lowered)

        return self.trials.settled(("verdicts", graph, target, exclude_ops), look)

    def executor(
        self,
        partition: Partition,
        target: Target,
        batch: int = 1,
        region: Region = NOWHERE,
        state: State | None = None,
    ) -> Executor:
        """Return a partition ready to run, in the form that measures faster.

        `state`: what keeps its kept tensors over runs, which nothing here touches: what is measured
        or compared is given them as all inputs. `region`: of the state, for a child without it.

        Raises:
            Unsupported: a node does not lower. DeviceError, KernelBuildError: it is not made.
        """
        lowered, region = self._known(partition, target), state.region if state else region

        def look() -> tuple[Chosen, Trial]:
            chosen = self._chosen(partition, target, batch, lowered)
            ends = [(t.shape, t.dtype) for t in (*partition.inputs, *partition.outputs)]
            own = *filter(None, region), self._transfer()
            whole = Trial.of(WHOLE, chosen.key, batch, ends, *own)
            self.trials.awaits(whole)
            return chosen, whole

        with progress.phase("build"):
            request = "executor", partition, target, batch, region
            chosen, whole = self.trials.settled(request, look)
            self._plans.keep()
            try:
                executor = self._made(chosen.program, chosen.form, batch, False, state, region)
                # A driver's first run is slow. What memory holds may let a kernel's loops be long.
                with executor.trying():
                    executor.transfer.put_zeros()
                executor.repeat(1)
                if self.trials.is_due(whole):  # in a child, whose executors have no state
                    outputs_of(executor, random_inputs(executor))
            finally:  # what does not fit needs no child again to find that
                self.trials.note(whole, DONE)
        return executor

    def _known(self, partition: Partition, target: Target) -> Lowered:
        """Return what a partition's nodes were lowered to, which is forgotten here."""
        judged_for, lowered = self._lowered
        known = Lowered(lowered if judged_for == target else None)
        for node in partition.nodes:
            found = lowered.pop(node, ())
            if found and judged_for == target:
                known[node] = found
        return known

    def _chosen(self, partition: Partition, target: Target, batch: int, lowered: Lowered) -> Chosen:
        """Return the fastest program of a partition, and its form; raises Unsupported."""
        if (found := self._planned(partition, target, batch, lowered)) is not None:
            return found
        whole, forms = partition, self._forms
        try:
            fused = self._rewritten(partition, target, lowered)
            if self._options.allows_halves:  # its nodes apart round elsewhere: no equal program
                partition = fused
            with progress.share(0, _OF_NODES):
                expected = self._as_one_launch(forms, fused, target, batch, lowered)
                self._tuner.has_left = False
                programs = self._programs(partition, fused, target, batch, lowered)
                if expected is not None and self._tuner.has_left:
                    programs = [expected]  # what changes with each start is compiled in each
            with progress.share(_OF_NODES, 1):
                is_likely = self._is_one_launch_likely(fused)
                chosen = forms.fastest(programs, batch, expected, is_likely)
        finally:
            self.chooser.save()
        self._plans.note(whole, batch, Plan.of(chosen, fused))
        return chosen

    def _planned(
        self, partition: Partition, target: Target, batch: int, lowered: Lowered
    ) -> Chosen | None:
        """Return what an earlier start chose, if that is what it was still."""
        if (plan := self._plans.of(partition, batch)) is None:
            return None
        if plan.is_rewritten:
            partition = self._rewritten(partition, target, lowered)
        try:
            program = compiler.compile_partition(partition, target, plan.taker(), lowered=lowered)
        except Unsupported:
            found = None
        else:
            found = self._forms.chosen(program, plan.form, plan.is_literal, batch)
        if found is None or found.key != plan.key:
            self._plans.forget()
            return None
        return found

    def _rewritten(self, partition: Partition, target: Target, lowered: Lowered) -> Partition:
        check, told = self._bench.check, self._options
        passes = frozenset(told.passes)
        return compiler.rewritten(partition, target, check, passes, lowered, told.allows_halves)

    def _as_one_launch(
        self, forms: Forms, fused: Partition, target: Target, batch: int, lowered: Lowered
    ) -> Program | None:
        """Return what runs until all nodes are measured: lower()'s first choices, if they are
        faster as one launch. That gains more than the nodes' choices, so it is asked first.
        """
        if not (self.chooser.mode == QUICK and self._may_be_one_launch(batch)):
            return None
        program = self._of_first_choices(fused, target, lowered)
        is_likely = self._is_one_launch_likely(fused)
        return program if forms.is_one_launch_faster(program, is_likely) else None

    def _is_one_launch_likely(self, partition: Partition) -> bool:
        is_float = any(tensor.dtype == "float32" for tensor in partition.inputs)
        return is_one_launch_likely(self.device.proven, is_float)

    def _programs(
        self, partition: Partition, fused: Partition, target: Target, batch: int, lowered: Lowered
    ) -> list[Program]:
        """Return the programs that compute a partition, each of the alternatives chosen for it.

        `fused`: the partition as passes left it. Its nodes apart are far more, and rarely faster:
        only people who asked for the fastest wait for them to be measured.
        """
        reference = partial(reference_outputs, target.rules)
        choose = partial(self._tuner.choose, batch=batch, reference=reference, lowered=lowered)
        steps: dict[Node, Step] = {}  # of the nodes that passes leave as they are
        with progress.share(0, _OF_FIRST):
            programs = [compiler.compile_partition(fused, target, choose, steps, lowered)]
        if fused is not partition and self.chooser.mode == FULL:
            with progress.share(_OF_FIRST, 1):
                programs.append(
                    compiler.compile_partition(partition, target, choose, steps, lowered)
                )
        if target.group_items > 1 and self._may_be_one_launch(batch):
            # One by one, short launches all take the same time, so tuning cannot rank them. Inside
            # a persistent launch they differ, so try lower()'s first choices too.
            programs.append(self._of_first_choices(fused, target, lowered))
        return programs

    def _may_be_one_launch(self, batch: int) -> bool:
        return not self._options.alternative and batch == 1 and bool(self.device.proven & ORDERS)

    def _of_first_choices(self, partition: Partition, target: Target, lowered: Lowered) -> Program:
        def expected(_: Node, alternatives: Sequence[Alternative]) -> Alternative:
            return first_that_runs(alternatives, self._bench.check)

        return compiler.compile_partition(partition, target, expected, lowered=lowered)

    def sibling(self, executor: Executor) -> Executor:
        """Return a second executor of the same program, with a queue and an arena of its own.

        It has no state: runs that share one come one after the other.
        """
        return self._made(executor.program, executor.form, executor.batch, own_queue=True)

    def _made(
        self,
        program: Program,
        form: str,
        batch: int,
        own_queue: bool = False,
        state: State | None = None,
        region: Region = NOWHERE,
    ) -> Executor:
        how = form, self._transfer(), self.weights, own_queue, state, region
        return Executor(self.device, self._kernels, program, batch, *how)

    def _transfer(self) -> str:
        """Return the fastest way for bytes to cross."""
        ways = Choice(CROSSING, TRANSFERS, default=COPIED)
        found = self.chooser.take(ways, lambda: self.chooser.fastest(self._bench.transfers()))
        assert found is not None
        return found
