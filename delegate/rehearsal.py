# SPDX-License-Identifier: Apache-2.0
"""An engine that does only what a child process has done before, and not what killed the child.

The engine does what it does until it meets what no child has tried on this device (`Untried`). Then
a child does the whole request, with the same code, and tells each step before it begins. If the
child dies or hangs, the step it was in is marked on disk, by device, driver and source, and another
child goes on with what is left: a kernel costs an alternative, then a node. In the end this process
repeats what the child did. A later start finds everything on disk and needs no child.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar

from delegate import helper, progress
from delegate.engine import Engine
from delegate.errors import DeviceError, Untried
from delegate.graph.ir import Graph
from delegate.graph.partition import Partition
from delegate.graph.verdict import Verdict
from delegate.passes.on_partitions import PASSES
from delegate.probe import was_used_before
from delegate.profiles import DeviceProfile
from delegate.runtime.executor import Executor
from delegate.runtime.trials import FAILED, Guarded, Records, file_of, program_of
from delegate.target import Rules, Target

# Then the device is given up: a driver that hangs costs a minute each time.
_MOST_DEATHS, _MOST_HANGS, _MOST_STRAYS = 30, 3, 3
_MOST_OF_A_FILE = 3  # deaths; its other programs use the same instructions
# Whether engines are rehearsed at all. Tests whose processes may die switch it off.
is_on = True
# Of the child that works ahead: its threads would be put on the cores of the first child's.
_AHEAD = {"POCL_AFFINITY": "0"}
_Result = TypeVar("_Result")
_log = logging.getLogger("delegate")


class RehearsedEngine(Engine):
    """An engine that does only what a child has done; arguments and errors are Engine's."""

    def __init__(
        self,
        selector: str | int | None,
        tune: str = "quick",
        exclude_isa: Iterable[str] = (),
        profiling: bool = False,
        profile: DeviceProfile | None = None,
        own_context: bool = False,
        alternative: str | None = None,
        passes: Iterable[str] = tuple(PASSES),
        *,
        graph: Graph | None = None,
    ) -> None:
        """`graph`: what will be run, if that is known."""
        passes = tuple(passes)
        excluded = exclude_isa if isinstance(exclude_isa, str) else tuple(exclude_isa)
        if graph is not None:
            _go_ahead(selector, profile, excluded, graph)
        super().__init__(
            selector,
            tune,
            excluded,
            profiling,
            profile,
            own_context,
            alternative,
            passes,
            self._guarded,
        )
        self.tuner.leave_to_child()
        info = self.device.info
        ours = (tune, excluded, profiling, profile, alternative, passes)
        self._same = (info.index, info.identity, *ours)

    def _guarded(self, identity: str) -> Guarded:
        self._records = Records(identity)
        return Guarded(self._records)

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
        asked: set[str] = set()
        while True:
            try:
                return do()
            except Untried as untried:
                if str(untried) in asked:
                    raise DeviceError(f"no child process tries {untried}") from None
                asked.add(str(untried))
            with progress.phase("build"):
                self._rehearse(request)

    def _give_file_up(self, name: str, is_late: bool) -> None:
        """Try no more programs of a file if one of them hangs, or several end their child."""
        file = file_of(name)
        stem = file.removeprefix("file ")
        if not stem or not name.startswith(("program ", "binary ")):
            return
        ended = [how for each, how in self._records.known.items() if file_of(each) == file]
        if is_late or sum(how.startswith(FAILED) for how in ended) >= _MOST_OF_A_FILE:
            _log.warning("nothing else of %s.cl is tried on this device", stem)
            self._records.add({file: f"{FAILED}children ended that tried others of its file"})

    def _rehearse(self, request: tuple[object, ...]) -> None:
        if request[0] == "executor" and self.tuner.state()[1] > 0:
            helper.stop_ahead()  # what is measured has the processor for itself
        deaths = hangs = strays = 0
        begun = time.perf_counter()
        while True:
            state = self.tuner.state()
            heard = helper.ask("engine", self._same, request, self._records.known, state)
            self._records.add(heard.found)
            if heard.is_answered:
                known, seconds_left = heard.answer
                if request[0] == "verdicts":  # the next start need not build them, and measures
                    seconds_left -= time.perf_counter() - begun
                self.tuner.go_on(known, seconds_left)
                return
            deaths, hangs = deaths + 1, hangs + heard.is_late
            strays += not heard.trying
            if deaths >= _MOST_DEATHS or hangs >= _MOST_HANGS or strays >= _MOST_STRAYS:
                raise DeviceError(f"a child process that tried the device {heard.end}")
            if not heard.trying:
                continue  # by chance, as it seems
            name = _blamed(heard.trying[-1])
            what = _words(heard.trying[-1])
            _log.warning("a child process %s, as it tried %s: that is left out", heard.end, what)
            self._records.add({name: f"{FAILED}a child process that tried it {heard.end}"})
            self._give_file_up(name, heard.is_late)


def open_engine(in_child_first: bool, graph: Graph | None, *arguments: Any) -> Engine:
    """Return an engine; `in_child_first`: one that is rehearsed. `arguments`: Engine's.

    `graph`: what will be run, if that is known.
    """
    if in_child_first and is_on:
        return RehearsedEngine(*arguments, graph=graph)
    return Engine(*arguments)


def _go_ahead(
    selector: str | int | None,
    profile: DeviceProfile | None,
    exclude_isa: Iterable[str],
    graph: Graph,
) -> None:
    """Let a second child compile the graph's kernels while the first one runs the self-tests.

    It begins with the last nodes. The driver keeps what it compiled, and the first child finds it.
    """
    if _has_a_core_to_spare() and not was_used_before():
        helper.go_ahead("ahead", selector, profile, exclude_isa, graph, **_AHEAD)


def start_early() -> None:
    """Start the child processes of a first start, which import while the caller does other things.

    Nothing is asked of them yet. If this user has used a device before, no child may be needed, and
    none is started.
    """
    if is_on and not was_used_before():
        if _has_a_core_to_spare():
            helper.begin_ahead(**_AHEAD)
        helper.begin()


def _has_a_core_to_spare() -> bool:
    return len(os.sched_getaffinity(0)) > 1


def _blamed(name: str) -> str:
    """Return the trial that is to be marked where a child died in one."""
    return program_of(name) if name.startswith(("kernel ", "run ")) else name


def _words(name: str) -> str:
    """Return a trial for people."""
    kind, digest, *more = name.split()
    if kind in ("kernel", "run"):
        return f"to {'run' if kind == 'run' else 'make'} kernel {more[0]}"
    words = {
        "program": f"to build {digest}",
        "binary": f"to get the binary of {digest}",
        "recorded": "to record launches in a command buffer",
        "reference": "to run a node on TFLite's reference kernels",
    }
    return words.get(kind, "to allocate and run a group of nodes")
