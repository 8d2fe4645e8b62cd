# SPDX-License-Identifier: Apache-2.0
"""The child process that does first what may end or hold a process: one for a whole start.

It is given requests (delegate/start/helper_child.py has them) and tells each step before it begins.
It dies in the place of this process. If nothing is asked for some seconds, it ends itself.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import pickle
import re
import struct
import threading
from dataclasses import dataclass, field
from typing import Any

from delegate import progress
from delegate.errors import NoDeviceError
from delegate.sandbox import surroundings
from delegate.sandbox.child import Child, Ended, Lines, command_of
from delegate.sandbox.trials import Trial

STEP_SECONDS = 60  # for a kernel; a slow board's compiler takes some seconds
BETWEEN_SECONDS = 120  # from one step to the next: imports, packing constants, releasing memory
_LAST_SECONDS = 2.0  # for its own end
_SLACK_SECONDS = 10  # then the child ends itself: this process may be gone
_SLICE_SECONDS = 0.5
_BY_CHANCE = re.compile(r"\S*[\d/]\S*")  # words that differ from process to process
_log = logging.getLogger("delegate")


@dataclass(slots=True)
class Heard:
    """What a child said of one request."""

    found: dict[Trial, str] = field(default_factory=dict)  # how trials ended
    trying: list[Trial] = field(default_factory=list)  # those under way, the innermost last
    is_answered: bool = False  # it did all that was asked
    answer: Any = None
    end: str = ""  # else: how it ended
    words: str = ""  # what drivers had written to stderr then
    is_late: bool = False  # it hung
    is_own: bool = True  # it ended itself, or hung: nobody killed it, and no limit of this process

    def hear(self, line: bytes) -> None:
        """Take a line of the child; other lines are a driver's."""
        try:
            told = json.loads(line)
            match told:
                case {"trying": trial}:
                    self.trying.append(Trial.unpacked(trial))
                case {"tried": packed, "how": how}:
                    trial = Trial.unpacked(packed)
                    if self.trying and self.trying[-1] == trial:
                        self.trying.pop()
                    self.found[trial] = how
                case {"log": text, "level": level}:
                    _log.log(level, "%s", text)
                case {"progress": [str(word), *arguments]}:
                    progress.relayed(word, *arguments)
                case {"answer": answer}:
                    self.is_answered, self.answer = True, answer
        except (ValueError, TypeError):
            return

    @property
    def remedy(self) -> str:
        """What to do about its end, for the end of a sentence; "": not known."""
        return "" if self.is_own else surroundings.remedy(was_killed=True)

    def is_like(self, other: Heard) -> bool:
        """Whether both ends are the same, but for numbers and names of files in their words."""
        return _BY_CHANCE.sub("", self.end) == _BY_CHANCE.sub("", other.end)


def ask(*request: object, step_seconds: int | None = None) -> Heard:
    """Return what the child says to a request; it goes on living if it answers.

    `step_seconds`: for each step; STEP_SECONDS if not given.
    Raises: NoDeviceError: it cannot be started.
    """
    global _helper
    step_seconds = STEP_SECONDS if step_seconds is None else step_seconds
    with _lock:
        while True:
            if _helper is None or _helper.environment != os.environ:
                _close()
                _helper = _started()
            try:
                with progress.relay_ends():
                    heard = _helper.heard(request, step_seconds)
            except BaseException:
                _close(is_idle=False)
                raise
            if heard is not None and not heard.is_answered:
                _close(is_idle=False)
            if heard is not None:
                return heard
            _close()


def _started() -> _Helper:
    try:
        return _Helper()
    except OSError as error:
        why = f"{error.strerror or error}{surroundings.remedy()}"
        raise NoDeviceError(f"no child process starts: {why}") from error


def begin() -> None:
    """Start the child that `ask` will ask, if there is none: it is ready the sooner."""
    global _helper
    with _lock, contextlib.suppress(OSError):  # `ask` meets that, too
        if _helper is None:
            _helper = _Helper()
            _helper.is_early = True


def begin_ahead(**environment: str) -> None:
    """Start the child that `go_ahead` will give a request, in this environment."""
    global _ahead
    with _ahead_lock:
        stop_ahead()
        _ahead = _Helper(**environment)


