# SPDX-License-Identifier: Apache-2.0
"""The helper: a child process that does first what may crash or hang, one for a whole start.

It takes requests (see delegate/guard/helper_child.py), and reports each step before it begins. It
exits by itself when idle for some seconds.
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

STEP_SECONDS = 60  # for a kernel; a slow board's compiler takes several seconds
BETWEEN_SECONDS = 120  # between steps: imports, packing constants, releasing memory
_SLACK_SECONDS = 10  # after that the child exits: this process may be gone
_ALIVE = ChildExit(0)
_log = logging.getLogger("delegate")


@dataclass(slots=True)
class Response:
    """The events of a child for one request."""

    outcomes: dict[Trial, str] = field(default_factory=dict)  # of completed trials
    trying: list[Trial] = field(default_factory=list)  # trials in progress, the innermost last
    has_events: bool = False  # any event
    is_answered: bool = False  # it completed the request
    answer: Any = None
    payload: bytes = b""  # of the answer
    exit: ChildExit = _ALIVE  # how it ended, if it did

    def handle_event(self, event: Mapping[str, Any]) -> None:
        """Process an event of the child."""
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
    """Return the helper's response to a request; it stays alive if it answers.

    `step_seconds`: time limit of each step; default STEP_SECONDS.
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
            # An old child without events had exited before: unrelated to this request.
            if is_fresh or response.has_events or response.exit.is_late:
                return response


def ask_fresh_child(*request: object, step_seconds: int, **variables: str) -> Response:
    """Return the response of a new child, started with these variables."""
    try:
        with _Helper(**variables) as child:
            return child.response_to(request, step_seconds)
    except OSError as error:
        return Response(exit=ChildExit(1, f"it cannot be started: {error.strerror or error}"))


def begin() -> None:
    """Start the helper if there is none, ahead of the first `ask`."""
    global _helper
    with _lock, contextlib.suppress(OSError):  # `ask` reports it
        _helper = _helper or _Helper()


def renew() -> None:
    """Use a new child for the next request."""
    with _lock:
        _close()


class _Helper(Child):
    """The child process of delegate.guard.helper_child.

    Attributes:
        environment: of this process when it was started, without its own variables.
        is_new: whether it has had no request yet.
    """

    def __init__(self, **variables: str) -> None:
        """`variables`: in addition to this process's."""
        self.environment = dict(os.environ)
        self.is_new = True
        self._sender = RequestPickler()
        own = {"OPENBLAS_NUM_THREADS": "1", **variables}  # NumPy would start unused threads
        # In this process's group: killing the group kills the child.
        super().__init__(command_of("delegate.guard.helper_child"), own, has_own_session=False)

    def request(self, request: object, step_seconds: int) -> None:
        """Send a request."""
        limits = step_seconds + _SLACK_SECONDS, BETWEEN_SECONDS + _SLACK_SECONDS
        usage = environment.initial_usage() if environment.shortages() else None
        sent = (request, *limits, usage, _log.getEffectiveLevel())
        self.is_new = False
        self.send(self._sender.dumps(sent))

    def response_to(self, request: object, step_seconds: int) -> Response:
        """Send a request and process events until it is done, or the child has ended."""
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
    """End the child; `is_idle`: it waits for a request, so it exits by itself."""
    global _helper
    if _helper is not None:
        _helper.close(END_SECONDS if is_idle and not _helper.is_new else 0)
    _helper = None
