# SPDX-License-Identifier: Apache-2.0
"""The child process that does first what may end or hold a process: one for a whole start.

It is given requests (delegate/guard/helper_child.py has them) and tells each step before it begins.
It dies in the place of this process. If nothing is asked for some seconds, it ends itself.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from delegate.errors import NoDeviceError
from delegate.guard.children import environment, progress
from delegate.guard.children.child import END_SECONDS, Child, ChildDied, ChildExit, command_of
from delegate.guard.children.request_pickler import RequestPickler
from delegate.guard.children.trials import Trial

STEP_SECONDS = 60  # for a kernel; a slow board's compiler takes some seconds
BETWEEN_SECONDS = 120  # from one step to the next: imports, packing constants, releasing memory
_SLACK_SECONDS = 10  # then the child ends itself: this process may be gone
_ALIVE = ChildExit(0)
_log = logging.getLogger("delegate")


@dataclass(slots=True)
class Response:
    """What a child said of one request."""

    outcomes: dict[Trial, str] = field(default_factory=dict)  # how trials ended
    trying: list[Trial] = field(default_factory=list)  # those under way, the innermost last
    has_events: bool = False  # anything
    is_answered: bool = False  # it did all that was asked
    answer: Any = None
    payload: bytes = b""  # of the answer
    exit: ChildExit = _ALIVE  # how, if not

    def handle_event(self, event: Mapping[str, Any]) -> None:
        """Take an event of the child."""
        self.has_events = True
        match event:
            case {"trying": trial}:
                self.trying.append(Trial.unpacked(trial))
            case {"tried": packed, "how": how}:
                trial = Trial.unpacked(packed)
                if self.trying and self.trying[-1] == trial:
                    self.trying.pop()
                self.outcomes[trial] = how
            case {"log": text, "level": level}:
                _log.log(level, "%s", text)
            case {"progress": [str(word), *arguments]}:
                progress.relay(word, *arguments)
            case {"answer": answer}:
                self.is_answered, self.answer = True, answer
                self.payload = event.get("payload", b"")


def ask(*request: object, step_seconds: int | None = None) -> Response:
    """Return what the child says to a request; it goes on living if it answers.

    `step_seconds`: for each step; STEP_SECONDS if not given.
    Raises: NoDeviceError: it cannot be started.
    """
    global _helper
    step_seconds = STEP_SECONDS if step_seconds is None else step_seconds
    with _lock:
        while True:
            is_fresh = _helper is None or _helper.environment != os.environ
            if is_fresh:
                _close()
                try:
                    _helper = _Helper()
                except OSError as error:
                    why = f"{error.strerror or error}{environment.remedy()}"
                    raise NoDeviceError(f"no child process starts: {why}") from error
            assert _helper is not None
            try:
                with progress.relay_ends():
                    response = _helper.response_to(request, step_seconds)
            except BaseException:
                _close(is_idle=False)
                raise
            if response.is_answered:
                return response
            _close(is_idle=False)
            # An older one that says nothing had ended before: that is no news of this request.
            if is_fresh or response.has_events or response.exit.is_late:
                return response


def ask_fresh_child(*request: object, step_seconds: int, **variables: str) -> Response:
    """Return what a child of its own, with these variables, says to a request."""
    try:
        with _Helper(**variables) as child:
            return child.response_to(request, step_seconds)
    except OSError as error:
        return Response(exit=ChildExit(1, f"it cannot be started: {error.strerror or error}"))


def begin() -> None:
    """Start the child that `ask` will ask, if there is none: it is ready the sooner."""
    global _helper
    with _lock, contextlib.suppress(OSError):  # `ask` meets that, too
        _helper = _helper or _Helper()


def renew() -> None:
    """Let the next request be another child's."""
    with _lock:
        _close()


class _Helper(Child):
    """The child process of delegate.guard.helper_child.

    Attributes:
        environment: that it was started with, but for the variables that were given beside it.
        is_new: whether it was given no request yet.
    """

    def __init__(self, **variables: str) -> None:
        """`variables`: variables beside this process's."""
        self.environment = dict(os.environ)
        self.is_new = True
        self._sender = RequestPickler()
        own = {"OPENBLAS_NUM_THREADS": "1", **variables}  # NumPy starts threads nobody needs
        # In this process's group: who ends the group ends the child.
        super().__init__(command_of("delegate.guard.helper_child"), own, has_own_session=False)

    def request(self, request: object, step_seconds: int) -> None:
        """Send a request."""
        limits = step_seconds + _SLACK_SECONDS, BETWEEN_SECONDS + _SLACK_SECONDS
        usage = environment.initial_usage() if environment.shortages() else None
        sent = (request, *limits, usage, _log.getEffectiveLevel())
        self.is_new = False
        self.send(self._sender.dumps(sent))

    def response_to(self, request: object, step_seconds: int) -> Response:
        """Send a request and listen to its end, or the child's."""
        response = Response()
        self.request(request, step_seconds)
        try:
            while not response.is_answered:
                response.handle_event(
                    self.event(step_seconds if response.trying else BETWEEN_SECONDS)
                )
        except ChildDied as died:
            response.exit = died.exit
        return response


_helper: _Helper | None = None
_lock = threading.Lock()


@atexit.register
def _end() -> None:
    _close()


def _close(is_idle: bool = True) -> None:
    """End the child; `is_idle`: it waits for a request, so that it ends itself without one."""
    global _helper
    if _helper is not None:
        _helper.close(END_SECONDS if is_idle and not _helper.is_new else 0)
    _helper = None
