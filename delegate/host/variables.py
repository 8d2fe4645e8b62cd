# SPDX-License-Identifier: Apache-2.0
"""Resource variables of interpreters: on the device for all graphs of an interpreter, or none.

They outlive what is built for a graph: TFLite rebuilds everything when an input is resized, and the
graphs of several signatures share them. So they belong to the interpreter. As TFLite passes only
graphs to delegates, at reused addresses, the interpreter is marked.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from delegate.engine import Engine
from delegate.errors import DelegateError
from delegate.graph.ir import Graph, Resources
from delegate.graph.partition import Partition
from delegate.graph.resources import OPS, touches, with_resources
from delegate.graph.verdict import Verdict
from delegate.guard.isolation.backend import AnyState
from delegate.host.tflite.marks import Marks

_Claim = TypeVar("_Claim")


def out_of_order(graph: Graph, groups: Sequence[Partition]) -> Iterator[tuple[str, str]]:
    """Yield each variable that TFLite would access out of order, and how.

    It partitions nodes by data flow, without regard to variables.
    """
    places = {tensor: node.index for node in graph.nodes for tensor in node.outputs}
    now: dict[str, int] = {}  # by variable: the last writer before each partition
    for group in groups:
        for tensor in group.inputs:
            if tensor.state_name and places.get(tensor, -1) != now.get(tensor.state_name, -1):
                yield tensor.state_name, f"TFLite would read {tensor.state_name!r} out of order"
        for tensor in group.outputs:
            if tensor.state_name and places[tensor] < now.get(tensor.state_name, -1):
                yield tensor.state_name, f"TFLite would assign {tensor.state_name!r} out of order"
            if tensor.state_name:
                now[tensor.state_name] = places[tensor]


class VariablesOnCpu(Exception):
    """Why an interpreter's variables stay on the CPU."""


class Variables:
    """The resource variables of one interpreter.

    Attributes:
        are_on_device: whether the device stores them; None: no graph was judged yet.
        users: weak references to claims that use them.
        lock: serialises runs, whose executors share an arena.
    """

    def __init__(self) -> None:
        self.are_on_device: bool | None = None
        self.users: weakref.WeakSet[Any] = weakref.WeakSet()
        # Reentrant: a signal handler may close what its thread is running.
        self.lock = threading.RLock()
        self._state: AnyState | None = None

    def state(self, engine: Engine, graph: Graph, partition: Partition) -> AnyState | None:
        """Return the storage of a partition's variables, created on first use.

        None: it uses none. Raises: DeviceError: out of memory.
        """
        ends = (*partition.inputs, *partition.outputs)
        kept = [tensor for tensor in ends if tensor.state_name and not tensor.is_variable]
        if not kept:
            return None
        if self._state is None:
            self._state = engine.state(1, "make a new interpreter", has_arena=True)
        self._state.add(kept, graph.resources.initial)
        return self._state

    def require(self, graph: Graph, groups: Sequence[Partition], taken: Sequence[Verdict]) -> None:
        """Check that these partitions may run with the variables on the device.

        Raises:
            VariablesOnCpu: a node that uses one is on the CPU, or the order would differ.
        """
        for verdict in taken:
            if verdict.op in OPS and verdict.reason is not None:
                raise VariablesOnCpu(
                    f"node {verdict.node} ({verdict.op}), which touches resource variables, stays "
                    f"on the CPU: {verdict.reason}"
                )
        names = {t.state_name for t in graph.tensors if t.state_name and not t.is_variable}
        for name, why in out_of_order(graph, groups):
            if name in names:
                raise VariablesOnCpu(why)

    def optional_groups(self, groups: Sequence[Partition]) -> list[Partition]:
        """Return the partitions that options may exclude although the variables are here."""
        bound = OPS if self.are_on_device else ()
        return [each for each in groups if all(node.op not in bound for node in each.nodes)]

    def close(self) -> None:
        """Free the device memory."""
        if self._state is not None:
            self._state.close()


class Interpreters:
    """The variables of all interpreters that a delegate serves."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._variables: dict[int, Variables] = {}  # by the address of the mark
        self._dropped: set[int] = set()

    def judge(
        self,
        context: int,
        graph: Graph,
        resources: Callable[[], Resources],
        judge: Callable[[Graph, Variables | None], _Claim],
    ) -> _Claim:
        """Return `judge(graph)` with persistent variables, or else with them left to the CPU.

        Raises:
            DelegateError: they cannot be on the device, but those of its other graphs are.
        """
        if not touches(graph):
            return judge(graph, None)
        variables = None
        try:
            variables = self._of(context)
            kept = with_resources(graph, resources())
            if kept.resources.why_not:
                raise VariablesOnCpu(kept.resources.why_not)
            if variables.are_on_device is False:
                raise VariablesOnCpu("another graph's resource variables are on the CPU")
            claim = judge(kept, variables)
        except VariablesOnCpu as why:
            if variables is not None and variables.are_on_device:
                raise DelegateError(
                    f"resource variables are on the device, and graph {graph.subgraph} needs them "
                    f"on the CPU: {why}"
                ) from None
            if variables is not None:
                variables.are_on_device = False
            return judge(with_resources(graph, Resources(why_not=str(why))), None)
        variables.are_on_device = True
        variables.users.add(claim)
        return claim

    def close(self) -> None:
        """Free the device memory."""
        for address in [*self._variables]:
            self._drop(address)

    def _of(self, context: int) -> Variables:
        """Return the variables of a TfLiteContext's interpreter.

        Raises:
            VariablesOnCpu: another delegate marked it. DelegateError: the variables were dropped.
        """
        address = self._marks.of(context)
        if address in self._dropped:
            raise DelegateError("the interpreter's resource variables were dropped")
        if address not in self._marks.own:
            raise VariablesOnCpu("another delegate has marked the interpreter")
        if address not in self._variables:
            # Variables without users belong to deleted interpreters: a rebuilt graph finds its
            # interpreter's mark. The last one's kernels are still held, by the delegate.
            for each in [a for a, variables in self._variables.items() if not variables.users]:
                self._drop(each)
            self._variables[address] = Variables()
        return self._variables[address]

    def _drop(self, address: int) -> None:
        self._variables.pop(address).close()
        self._dropped.add(address)