def go_ahead(*request: object, **environment: str) -> None:
    """Let another child work on a request until `stop_ahead`; nobody listens to it."""
    with _ahead_lock:
        if _ahead is None or not _ahead.is_new or _ahead.environment != os.environ:
            begin_ahead(**environment)
        assert _ahead is not None
        _ahead.send(request, STEP_SECONDS, is_last=True)


def stop_ahead() -> None:
    """End the child that works ahead, if there is one, and do not wait for its end."""
    global _ahead
    with _ahead_lock:
        ended, _ahead = _ahead, None
    if ended is not None:
        ended.kill()
        # It may have to write a file to the end first.
        threading.Thread(target=ended.close, args=(False,), daemon=True).start()


class _Helper:
    """The child process of delegate.start.helper_child.

    Attributes:
        environment: that it was started with, but for the variables that were given beside it.
        is_new: whether it was given no request yet.
        is_early: whether it was started long before one, so that it may have ended itself.
    """

    def __init__(self, **environment: str) -> None:
        """`environment`: variables beside this process's."""
        self.environment = dict(os.environ)
        # In memory: there may be no folder for temporary files.
        self._errors = open(os.memfd_create("errors"), "w+b")  # noqa: SIM115
        # In this process's group: who ends the group ends the child.
        command = command_of("delegate.start.helper_child")
        own = {"OPENBLAS_NUM_THREADS": "1", **environment}  # NumPy starts threads nobody needs
        self._child = Child(command, self._errors, own, has_own_session=False)
        self._lines = Lines(self._child.answers.fileno())
        self.is_new, self.is_early = True, False

    def send(self, request: object, step_seconds: int, is_last: bool = False) -> None:
        """Send a request; `is_last`: the child ends after it."""
        limits = step_seconds + _SLACK_SECONDS, BETWEEN_SECONDS + _SLACK_SECONDS
        room = surroundings.room_before() if surroundings.shortages() else None
        sent = (request, *limits, room, _log.getEffectiveLevel())
        content = pickle.dumps(sent, protocol=5)
        self._child.send(struct.pack("<Q", len(content)) + content, is_last)
        self.is_new = False

    def heard(self, request: object, step_seconds: int) -> Heard | None:
        """Send a request and listen to its end, or the child's; None: it had ended before."""
        heard = Heard()
        mark = self._errors.seek(0, os.SEEK_END)
        has_said = self.is_new and not self.is_early
        self.send(request, step_seconds)
        while not heard.is_answered:
            limit = step_seconds if heard.trying else BETWEEN_SECONDS
            line = self._line(limit)
            if not line:
                if not has_said and line is not None:
                    return None
                self._end(heard, mark, line is None, limit)
                break
            has_said = True
            heard.hear(line)
        return heard

    def _line(self, seconds: float) -> bytes | None:
        """Return a line as Lines.next does. No time counts in which either process is stopped."""
        waited = 0.0
        while waited < seconds:
            line = self._lines.next(_SLICE_SECONDS)
            if line is not None:
                return line
            waited += 0.0 if self._child.is_stopped else _SLICE_SECONDS
        return None

    def _end(self, heard: Heard, mark: int, is_late: bool, limit: int) -> None:
        self._errors.seek(mark)
        heard.words = self._errors.read().decode(errors="replace")
        ended = Ended(None if is_late else self._child.wait(), heard.words)
        heard.end, heard.is_own, heard.is_late = (
            ended.words(limit),
            ended.is_own,
            ended.code is None,
        )

    def kill(self) -> None:
        """End the child, without waiting for that."""
        self._child.kill()

    def close(self, is_idle: bool) -> None:
        """End the child; `is_idle`: it waits for a request, so that it ends itself without one."""
        if is_idle and not self.is_new:
            self._child.send(b"", is_last=True)
            self._child.wait(_LAST_SECONDS)
        self._child.close()
        self._errors.close()


_helper: _Helper | None = None
_ahead: _Helper | None = None  # another one, which nobody listens to
_lock = threading.Lock()
_ahead_lock = threading.RLock()  # another one: `_lock` is held while a child works


@atexit.register
def _end() -> None:
    _close()
    if _ahead is not None:
        _ahead.kill()


def _close(is_idle: bool = True) -> None:
    global _helper
    if _helper is not None:
        _helper.close(is_idle)
    _helper = None
