# SPDX-License-Identifier: Apache-2.0
"""class OpenCLDelegate: joins reader, compiler, runtime and TFLite's callbacks."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from delegate.engine import Engine
from delegate.errors import AbiMismatch, DelegateError, DeviceError, Unsupported
from delegate.graph import dump
from delegate.graph.edit import with_shapes
from delegate.graph.fold import fold
from delegate.graph.ir import Graph
from delegate.graph.limits import with_limits
from delegate.graph.partition import (
    LEAST_WORK,
    Partition,
    dynamic_tensors,
    partition_of,
    partitions,
    work,
)
from delegate.graph.verdict import Verdict
from delegate.launch import NodeAlternatives
from delegate.options import Options
from delegate.profiles import read_device_profile
from delegate.runtime.device import DeviceInfo
from delegate.runtime.executor import Executor, LaunchTime
from delegate.target import Target
from delegate.tflite.callbacks import Constants, NativeDelegate, PlannedNode, Shapes
from delegate.tflite.library import rules_of_caller
from delegate.tflite.reader import read_model

_log = logging.getLogger("delegate")


class OpenCLDelegate:
    """A TFLite delegate for `Interpreter(model, experimental_delegates=[OpenCLDelegate(model)])`.

    One object may serve several interpreters of its model; the attributes tell of the last.

    Attributes:
        verdicts: a Verdict for each node, which is the tuple (node index, op, None or the reason
            why it stays on the CPU), after the interpreter was made.
        partitions: the groups of node indices TFLite formed.
        device: what the device says of itself; `device_name`: its name.
        failure: the text of the last error inside a callback, None if there was none.
    Raises:
        ModelError: the model cannot be read. OSError: nor can its file.
        NoDeviceError: no device, none that matches `device`, or none that passes its self-test.
        ProfileError: the device profile is unknown or wrong.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        device: str | int | None = None,
        exclude_ops: Iterable[str] = (),
        min_nodes_per_partition: int = 0,
        max_delegated_partitions: int = 0,
        profiling: bool = False,
        tune: str = "quick",
        exclude_isa: Iterable[str] = (),
        device_profile: str | None = None,
        own_context: bool = False,
        alternative: str | None = None,
        *,
        options: Options | None = None,
    ) -> None:
        """Read the model and open a device; nothing is built before TFLite asks.

        The keywords are the fields of Options, which says what each means. `options`: all of them
        as one record, in the place of keywords.
        """
        keywords = Options(
            device,
            exclude_ops,
            min_nodes_per_partition,
            max_delegated_partitions,
            profiling,
            tune,
            exclude_isa,
            device_profile,
            own_context,
            alternative,
        )
        if options is not None and keywords != Options():
            raise TypeError("options is given, and other keywords, too")
        self._options = keywords if options is None else options
        self._graph = read_model(model)
        self._engine = _engine(self._options)
        self._target: Target | None = None
        # By TFLite context, until TFLite has formed all its groups; then their kernels hold it.
        self._claims: dict[int, _Claim] = {}
        self._starting: set[int] = set()  # threads
        self._last_run: list[_PartitionKernel] = []
        self.verdicts: list[Verdict] = []
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

    def _get_native_delegate_pointer(self) -> int:
        # The one method TFLite's Python interpreter asks of a delegate. Then, on the same thread,
        # TFLite hands over each subgraph, the main one first.
        self._starting.add(threading.get_ident())
        return self._native.address

    def profile(self) -> list[LaunchTime]:
        """Return the launches of the last run of each partition, in execution order.

        Raises:
            DelegateError: the delegate was made without profiling=True.
        """
        if not self._options.profiling:
            raise DelegateError("no times were taken: make the delegate with profiling=True")
        return [row for kernel in self._last_run for row in kernel.profile()]

    @property
    def alternatives(self) -> list[NodeAlternatives]:
        """How the nodes on the device run, in execution order; empty before TFLite took them."""
        return [row for kernel in self._last_run for row in kernel.alternatives()]

    def close(self) -> None:
        """Give the device's memory back now; later runs of its interpreters fail.

        The OpenCL context goes with the last delegate or model that uses it.
        """
        self._native.close()
        for claim in self._claims.values():
            claim.close()
        self._claims.clear()
        self._engine.close()

    # What follows are the hooks of delegate.tflite.callbacks.

    def claim(
        self, context: int, plan: Sequence[PlannedNode], shapes: Shapes, constants: Constants
    ) -> Sequence[int]:
        """Judge every node, and build and allocate what is to be claimed, before claiming it."""
        is_main = threading.get_ident() in self._starting
        self._starting.discard(threading.get_ident())
        if self._graph.subgraphs > 1 and not is_main:
            return ()  # a body of control flow, which was not read
        present = _match_plan(self._graph, plan, shapes, constants)
        if self._engine.is_closed:
            self._engine = _engine(replace(self._options, device=self.device.index))
        if self._target is None:
            self._target = self._engine.target(rules_of_caller(context))
        claim = _Claim(self._graph, shapes, self._target, self._engine, self._options)
        claim.judge(present)
        if context in self._claims:
            self._claims.pop(context).close()  # its interpreter was given up half made
        if not claim.is_taken:
            self._claims[context] = claim
        self.verdicts, self.partitions = claim.verdicts, []
        if _log.isEnabledFor(logging.DEBUG):
            rules = self._target.rules
            whose = f"{self.device_name}, for {rules.runtime} {rules.version}"
            _log.debug("graph on %s\n%s", whose, dump.table(claim.graph, self.verdicts))
        return [verdict.node for verdict in claim.verdicts if verdict.is_taken]

    def partition(self, context: int, nodes: tuple[int, ...]) -> _PartitionKernel:
        """Return the kernel TFLite's group of nodes runs as."""
        claim = self._claims[context]
        kernel = claim.take(nodes)
        if claim.is_taken:
            self._claims.pop(context).close()
        self.partitions.append(list(nodes))
        if len(self.partitions) == 1:
            self._last_run = []
        self._last_run.append(kernel)
        return kernel

    def failed(self, error: BaseException) -> None:
        """Keep the text of an error that TFLite will only call an error."""
        self.failure = str(error) or type(error).__name__
        _log.debug("in a TFLite callback", exc_info=error)


