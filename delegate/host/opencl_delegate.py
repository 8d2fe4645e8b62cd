# SPDX-License-Identifier: Apache-2.0
"""class OpenCLDelegate: connects model reader, engine and TFLite's callbacks."""

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
from delegate.host.tflite.library import installed_rules, rules_of_caller, threads_of_caller
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

    One object may serve several interpreters; the attributes describe the last. If a model has
    several graphs, as for signatures and bodies of WHILE and IF, each is judged, and the
    attributes describe the first, or the given Graph.

    Attributes:
        verdicts: a Verdict for each node, which is the tuple (node index, op, None or the reason
            why it stays on the CPU), once the interpreter is created.
        subgraph_verdicts: the same for each graph judged since the first was, by its index in
            the file. TFLite judges a graph again after an input is resized.
        partitions: the node indices of each partition.
        device: what the device reports about itself; `device_name`: its name.
        failure: the message of the last error inside a callback, None if there was none.
    Raises:
        ModelError: the given model cannot be read. OSError: the file cannot be read.
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

        `model`: what the interpreters are created from. By default it is found in TFLite's memory;
        it is needed only for a model without names and constants. A parsed model is accepted, too.
        `keywords`: the fields of Options, documented there.
        `options`: all of them as one record, instead of keywords.
        """
        if options is not None and (keywords or device is not None):
            raise TypeError("options is given, and other keywords, too")
        self._options = options or Options(device, **keywords)
        marks = Marks()
        self._graphs = Graphs(model, marks)
        self._engine = open_engine(self._options)
        # By TFLite context, until TFLite has formed all partitions; then their kernels hold it.
        self._claims: dict[int, Claim] = {}
        self._interpreters = Interpreters(marks)
        self._lock = threading.RLock()  # guards state outside kernels
        self._last_run: list[PartitionKernel] = []
        self._without_tflite: list[PartitionKernel] = []  # kernels without an interpreter
        self.verdicts: list[Verdict] = []
        self.subgraph_verdicts: dict[int, list[Verdict]] = {}
        self.partitions: list[list[int]] = []
        self.failure: str | None = None
        self._native = NativeDelegate("OpenCLDelegate", self)

    @property
    def device(self) -> DeviceInfo:
        """What the device reports about itself."""
        return self._engine.device.info

    @property
    def device_name(self) -> str:
        """The device's name."""
        return self._engine.device.info.name

    @property
    def tuning_left(self) -> int:
        """The number of choices that were not measured."""
        return self._engine.unmeasured

    @property
    def plans(self) -> list[PartitionPlan]:
        """The plans in use, in execution order; empty before TFLite has taken nodes."""
        return [plan for kernel in self._last_run for plan in kernel.plans()]

    def write_plan(self, path: str | os.PathLike[str]) -> None:
        """Write all plans made since the delegate was created, for `Options.plan` elsewhere.

        Raises:
            PlanError: it cannot be written, or the delegate was created with in_child_first=False.
        """
        self._engine.write_plan(path)

    def _get_native_delegate_pointer(self) -> int:
        # The only method that TFLite's Python interpreter calls.
        return self._native.address

    def profile(self) -> list[LaunchTime]:
        """Return the launches of the last run of each partition, in execution order.

        Raises:
            DelegateError: the delegate was created without profiling=True.
        """
        if not self._options.profiling:
            raise DelegateError("no times were recorded: make the delegate with profiling=True")
        return [row for kernel in self._last_run for row in kernel.profile()]

    def step_through(self, run: Callable[[], None]) -> list[StepRun]:
        """Call an interpreter's `invoke`; return the results of each node on the device.

        The nodes run one at a time, on the results of earlier nodes.

        Raises:
            DelegateError: the delegate was created without profiling=True. Also what `run` raises.
        """
        return self._run_observed(run, PartitionKernel.by_nodes)

    def timed_runs(self, run: Callable[[], None]) -> list[PartitionRun]:
        """Call an interpreter's `invoke`; return each partition's run with timings.

        Raises:
            DelegateError: the delegate was created without profiling=True. Also what `run` raises.
        """
        return self._run_observed(run, PartitionKernel.by_parts)

    def _run_observed(self, run: Callable[[], None], way: Callable[..., list[_Row]]) -> list[_Row]:
        """Call `run` with the kernels in a special run mode; return what they record."""
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
        """Run each node on the device by itself, on these values; return its results.

        `values`: by tensor index, in the tensor's shape. Missing ones are taken from earlier
        nodes.

        Raises:
            DelegateError: `values` lacks an input of a partition, the run fails, or the delegate
                was created without profiling=True.
        """
        self._require_profiling()
        return [row for kernel in self._last_run for row in kernel.isolated(values)]

    def _require_profiling(self) -> None:
        if not self._options.profiling:
            raise DelegateError("launches are not separate: make the delegate with profiling=True")

    @property
    def alternatives(self) -> list[NodeAlternatives]:
        """How the nodes on the device run, in execution order; empty before TFLite takes them."""
        return [row for kernel in self._last_run for row in kernel.alternatives()]

    def whole(self) -> PartitionKernel:
        """Take all nodes of the given Graph, without TFLite; return the kernel to run them.

        Its inputs and outputs are the graph's, by tensor index, as arrays of bytes.

        Raises:
            Unsupported: a node is not, or the graph has persistent variables. DeviceError.
        """
        graph = self._graphs.given
        if graph is None or graph.resources.why_not or persistent_tensors(graph):
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
        """Wait for running work, then free the device memory; later runs fail.

        The OpenCL context is released with the last delegate or model that uses it.
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

    # The hooks of delegate.host.tflite.callbacks.

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
        """Return the nodes to claim among those present; their kernels are in `_claims`."""
        if self._engine.is_closed:
            self._engine = open_engine(replace(self._options, device=self.device.index))
        target = self._engine.target(rules_of_caller(context))
        engine, options, shapes = self._engine, self._options, likely_shapes(graph, shapes)
        threads = threads_of_caller(context)
        claim = self._interpreters.judge(
            context,
            graph,
            lambda: self._graphs.resources(context),
            lambda known, variables: Claim(
                with_variables(known), shapes, target, engine, options, present, variables, threads
            ),
        )
        if context in self._claims:
            self._claims.pop(context).close()  # its interpreter was abandoned during construction
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
        """Return the kernel of TFLite's partition."""
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
        """Record the message of an error, which TFLite reports only as a status."""
        self.failure = str(error) or type(error).__name__
        _log.debug("in a TFLite callback", exc_info=error)
