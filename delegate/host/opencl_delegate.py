# SPDX-License-Identifier: Apache-2.0
"""class OpenCLDelegate: joins reader, compiler, runtime and TFLite's callbacks."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from numpy.typing import NDArray

from delegate.engine import open_engine
from delegate.errors import DelegateError, DeviceError, Unsupported
from delegate.format.reader import Subgraphs
from delegate.graph.infer import likely_shapes
from delegate.graph.ir import Graph
from delegate.graph.persistent import persistent_tensors, with_variables
from delegate.graph.verdict import Verdict, graph_table
from delegate.guard.children import progress
from delegate.host.claim import Claim
from delegate.host.partition_kernel import PartitionKernel
from delegate.host.tflite.callbacks import Constants, NativeDelegate, PlannedNode, Shapes
from delegate.host.tflite.graphs import Graphs, match_plan
from delegate.host.tflite.library import installed_rules, rules_of_caller
from delegate.host.tflite.marks import Marks
from delegate.host.variables import Interpreters
from delegate.launch import NodeAlternatives
from delegate.options import Options
from delegate.plan.record import PartitionPlan
from delegate.run.device_list import DeviceInfo
from delegate.run.inspection import LaunchTime, PartitionRun, StepRun

_Row = TypeVar("_Row")
_log = logging.getLogger("delegate")


class OpenCLDelegate:
    """A TFLite delegate: `Interpreter("model.tflite", experimental_delegates=[OpenCLDelegate()])`.

    One object may serve several interpreters; the attributes tell of the last. Of a model with
    several graphs, such as of signatures and of bodies of WHILE and IF, each is judged, and the
    attributes tell of the first, or of the Graph that was given.

    Attributes:
        verdicts: a Verdict for each node, which is the tuple (node index, op, None or the reason
            why it stays on the CPU), after the interpreter was made.
        subgraph_verdicts: the same of each graph that was judged since the first was, by its number
            in the file. TFLite judges a graph again whose input was resized.
        partitions: the groups of node indices TFLite formed.
        device: what the device says of itself; `device_name`: its name.
        failure: the text of the last error inside a callback, None if there was none.
    Raises:
        ModelError: the given model cannot be read. OSError: nor can its file.
        NoDeviceError: no device, none that matches `device`, or none that passes its self-test.
        ProfileError: the device profile is unknown or wrong.
        DeviceError: this process was forked from one that had used OpenCL.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | Graph | Subgraphs | None = None,
        device: str | int | None = None,
        *,
        options: Options | None = None,
        **keywords: Any,
    ) -> None:
        """Open a device; nothing is built before TFLite asks.

        `model`: what the interpreters are made from. It is found in the memory of TFLite, so that
        it is needed only for a model without names and constants; what was read of it does, too.
        `keywords`: the other fields of Options, which says what each means and what is refused.
        `options`: all of them as one record, in the place of keywords.
        """
        if options is not None and (keywords or device is not None):
            raise TypeError("options is given, and other keywords, too")
        self._options = options or Options(device, **keywords)
        marks = Marks()
        self._graphs = Graphs(model, marks)
        self._engine = open_engine(self._options)
        # By TFLite context, until TFLite has formed all its groups; then their kernels hold it.
        self._claims: dict[int, Claim] = {}
        self._interpreters = Interpreters(marks)
        self._lock = threading.RLock()  # of what belongs to no kernel yet
        self._last_run: list[PartitionKernel] = []
        self._without_tflite: list[PartitionKernel] = []  # those that no interpreter holds
        self.verdicts: list[Verdict] = []
        self.subgraph_verdicts: dict[int, list[Verdict]] = {}
        self.partitions: list[list[int]] = []
        self.failure: str | None = None
        self._native = NativeDelegate("OpenCLDelegate", self)

    @property
    def device(self) -> DeviceInfo:
        """What the device says of itself."""
        return self._engine.device.info

    @property
    def device_name(self) -> str:
        """The device's name."""
        return self._engine.device.info.name

    @property
    def tuning_left(self) -> int:
        """Count the choices that were not measured."""
        return self._engine.unmeasured

    @property
    def plans(self) -> list[PartitionPlan]:
        """The plans that run on the device, in execution order; empty before TFLite took nodes."""
        return [plan for kernel in self._last_run for plan in kernel.plans()]

    def write_plan(self, path: str | os.PathLike[str]) -> None:
        """Write what was planned since the delegate was made, for `Options.plan` elsewhere.

        Raises:
            PlanError: it cannot be written, or the delegate was made with in_child_first=False.
        """
        self._engine.write_plan(path)

    def _get_native_delegate_pointer(self) -> int:
        # The one method TFLite's Python interpreter asks of a delegate.
        return self._native.address

    def profile(self) -> list[LaunchTime]:
        """Return the launches of the last run of each partition, in execution order.

        Raises:
            DelegateError: the delegate was made without profiling=True.
        """
        if not self._options.profiling:
            raise DelegateError("no times were taken: make the delegate with profiling=True")
        return [row for kernel in self._last_run for row in kernel.profile()]

    def step_through(self, run: Callable[[], None]) -> list[StepRun]:
        """Call an interpreter's `invoke`; return each node on the device and what it computed.

        The nodes run one at a time, on what the nodes before them computed.

        Raises:
            DelegateError: the delegate was made without profiling=True. And what `run` raises.
        """
        return self._run_observed(run, PartitionKernel.by_nodes)

    def timed_runs(self, run: Callable[[], None]) -> list[PartitionRun]:
        """Call an interpreter's `invoke`; return each partition's run and the times of its parts.

        Raises:
            DelegateError: the delegate was made without profiling=True. And what `run` raises.
        """
        return self._run_observed(run, PartitionKernel.by_parts)

    def _run_observed(self, run: Callable[[], None], way: Callable[..., list[_Row]]) -> list[_Row]:
        """Call `run` while the kernels run that way; return what they tell."""
        self._require_profiling()
        kernels = self._last_run
        for kernel in kernels:
            kernel.run_as(partial(way, kernel))
        try:
            run()
        finally:
            told = [row for kernel in kernels for row in kernel.run_as(None)]
        return told

    def isolated(self, values: Mapping[int, NDArray[Any]]) -> list[StepRun]:
        """Run each node on the device by itself, on these values; return what each computed.

        `values`: by tensor index, in the tensor's shape. What it lacks is what the nodes before
        computed.

        Raises:
            DelegateError: `values` lacks an input of a partition, the run fails, or the delegate
                was made without profiling=True.
        """
        self._require_profiling()
        return [row for kernel in self._last_run for row in kernel.isolated(values)]

    def _require_profiling(self) -> None:
        if not self._options.profiling:
            raise DelegateError("launches are not apart: make the delegate with profiling=True")

    @property
    def alternatives(self) -> list[NodeAlternatives]:
        """How the nodes on the device run, in execution order; empty before TFLite took them."""
        return [row for kernel in self._last_run for row in kernel.alternatives()]

    def whole(self) -> PartitionKernel:
        """Take all nodes of the given Graph, where there is no TFLite; return what runs them.

        Its inputs and outputs are the graph's, by tensor index, an array of bytes each.

        Raises:
            Unsupported: a node would stay on the CPU, or the graph keeps a variable. DeviceError.
        """
        graph = self._graphs.given
        if graph is None or graph.why_not_persistent or persistent_tensors(graph):
            raise Unsupported("variables are TFLite's to keep")
        target, nodes = self._engine.target(installed_rules()), range(len(graph.nodes))
        shapes = {tensor.index: tensor.shape for tensor in graph.tensors}
        claim = Claim(graph, shapes, target, self._engine, self._options, nodes)
        self.verdicts, self.partitions = claim.verdicts, [[*nodes]]
        with contextlib.closing(claim):
            for node, op, reason in claim.verdicts:
                if reason is not None:
                    raise Unsupported(f"node {node}, {op}: {reason}")
            kernel = claim.take((*nodes,))
        self._last_run, self._without_tflite = [kernel], [*self._without_tflite, kernel]
        return kernel

    def close(self) -> None:
        """Wait for what runs, then give the device's memory back; later runs fail.

        The OpenCL context goes with the last delegate or model that uses it.
        """
        with self._lock:
            self._native.close()
            for kernel in self._without_tflite:
                kernel.close()
            for claim in self._claims.values():
                claim.close()
            self._claims.clear()
            self._interpreters.close()
            self._engine.close()

    # What follows are the hooks of delegate.host.tflite.callbacks.

    def claim(
        self, context: int, plan: Sequence[PlannedNode], shapes: Shapes, constants: Constants
    ) -> Sequence[int]:
        """Judge every node, and build and allocate what is to be claimed, before claiming it."""
        with progress.no_collections():
            graph = self._graphs.graph(context) if plan else None
            if graph is None:
                return ()
            present = match_plan(graph, plan, shapes, constants)
            with self._lock:
                return self._judge(context, graph, shapes, present)

    def _judge(
        self, context: int, graph: Graph, shapes: Shapes, present: Collection[int]
    ) -> Sequence[int]:
        """Return the nodes to claim of those present; `_claims` has what is built for them."""
        if self._engine.is_closed:
            self._engine = open_engine(replace(self._options, device=self.device.index))
        target = self._engine.target(rules_of_caller(context))
        engine, options, shapes = self._engine, self._options, likely_shapes(graph, shapes)
        claim = self._interpreters.judge(
            context,
            graph,
            lambda: self._graphs.resources(context),
            lambda known, variables: Claim(
                with_variables(known), shapes, target, engine, options, present, variables
            ),
        )
        if context in self._claims:
            self._claims.pop(context).close()  # its interpreter was given up half made
        if not claim.is_complete:
            self._claims[context] = claim
        if graph.subgraph == 0:
            self.subgraph_verdicts = {}
        if graph.subgraph == self._graphs.main:
            self.verdicts, self.partitions = claim.verdicts, []
        self.subgraph_verdicts[graph.subgraph] = claim.verdicts
        if _log.isEnabledFor(logging.DEBUG):
            rules = target.rules
            whose = f"{self.device_name}, for {rules.runtime} {rules.version}"
            _log.debug("graph on %s\n%s", whose, graph_table(claim.graph, claim.verdicts))
        taken = [verdict.node for verdict in claim.verdicts if verdict.is_taken]
        self._graphs.note_calls(claim.graph, taken)
        return taken

    def partition(self, context: int, nodes: tuple[int, ...]) -> PartitionKernel:
        """Return the kernel TFLite's group of nodes runs as."""
        with self._lock:
            claim = self._claims.get(context)
            if claim is None:
                raise DeviceError("the delegate was closed")
            kernel = claim.take(nodes)
            if claim.is_complete:
                self._claims.pop(context).close()
        if claim.graph.subgraph == self._graphs.main:
            self.partitions.append(list(nodes))
            if len(self.partitions) == 1:
                self._last_run = []
            self._last_run.append(kernel)
        return kernel

    def failed(self, error: BaseException) -> None:
        """Keep the text of an error that TFLite will only call an error."""
        self.failure = str(error) or type(error).__name__
        _log.debug("in a TFLite callback", exc_info=error)
