# SPDX-License-Identifier: Apache-2.0
"""Options.placement: times a partition on the device and on TFLite's CPU path, and decides.

A partition may be cut in two, if the nodes before or after a border are faster on the CPU. Node
times predict the best border, and the cut is timed like the others.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.engine import Engine, open_engine
from delegate.errors import REFUSALS, DeviceError
from delegate.graph.edit import of_nodes, unfolded
from delegate.graph.ir import Graph
from delegate.graph.partition import Partition, can_leave, partition_of
from delegate.guard.children import progress
from delegate.guard.isolation.backend import AnyExecutor
from delegate.host.cut_search import Run, best_cut, borders_of, in_turns
from delegate.host.tflite.callbacks import Shapes
from delegate.host.tflite.library import PACKAGES
from delegate.host.tflite.timed_graph import TimedGraph
from delegate.host.variable_tensors import VariableTensors
from delegate.launch import size_bytes
from delegate.options import DEVICE, Options
from delegate.plan.key import key_of, partition_facts, target_facts
from delegate.run.requirements import requirements_of
from delegate.target import Target

Arrays = Sequence[NDArray[np.uint8]]
_SHORT_SECONDS = 2e-4  # a partition of less is not cut: a part has copies of its own
_PROFILED_RUNS, _PREFIX_RUNS = 3, 5
_PREFIX_SECONDS = 0.2  # after that a prefix is not run again
_CANNOT = (ImportError, RuntimeError, ValueError)  # of TFLite
_log = logging.getLogger("delegate")


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds of a partition's run: on the device, on the CPU, and cut in two."""

    device: float
    cpu: float
    cut: float = math.inf
    left: Sequence[int] = ()  # the nodes that a cut leaves to the CPU

    def on_cpu(self, nodes: Sequence[int], factor: float) -> tuple[Sequence[int], str] | None:
        """Return which of the partition's nodes go to the CPU, and why; None: none do.

        `factor`: the device's advantage. What leaves it more nodes is preferred within it.
        """
        most = factor * min(self.device, self.cpu, self.cut)
        if self.device <= most:
            return None
        if self.cut <= most:
            text = "faster on the CPU: cut in two, the partition takes %s ms, %s ms on the device"
            return self.left, text % (_number(self.cut), _number(self.device))
        text = "faster on the CPU: %s ms, %s ms on the device"
        return nodes, text % (_number(self.cpu), _number(self.device))


def _number(value: float) -> str:
    return f"{value:.2g}" if value < 0.1 else f"{value:.2f}" if value < 10 else f"{value:.0f}"