def _engine(options: Options) -> Engine:
    name = options.device_profile
    profile = None if name is None else read_device_profile(name)
    return Engine(
        options.device,
        options.tune,
        options.exclude_isa,
        options.profiling,
        profile,
        options.own_context,
        options.alternative,
    )


class _Claim:
    """What was judged and built for one interpreter's graph at its present shapes.

    It does not know the delegate: C's callbacks reach it, and must not keep the delegate alive.
    """

    def __init__(
        self, file: Graph, shapes: Shapes, target: Target, engine: Engine, options: Options
    ) -> None:
        """`file`: the graph as it was read; `graph` is the same with what is known at `shapes`."""
        self._file = file
        self._shapes = shapes
        self.graph = _known(file, shapes)
        self._target = target
        self._engine = engine
        self._options = options
        self._executors: dict[tuple[int, ...], Executor] = {}
        self._taken: set[int] = set()
        self.verdicts: list[Verdict] = []

    @property
    def is_taken(self) -> bool:
        """Whether TFLite has put every claimed node into a group."""
        return self._claimed() <= self._taken

    def judge(self, present: Collection[int]) -> None:
        """Fill `verdicts`, and an executor for each partition they lead to."""
        self.verdicts = self._engine.verdicts(
            self.graph, self._target, (*self._options.exclude_ops,)
        )
        self._refuse(
            [index for index in range(len(self.graph.nodes)) if index not in present],
            "another delegate took it",
        )
        while True:
            groups = partitions(self.graph, self._claimed())
            dropped = self._too_small_or_too_many(groups) or self._do_not_fit(groups)
            if not dropped:
                return

    def take(self, nodes: tuple[int, ...]) -> _PartitionKernel:
        """Return the kernel of TFLite's group, whose executor is ready if it was foreseen."""
        group = partition_of(self.graph, nodes)
        self._taken.update(nodes)
        executor = self._executors.pop(_indices(group), None)
        return _PartitionKernel(self, group, executor)

    def executor(self, partition: Partition) -> Executor:
        """Compile a partition and take its memory; raises Unsupported or DeviceError."""
        return self._engine.executor(partition, self._target)

    def repartition(self, partition: Partition, shapes: Shapes) -> Partition:
        """Return the same nodes at other shapes."""
        # TFLite prepares every partition once more at the shapes that were just judged.
        graph = self.graph if shapes == self._shapes else _known(self._file, shapes)
        return partition_of(graph, _indices(partition))

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

    def _too_small_or_too_many(self, groups: Sequence[Partition]) -> bool:
        least = self._options.min_nodes_per_partition
        most = self._options.max_delegated_partitions
        for group in groups:
            why = None
            if len(group.nodes) < least:
                why = f"a partition of {len(group.nodes)}: min_nodes_per_partition is {least}"
            elif (
                least == 0 and len(group.nodes) < len(self.graph.nodes) and work(group) < LEAST_WORK
            ):
                why = f"a partition of {len(group.nodes)} that costs a CPU less than the detour"
            if why is not None:
                self._refuse(_indices(group), why)
                return True
        if 0 < most < len(groups):
            smallest = min(groups, key=lambda group: len(group.nodes))
            why = f"{len(groups)} partitions: max_delegated_partitions is {most}"
            self._refuse(_indices(smallest), why)
            return True
        return False

    def _do_not_fit(self, groups: Sequence[Partition]) -> bool:
        for group in groups:
            if _indices(group) in self._executors:
                continue
            try:
                self._executors[_indices(group)] = self.executor(group)
            except (DeviceError, Unsupported) as error:
                _log.warning("%d nodes go to the CPU: %s", len(group.nodes), error)
                self._refuse(_indices(group), str(error))
                return True
        for nodes in set(self._executors) - {_indices(group) for group in groups}:
            self._executors.pop(nodes).close()
        return False


