# SPDX-License-Identifier: Apache-2.0
"""An engine that does only what a child process has done before, and not what killed the child.

The engine does what it does until it meets what no child has tried on this device (`Untried`). Then
a child does the whole request, with the same code, and tells each step before it begins. If the
child dies or hangs, the step it was in is marked on disk, by device, driver and source, and another
child goes on with what is left: a kernel costs an alternative, then a node. In the end this process
repeats what the child did. A later start finds everything on disk and needs no child.
"""

from __future__ import annotations

import atexit
import json
import logging
import pickle
import struct
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from delegate.child import Child, Lines, command_of, signal_name
from delegate.engine import Engine
from delegate.errors import DeviceError, Untried
from delegate.graph.ir import Graph
from delegate.graph.partition import Partition
from delegate.graph.verdict import Verdict
from delegate.profiles import DeviceProfile
from delegate.runtime.executor import Executor
from delegate.runtime.trials import FAILED, Guarded, Records
from delegate.target import Target

STEP_SECONDS = 60  # for a kernel; a slow board's compiler takes some seconds
BETWEEN_SECONDS = 120  # from one step to the next: packing constants, releasing memory
_LAST_SECONDS = 2.0  # for its own end
_SLACK_SECONDS = 15  # the child ends itself first, unless it cannot even do that
# Then the device is given up: a driver that hangs costs a minute each time.
_MOST_DEATHS, _MOST_HANGS, _MOST_STRAYS = 10, 3, 3
# Whether engines are rehearsed at all. Tests whose processes may die switch it off.
is_on = True
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
    ) -> None:
        excluded = exclude_isa if isinstance(exclude_isa, str) else tuple(exclude_isa)
        super().__init__(
            selector, tune, excluded, profiling, profile, own_context, alternative, self._guarded
        )
        self.tuner.leave_to_child()
        info = self.device.info
        self._same = (info.index, info.identity, tune, excluded, profiling, profile, alternative)

    def _guarded(self, identity: str) -> Guarded:
        self._records = Records(identity)
        return Guarded(self._records)

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
        return self._repeated(
            lambda: ask(partition, target, batch), ("executor", partition, target, batch)
        )

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
            self._rehearse(request)

    def _rehearse(self, request: tuple[object, ...]) -> None:
        deaths = hangs = strays = 0
        while True:
            sent = (self._same, request, self._records.known, self.tuner.state())
            heard = _heard_of_child(sent)
            self._records.add(heard.found)
            if heard.state is not None:
                self.tuner.go_on(*heard.state)
                return
            if heard.is_idle:
                continue
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


def open_engine(in_child_first: bool, *arguments: Any) -> Engine:
    """Return an engine; `in_child_first`: one that is rehearsed. `arguments`: RehearsedEngine's."""
    return (RehearsedEngine if in_child_first and is_on else Engine)(*arguments)


def _blamed(name: str) -> str:
    """Return the trial that is to be marked where a child died in one."""
    kind, digest, *_ = name.split()
    return f"program {digest}" if kind in ("kernel", "run") else name


def _words(name: str) -> str:
    """Return a trial for people."""
    kind, digest, *more = name.split()
    if kind in ("kernel", "run"):
        return f"to {'run' if kind == 'run' else 'make'} kernel {more[0]}"
    words = {
        "program": f"to build {digest}",
        "binary": f"to get the binary of {digest}",
        "recorded": "to record launches in a command buffer",
    }
    return words.get(kind, "to allocate and run a group of nodes")


@dataclass(slots=True)
class _Heard:
    """What a child said of one request."""

    found: dict[str, str] = field(default_factory=dict)  # how trials ended, by name
    trying: list[str] = field(default_factory=list)  # those under way, the innermost last
    state: tuple[Mapping[str, str], float] | None = None  # its tuner's; None: it ended before
    end: str = ""  # how it ended
    is_late: bool = False  # it hung
    is_idle: bool = False  # it had ended by itself before the request came

    def hear(self, line: bytes) -> None:
        """Take a line of the child."""
        told = json.loads(line)
        if "trying" in told:
            self.trying.append(told["trying"])
        elif "tried" in told:
            if self.trying and self.trying[-1] == told["tried"]:
                self.trying.pop()
            self.found[told["tried"]] = told["how"]
        elif "log" in told:
            _log.log(told["level"], "%s", told["log"])
        else:
            self.state = told["known"], told["seconds_left"]


class _Helper:
    """The child process of delegate.rehearsal_child; it ends itself after seconds of nothing."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        # In this process's group: who ends the group ends the child.
        command = command_of("delegate.rehearsal_child")
        self._child = Child(command, self._errors, has_own_session=False)
        self._lines = Lines(self._child.answers.fileno())

    def heard(self, request: object) -> _Heard:
        """Send a request and listen to its end, or the child's."""
        heard = _Heard()
        mark = self._errors.seek(0, 2)
        sent = pickle.dumps((request, STEP_SECONDS, BETWEEN_SECONDS, _log.getEffectiveLevel()), 5)
        self._child.send(struct.pack("<Q", len(sent)) + sent)
        is_first = True
        while heard.state is None:
            limit = STEP_SECONDS if heard.trying else BETWEEN_SECONDS
            line = self._lines.next(limit + _SLACK_SECONDS)
            if not line:
                self._end(heard, mark, is_late=line is None, limit=limit)
                heard.is_idle = is_first and heard.end == "ended with code 0"
                break
            is_first = False
            heard.hear(line)
        return heard

    def _end(self, heard: _Heard, mark: int, is_late: bool, limit: int) -> None:
        code = None if is_late else self._child.wait()
        name = None if code is None else signal_name(code)
        heard.is_late = code is None or name == "SIGALRM"
        self._errors.seek(mark)
        words = [each.strip() for each in self._errors.read().decode(errors="replace").split("\n")]
        told = next((f": {each}" for each in reversed(words) if each), "")
        if heard.is_late:
            heard.end = f"gave no answer within {limit} s"
        else:
            heard.end = f"died with {name}{told}" if name else f"ended with code {code}{told}"

    def close(self, is_waiting: bool) -> None:
        """End the child; `is_waiting`: for a request, so that it ends itself without one."""
        if is_waiting:
            self._child.send(b"", is_last=True)
            self._child.wait(_LAST_SECONDS)
        self._child.close()
        self._errors.close()


_helper: _Helper | None = None
_lock = threading.Lock()


def _heard_of_child(request: object) -> _Heard:
    """Return what the child says, which goes on living if it answered."""
    global _helper
    with _lock:
        if _helper is None:
            _helper = _Helper()
        try:
            heard = _helper.heard(request)
        except BaseException:
            _close_helper(is_waiting=False)
            raise
        if heard.state is None:
            _close_helper(is_waiting=False)
        return heard


@atexit.register
def _close_helper(is_waiting: bool = True) -> None:
    global _helper
    if _helper is not None:
        _helper.close(is_waiting)
    _helper = None