class Placement:
    """The placement of one claim's partitions."""

    def __init__(
        self, graph: Graph, engine: Engine, target: Target, options: Options, threads: int | None
    ) -> None:
        """`threads`: the interpreter's; None: there is no interpreter, and the device has all."""
        self._graph, self._target = graph, target
        self._options, self._threads = options, threads or 0
        self._factor = math.inf if threads is None else options.placement_factor
        self._package = next((n for n, it in PACKAGES.items() if it == target.rules.runtime), "")
        self._settled: set[int] = set()  # nodes that stay on the device
        if self.is_measured and not self._package:
            self._factor = math.inf
            text = (
                "placement='%s': %s is no Python package, so its CPU kernels cannot be timed: the "
                "device has what it supports"
            )
            _log.warning(text, options.placement, target.rules.runtime)
        if self.is_measured and options.profiling:  # where nodes run depends on no profile
            plain = replace(options, profiling=False)
            engine = open_engine(plain, device=engine.device)
        self._engine = engine

    @property
    def is_measured(self) -> bool:
        """Whether partitions are timed."""
        return self._factor < math.inf

    def refused(self, group: Partition, executor: AnyExecutor) -> tuple[Sequence[int], str] | None:
        """Return which nodes of a partition go to the CPU, and why; None: none do.

        A device that fails while it is timed keeps them, for its runs to say so.
        Raises: DeviceError: the executor of a profile cannot be made.
        """
        if not self.is_measured or {*group.indices} <= self._settled:
            return None
        ends = (*group.inputs, *group.outputs)
        if not can_leave(group) or any(t.state_name and not t.is_variable for t in ends):
            return None
        with contextlib.ExitStack() as stack:
            if self._options.profiling:
                executor = self._engine.executor(group, self._target)
                stack.enter_context(contextlib.closing(executor))
            try:
                known = self._known(group, executor)
            except (DeviceError, MemoryError) as error:  # not cached
                known = {"why": str(error) or "there is too little memory"}
        if "why" in known:
            _log.info("%d nodes cannot be timed on the CPU: %s", len(group.nodes), known["why"])
            found = None
        else:
            timings = Timings(**known)
            found = timings.on_cpu(group.indices, self._factor)
            count, both = len(group.indices), (_number(timings.device), _number(timings.cpu))
            _log.info("%d nodes take %s ms on the device, %s ms on the CPU", count, *both)
        self._settled.update({*group.indices}.difference(found[0] if found else ()))
        return found

    def _known(self, group: Partition, executor: AnyExecutor) -> dict[str, Any]:
        plan = key_of(executor.plan.calls), self._options.isolate
        facts = partition_facts(group), target_facts(self._target), plan
        return self._engine.placement(facts, self._threads, lambda: self._timed(group, executor))

    def _timed(self, group: Partition, executor: AnyExecutor) -> dict[str, Any]:
        """Return the fields of Timings, or "why" there are none."""
        whole = of_nodes(self._graph, group.indices)
        if not whole.nodes:
            return {"why": "all results are constants"}
        if why := self._engine.why_not_on_cpu(whole, self._package, self._threads):
            return {"why": why}
        try:
            with progress.phase("tune"), contextlib.ExitStack() as stack:
                every = _PartKernel(self._graph, whole, group, executor)
                runs = [
                    self._interpreter(stack, whole, range(len(whole.nodes)), every),
                    self._interpreter(stack, whole),
                ]
                device, cpu = times = in_turns(runs)
                known = {"device": 1e3 * device, "cpu": 1e3 * cpu}
                with contextlib.suppress(*_CANNOT, *REFUSALS):  # then there is no cut
                    known |= self._timed_cut(stack, runs, whole, group, times)
                return known
        except _CANNOT as error:
            return {"why": str(error)}

    def _timed_cut(
        self,
        stack: contextlib.ExitStack,
        runs: Sequence[Run],
        whole: Graph,
        group: Partition,
        times: Sequence[float],
    ) -> dict[str, Any]:
        """Return the fields of Timings with the best cut; {}: none is likely to gain."""
        part = self._part(group, times)
        if part is None:
            return {}
        own = stack.enter_context(contextlib.closing(self._engine.executor(part, self._target)))
        places = {n.index: place for place, n in enumerate(unfolded(self._graph, group.indices))}
        taken = [places[index] for index in part.indices if index in places]
        kernel = _PartKernel(self._graph, whole, part, own)
        found = in_turns([*runs, self._interpreter(stack, whole, taken, kernel)])
        device, cpu, cut = (1e3 * seconds for seconds in found)
        left = sorted({*group.indices}.difference(part.indices))
        return {"device": device, "cpu": cpu, "cut": cut, "left": left}

    def _interpreter(
        self,
        stack: contextlib.ExitStack,
        graph: Graph,
        taken: Collection[int] = (),
        kernel: _PartKernel | None = None,
    ) -> Run:
        """Return what runs a graph in an interpreter; `stack` closes it."""
        made = TimedGraph(self._package, graph, self._threads, taken, kernel)
        return stack.enter_context(contextlib.closing(made)).seconds

    def _part(self, group: Partition, times: Sequence[float]) -> Partition | None:
        """Return the part of a partition that is worth trying alone on the device."""
        nodes = [node.index for node in unfolded(self._graph, group.indices)]
        if len(nodes) < 2 or min(times) < _SHORT_SECONDS or self._options.isolate:
            return None
        if VariableTensors(self._graph, group.indices).indices:
            return None  # nodes on both sides may share one
        known = self._node_times(group)
        device = [known.get(index, 0.0) for index in nodes]
        if not sum(device):  # the driver's clock does not work
            return None
        borders = borders_of(of_nodes(self._graph, group.indices), device)
        on_cpu = [self._prefix_seconds(nodes[:border]) for border in (*borders, len(nodes))]
        cut = best_cut(device, borders, on_cpu, *times)
        if cut is None:
            return None
        border, is_first_on_device = cut
        members = [i for i in group.indices if (i < nodes[border]) == is_first_on_device]
        _log.debug("nodes %d to %d alone are tried on the device", members[0], members[-1])
        return partition_of(self._graph, members)

    def _node_times(self, group: Partition) -> Mapping[int, float]:
        """Return the microseconds of each node's launches, by index."""
        options = replace(
            self._options,
            device=self._engine.device.info.index,
            profiling=True,
            placement=DEVICE,
            plan=None,
            tune="off",  # the shares of nodes are what matters
        )
        rows = []
        with (
            contextlib.closing(open_engine(options)) as engine,  # its queue records times
            contextlib.closing(engine.executor(group, self._target)) as executor,
        ):
            ends = executor.plan.inputs, executor.plan.outputs
            inputs, outputs = ([np.zeros(size_bytes(t), np.uint8) for t in each] for each in ends)
            for _ in range(_PROFILED_RUNS):
                took: dict[int, float] = defaultdict(float)
                for launch in executor.inspector().run_timed(inputs, outputs, 0).launches:
                    took[launch.node] += launch.microseconds
                rows.append(took)
        return {node: min(took[node] for took in rows) for node in rows[0]}

    def _prefix_seconds(self, members: Collection[int]) -> float:
        """Return the seconds of a partition's first nodes on the CPU."""
        with contextlib.ExitStack() as stack:
            run = self._interpreter(stack, of_nodes(self._graph, members))
            end, found = time.perf_counter() + _PREFIX_SECONDS, [run(1)]
            while len(found) < _PREFIX_RUNS and time.perf_counter() < end:
                found.append(run(1))
            return min(found)


class _PartKernel:
    """A part of a partition's own graph on the device, as a TFLite kernel."""

    def __init__(self, graph: Graph, whole: Graph, part: Partition, executor: AnyExecutor) -> None:
        """Raises ValueError: the part's inputs or outputs are no tensors of the graph."""
        places = {tensor.origin: tensor.index for tensor in whole.tensors}
        known = VariableTensors(graph, part.indices)
        inputs, outputs = map(known.tflite_indices, (part.inputs, part.outputs))
        if unknown := {*inputs, *outputs} - places.keys():
            raise ValueError(f"tensor {min(unknown)} is needed only for constants")
        self.inputs = [places[index] for index in inputs]
        self.outputs = [places[index] for index in outputs]
        self._executor = executor
        self._checks = requirements_of(executor.plan, executor.inputs, executor.outputs)

    def prepare(self, shapes: Shapes) -> Shapes:
        """Its shapes are constant."""
        return {}

    def invoke(self, inputs: Arrays, outputs: Arrays) -> None:
        """Run once."""
        if self._checks is not None:
            outputs = self._checks.with_watched(outputs)
        self._executor.run(inputs, outputs)

    def close(self) -> None:
        """The claim owns the executor."""