class _PartitionKernel:
    """A partition in TFLite's hands."""

    def __init__(self, claim: _Claim, partition: Partition, executor: Executor | None) -> None:
        self._claim = claim
        self._partition = partition
        self._executor = executor
        self._closed = False
        self.inputs = [tensor.index for tensor in partition.inputs]
        self.outputs = [tensor.index for tensor in partition.outputs]

    def prepare(self, shapes: Shapes) -> Shapes:
        """Compile again where a shape is not the one this was built for; return the outputs'."""
        current = self._claim.repartition(self._partition, shapes)
        same = all(
            was.shape == now.shape
            for old, new in zip(self._partition.nodes, current.nodes, strict=True)
            for was, now in zip(old.outputs, new.outputs, strict=True)
        ) and all(
            was.shape == now.shape
            for was, now in zip(self._partition.inputs, current.inputs, strict=True)
        )
        if self._closed:
            raise DeviceError("the delegate was closed")
        if self._executor is None or not same:
            if self._executor is not None:
                self._executor.close()
            self._executor, self._partition = None, current
            self._executor = self._claim.executor(current)
        return {tensor.index: tensor.shape for tensor in self._partition.outputs}

    def invoke(
        self, inputs: Sequence[NDArray[np.uint8]], outputs: Sequence[NDArray[np.uint8]]
    ) -> None:
        """Run the partition once."""
        if self._executor is None:  # TFLite does not run what it could not prepare
            raise DeviceError("the delegate was closed")
        self._executor.run(inputs, outputs)

    def alternatives(self) -> list[NodeAlternatives]:
        """Return the alternatives of the nodes, in execution order."""
        return [
            NodeAlternatives(step.node_index, step.op, step.names, step.alternative.name)
            for step in (() if self._executor is None else self._executor.program.steps)
        ]

    def profile(self) -> list[LaunchTime]:
        """Return the last run's launches."""
        return [] if self._executor is None else self._executor.profile()

    def close(self) -> None:
        """Give the device memory back."""
        self._closed = True
        if self._executor is not None:
            self._executor.close()
            self._executor = None


def _indices(partition: Partition) -> tuple[int, ...]:
    return tuple(node.index for node in partition.nodes)


def _known(graph: Graph, shapes: Shapes) -> Graph:
    """Return the graph with TFLite's shapes, and with what follows from them and from constants."""
    current = with_shapes(graph, shapes)
    return with_limits(fold(current, uncertain=dynamic_tensors(current, claimed=())))


def _match_plan(
    graph: Graph, plan: Sequence[PlannedNode], shapes: Shapes, constants: Constants
) -> set[int]:
    """Return the nodes of the file that no other delegate has taken yet."""
    for tensor in graph.tensors:
        if tensor.data is None:
            continue
        if shapes.get(tensor.index) != tensor.shape:
            raise _mismatch(f"constant {tensor.index}", shapes.get(tensor.index), tensor.shape)
        if tensor.is_sparse:
            continue  # TFLite has it as it is stored
        own_bytes = tensor.data.reshape(-1).view(np.uint8)
        if not np.array_equal(constants.get(tensor.index, own_bytes), own_bytes):
            raise _mismatch(f"constant {tensor.index}", "of other values", "another")
    present = set()
    for planned in plan:
        if planned.op == "DELEGATE":
            continue
        given = f"{planned.op} {planned.inputs} -> {planned.outputs}"
        if planned.index >= len(graph.nodes):
            raise _mismatch(f"node {planned.index}", given, "nothing")
        node = graph.nodes[planned.index]
        inputs = tuple(-1 if tensor is None else tensor.index for tensor in node.inputs)
        outputs = tuple(tensor.index for tensor in node.outputs)
        if (planned.op, planned.inputs, planned.outputs) != (node.op, inputs, outputs):
            known = f"{node.op} {inputs} -> {outputs}"
            raise _mismatch(f"node {planned.index}", given, known)
        present.add(planned.index)
    if len(present) == len(plan) < len(graph.nodes):  # and no delegate has the rest
        raise _mismatch("the model", f"{len(plan)} nodes", f"{len(graph.nodes)} nodes")
    return present


def _mismatch(what: str, given: object, known: object) -> AbiMismatch:
    return AbiMismatch(
        f"{what} is {given} in the interpreter, {known} in the delegate's file: "
        "give both the same model"
    )
