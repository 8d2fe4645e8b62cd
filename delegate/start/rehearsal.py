# SPDX-License-Identifier: Apache-2.0
"""An engine that does only what a child process has done before, and not what killed the child.

The engine does what it does until it meets what no child has tried on this device (`Untried`). Then
a child does the whole request, with the same code, and tells each step before it begins. If the
child dies or hangs, another one tries again. What ends that one, too, is left out
(`delegate.sandbox.deaths`), and a child goes on with what is left: a kernel costs an alternative,
then a node. In the end this process repeats what the child did. A later start finds everything on
disk and needs no child.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TypeVar

from delegate import progress
from delegate.errors import DeviceError, Untried
from delegate.graph.ir import Graph
from delegate.graph.partition import Partition
from delegate.graph.verdict import Verdict
from delegate.options import Options
from delegate.runtime.executor import Executor
from delegate.sandbox import helper
from delegate.sandbox.deaths import Deaths
from delegate.sandbox.records import Records
from delegate.sandbox.trials import Guarded
from delegate.start.engine import Engine
from delegate.start.probe import broken
from delegate.store import has_stores
from delegate.target import Rules, Target

# Whether engines are rehearsed at all. Tests whose processes may die switch it off.
is_on = True
# The child that works ahead is not pinned: it would share the first child's cores.
_AHEAD = {"POCL_AFFINITY": "0"}
_Result = TypeVar("_Result")
_log = logging.getLogger("delegate")
_said: set[str] = set()  # why trials are left out


class RehearsedEngine(Engine):
    """An engine that does only what a child has done; errors are Engine's."""

    def __init__(self, options: Options, graph: Graph | None = None) -> None:
        """`graph`: what will be run, if that is known."""
        if graph is not None:
            _go_ahead(options, graph)
        super().__init__(options, self._guarded)
        self.chooser.leave_to_child()
        info = self.device.info
        self._same = info.identity, replace(options, device=info.index, own_context=False)
        self._deaths = Deaths(self._records, lambda: broken(info, options.profile))

    def _guarded(self, identity: str) -> Guarded:
        self._records = Records(identity)
        self._banned_before = {*self._records.left_out.values()}
        self._trials = Guarded(self._records.done, self._records.left_out)
        return self._trials

    def target(self, rules: Rules) -> Target:
        """Return what lowering may know; raises as Engine's."""
        ask = super().target
        return self._repeated(lambda: ask(rules), ("target", rules))

    def verdicts(
        self, graph: Graph, target: Target, exclude_ops: Collection[str] = ()
    ) -> list[Verdict]:
        """Return for each node whether it runs here; raises as Engine's."""
        ask, excluded = super().verdicts, tuple(exclude_ops)
        return self._repeated(
            lambda: ask(graph, target, excluded), ("verdicts", graph, target, excluded)
        )

    def executor(self, partition: Partition, target: Target, batch: int = 1) -> Executor:
        """Return a partition ready to run; raises as Engine's."""
        ask = super().executor
        try:
            return self._repeated(
                lambda: ask(partition, target, batch), ("executor", partition, target, batch)
            )
        finally:
            helper.stop_ahead()

    def _repeated(self, do: Callable[[], _Result], request: tuple[object, ...]) -> _Result:
        """Return what `do` gives, after a child has done the same where that is needed."""
        asked: set[object] = set()
        while True:
            try:
                result = do()
            except Untried as untried:
                if untried.what in asked:
                    raise DeviceError(f"no child process tries to {untried.words}") from None
                asked.add(untried.what)
            else:
                self._say_bans()
                return result
            with progress.phase("build"):
                self._rehearse(request)

    def _say_bans(self) -> None:
        """Say once what of earlier starts' bans this one met."""
        met = self._trials.met & self._banned_before - _said
        # Of what this start left out a WARN told.
        _said.update(met, {*self._records.left_out.values()} - self._banned_before)
        if met:
            _log.warning(
                "kernels are left out on this device, because child processes died of them before: "
                "`tflite-opencl info --bans` says which"
            )

    def _rehearse(self, request: tuple[object, ...]) -> None:
        if request[0] == "executor" and self.chooser.state()[1] > 0:
            helper.stop_ahead()  # what is measured has the processor for itself
        begun = time.perf_counter()
        while True:
            state = self.chooser.state()
            known = self._records.done, self._records.left_out
            heard = helper.ask("engine", self._same, request, *known, state)
            self._records.add(heard.found)
            if heard.is_answered:
                choices, seconds_left = heard.answer
                if request[0] == "verdicts":  # the next start need not build them, and measures
                    seconds_left -= time.perf_counter() - begun
                self.chooser.go_on(choices, seconds_left)
                return
            self._deaths.take(heard)


def open_engine(options: Options, graph: Graph | None = None) -> Engine:
    """Return an engine, which is rehearsed where the options say so.

    `graph`: what will be run, if that is known. Raises: as Engine.
    """
    options = replace(options, device_profile=options.profile)  # it is read once
    if options.in_child_first and is_on:
        return RehearsedEngine(options, graph)
    return Engine(options)


def _go_ahead(options: Options, graph: Graph) -> None:
    """Let a second child compile the graph's kernels while the first one runs the self-tests.

    It begins with the last nodes. The driver keeps what it compiled, and the first child finds it.
    """
    if _has_a_core_to_spare() and not has_stores():
        helper.go_ahead("ahead", options, graph, **_AHEAD)


def start_early() -> None:
    """Start the child processes of a first start, which import while the caller does other things.

    Nothing is asked of them yet. If this user has used a device before, no child may be needed, and
    none is started.
    """
    if is_on and not has_stores():
        if _has_a_core_to_spare():
            helper.begin_ahead(**_AHEAD)
        helper.begin()


def _has_a_core_to_spare() -> bool:
    return len(os.sched_getaffinity(0)) > 1
