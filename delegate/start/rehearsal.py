# SPDX-License-Identifier: Apache-2.0
"""What a child process does before the user's process does it.

An engine in the user's process first looks up all that a request needs, which builds and runs
nothing. If no child has tried some of it on this device, a child does the whole request, with the
same code, and tells each step before it begins. If the child dies or hangs, another one tries
again. What ends that one, too, is left out (delegate/sandbox/records.py), and a child goes on with
what is left: a kernel costs an alternative, then a node. In the end this process does the request,
once. A later start finds everything on disk and needs no child.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

from delegate import progress
from delegate.errors import DeviceError, GivenUp
from delegate.graph.ir import Graph
from delegate.options import Options
from delegate.runtime.device import Device
from delegate.sandbox import helper
from delegate.sandbox.records import Records
from delegate.sandbox.trials import Free, Trial, UnderWay
from delegate.start.engine import Engine
from delegate.start.probe import broken
from delegate.store import has_stores
from delegate.tuning.chooser import Chooser

# Whether engines are rehearsed at all. Tests whose processes may die switch it off.
is_on = True
# The child that works ahead is not pinned: it would share the first child's cores.
_AHEAD = {"POCL_AFFINITY": "0"}
_AHEAD_SECONDS = 60
_Found = TypeVar("_Found")
_log = logging.getLogger("delegate")
_said: set[str] = set()  # why trials are left out


class Repeated(Free):
    """The user's process: repeats what a child did, and asks a child for what none did yet.

    Attributes:
        records: how trials ended.
    """

    repeats = True

    def __init__(
        self,
        options: Options,
        is_first: bool,
        ahead: Collection[int],
        device: Device,
        chooser: Chooser,
    ) -> None:
        """`options`: of the engine, whose choices a child makes from here on. `is_first`: start.

        `ahead`: the subgraphs that another child compiles, whose end is waited for.
        """
        info, self._chooser = device.info, chooser
        self.records = Records(device.identity, partial(broken, info, options.profile))
        super().__init__(self.records.done, self.records.left_out)
        self._banned_before = {*self.records.left_out.values()}
        chooser.leave_to_child(self._wait)
        self._same = info.identity, replace(options, device=info.index, own_context=False)
        self._lock = threading.Lock()  # of what follows, while a request is settled
        self._request: tuple[object, ...] = ()  # the last one
        self._awaited: set[object] = set()  # trials and keys of choices that no record has
        self._asked: set[object] = set()  # those that a child was asked for, each once
        self._hide: Callable[[], object] = lambda: None
        self._number = 0  # of the subgraph that was judged last
        self._ahead = {*ahead}
        # In a first start nothing is known of the first request of a kind: to look costs time.
        self._unasked = {"verdicts", "executor"} if is_first else set()

    @contextmanager
    def of(self, trial: Trial) -> Iterator[UnderWay]:
        self._refuse_left_out(trial)
        if trial not in self._done:  # though all was known: a file is gone, or the like
            self._do_first(trial)
        yield UnderWay(self._done[trial])

    def is_due(self, trial: Trial) -> bool:
        with self.of(trial):
            return False

    def note(self, trial: Trial, how: str) -> None:
        """Record nothing: children do."""

    def awaits(self, trial: Trial) -> bool:
        is_untried = trial not in self._done and self._why_not(trial) is None
        if is_untried:
            self._wait(trial)
        return is_untried

    def settled(self, request: tuple[object, ...], look: Callable[[], _Found]) -> _Found:
        try:
            with self._lock:
                self._request = request
                if isinstance(judged := request[1], Graph):
                    self._number = judged.subgraph
                if request[0] in self._unasked:
                    self._unasked.remove(request[0])
                    self._rehearse(request)
                while True:
                    with progress.unwatched_from() as self._hide:
                        found = look()
                    if self._awaited <= self._asked:
                        break
                    self._asked |= self._awaited
                    self._rehearse(request)
        finally:
            if request[0] == "executor":
                self._ahead.discard(self._number)
                if not self._ahead:
                    helper.stop_ahead()
        self._say_bans()
        return found

    def _wait(self, what: object) -> None:
        self._awaited.add(what)
        self._hide()  # all is looked up again

    def _do_first(self, trial: Trial) -> None:
        """Let a child do the request in which this trial came up.

        Raises:
            KilledChild: it is left out now. GivenUp: no child does it.
        """
        if trial not in self._asked:
            self._asked.add(trial)
            try:
                self._rehearse(self._request)
            except DeviceError as error:
                raise GivenUp(str(error)) from error
        self._refuse_left_out(trial)
        if trial not in self._done:
            raise GivenUp(f"no child process tries to {trial.words}")

    def _rehearse(self, request: tuple[object, ...]) -> None:
        """Let children do the request, and take what they found; raises as Records.ask."""
        if request[0] == "executor" and self._chooser.state()[1] > 0:
            helper.stop_ahead()  # what is measured has the processor for itself
        elif request[0] == "executor" and self._number in self._ahead:
            helper.await_ahead(_AHEAD_SECONDS)  # of two that compile the same both are late

        def wanted() -> tuple[object, ...]:
            known = self.records.done, self.records.left_out, self._chooser.state()
            return "engine", self._same, request, *known

        begun = time.perf_counter()
        with progress.phase("build"):
            choices, seconds_left, taken = self.records.ask(wanted)
        if request[0] == "verdicts":  # the next start need not build them, and measures
            seconds_left -= time.perf_counter() - begun
        self._chooser.go_on(choices, seconds_left, taken)

    def _say_bans(self) -> None:
        """Say once what of earlier starts' bans this one met."""
        met = self.met & self._banned_before - _said
        # Of what this start left out a WARN told.
        _said.update(met, {*self.records.left_out.values()} - self._banned_before)
        if met:
            _log.warning(
                "kernels are left out on this device, because child processes died of them before: "
                "`tflite-opencl info --bans` says which"
            )


def open_engine(
    options: Options,
    run: Callable[[], Sequence[Graph]] = list,
    device: Device | None = None,
) -> Engine:
    """Return an engine, which repeats what a child did where the options say so.

    `run`: tells the graphs that will be, in that order, as far as they are known. `device`: one
    that is opened already. Raises: as Engine, and what `run` raises.
    """
    options = replace(options, device_profile=options.profile)  # it is read once
    if not (options.in_child_first and is_on):
        return Engine(options, device=device)
    is_first, later = not has_stores(), set[int]()
    if is_first and _has_a_core_to_spare() and (graphs := [*run()]):
        # A second child compiles while the first one runs the self-tests and tries kernel after
        # kernel: the driver keeps what it compiled, and the first child finds it.
        helper.go_ahead("ahead", options, graphs, **_AHEAD)
        later = {graph.subgraph for graph in graphs[1:]}
    return Engine(options, partial(Repeated, options, is_first, later), device)


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
