# SPDX-License-Identifier: Apache-2.0
"""The child process that owns a device, and its replacement after a crash."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import lru_cache, partial
from typing import Any, Protocol

from delegate.errors import (
    DeviceError,
    InvalidValue,
    KilledChild,
    NoDeviceError,
    NotRestarted,
    ProfileError,
    TooLarge,
    Unsupported,
)
from delegate.guard.children import environment, process, progress
from delegate.guard.children.child import END_SECONDS, Child, ChildDied, command_of
from delegate.plan.codec import UnreadablePlan
from delegate.plan.contents import MissingContent
from delegate.run.programs import MissingBinary

EVENT_SECONDS = 150  # between events of a start: the self-test of a device takes 120
_ALL_SECONDS, _MOST = 60.0, 3  # deaths within this time, then it is given up
_GIVEN_UP = (
    f"the process that executes the plan ended {_MOST} times within {_ALL_SECONDS:.0f} s, so no "
    "other one is started"
)
_ERRORS = {
    each.__name__: each
    for each in (
        *(InvalidValue, KilledChild, NoDeviceError, ProfileError, TooLarge, Unsupported),
        *(MissingBinary, MissingContent, UnreadablePlan),
    )
}
_log = logging.getLogger("delegate")


class ExitObserver(Protocol):
    """An object with values in a child."""

    def child_ended(self, why: str) -> None:
        """Called when they are lost."""


class IsolationProcess:
    """A child process with an opened device. Its lock is taken by `with`, one thread at a time.

    Attributes:
        facts: the child's description of the device; number: of the child, from 1.
        observers: notified when a child has ended.
        is_closed: whether `close` was called.
    """

    def __init__(
        self, opening: Callable[[Mapping[str, Any]], tuple[object, ...]], seconds: float
    ) -> None:
        """Start a child, and open the device in it.

        `opening`: returns the child's arguments, given the facts of the previous one, at first {}.
        `seconds`: time limit of a run; 0: none.
        Raises: as opening a device. DeviceError: the child died, or cannot be started.
        """
        process.require_own()
        self._opening, self._seconds = opening, seconds or float("inf")
        self.facts: Mapping[str, Any] = {}
        self.number = 0
        self.is_closed = False
        self._user = os.getpid()  # excludes forks
        self._child: Child | None = None
        self._stop: Any = None  # a weakref.finalize that ends the child
        self._deaths: deque[float] = deque(maxlen=_MOST)
        self.observers: weakref.WeakSet[ExitObserver] = weakref.WeakSet()
        self._is_ready = False
        self._deferred: deque[tuple[int, tuple[object, ...]]] = deque()
        self._lock = threading.Lock()
        self._owner = 0  # the thread that holds the lock
        with self:
            self._open()

    def __enter__(self) -> None:
        process.require_own()
        thread = threading.get_ident()
        if self._owner == thread:  # in a signal handler
            raise DeviceError("the process that executes plans is in the middle of a run")
        self._lock.acquire()
        self._owner = thread

    def __exit__(self, *exception: object) -> None:
        self._owner = 0
        self._lock.release()

    # The methods up to `defer` require the lock.

    def require(self) -> int:
        """Return the number of a child that has opened the device; starts one if necessary.

        Raises: NotRestarted: too many have died. DeviceError: it cannot be started, or died.
        """
        if not self._is_ready:
            self._open()
        while self._deferred:
            number, request = self._deferred.popleft()
            if number == self.number:
                self.ask(*request)
        return self.number

    def ask(self, *request: object) -> dict[str, Any]:
        """Return this child's answer; re-raises its exceptions, and KilledChild: it died."""
        try:
            child = self._require_child()
            child.send(pickle.dumps(request, protocol=5))
            return self._answer_to(child.event(EVENT_SECONDS), EVENT_SECONDS)
        except BaseException as error:
            self._handle_error(error, KilledChild)
            raise

    def run(self, number: int) -> None:
        """Run the action of this number in the child; raises as `ask`, except DeviceError."""
        try:
            event = self._require_child().exchange(number, self._seconds)
            if event is not None:
                self._answer_to(event, self._seconds)
        except BaseException as error:
            self._handle_error(error, DeviceError)
            raise

    def _handle_error(self, error: BaseException, kind: type[DeviceError]) -> None:
        """Raise how the child ended, if it did; replace a child interrupted by Ctrl-C."""
        if isinstance(error, ChildDied):
            if self.is_closed:
                raise DeviceError("the device was closed") from None
            why = f"the process that executes the plan {error.exit}{error.exit.remedy}"
            self._lose(why)
            raise kind(why) from None
        if not isinstance(error, Exception):
            self._replace("a run was interrupted")

    def defer(self, *request: object) -> None:
        """Send this before the next request, or now if the lock is free."""
        if os.getpid() != self._user:
            return
        self._deferred.append((self.number, request))
        if not self._is_ready or not self._lock.acquire(blocking=False):
            return
        try:
            if self._is_ready:
                with contextlib.suppress(DeviceError):
                    self.require()
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the child, even during a run; a second call does nothing."""
        self.is_closed = True
        child = self._child
        if child is not None and os.getpid() == self._user and self._stop.detach():
            child.close(0.0 if self._lock.locked() else END_SECONDS)

    @property
    def cpu_seconds(self) -> float:
        """Processor time of the child; 0: there is none."""
        child = self._child
        if child is None or self.is_closed:
            return 0.0
        with contextlib.suppress(OSError):  # it has exited
            return time.clock_gettime(~child.pid << 3 | 2)  # see clock_getcpuclockid(3)
        return 0.0

    def _require_child(self) -> Child:
        # Finalisers run in any order: a user of this may be closed after the child was.
        if self._child is None or self.is_closed or not self._stop.alive:
            raise DeviceError("the device was closed")
        return self._child

    def _open(self) -> None:
        if self.is_closed:
            raise DeviceError("the device was closed")
        if self._is_given_up:
            raise NotRestarted(_GIVEN_UP)
        if self._child is None:
            self._start()
        self.facts = self.ask(*self._opening(self.facts))
        self._is_ready = True

    def _start(self) -> None:
        command = command_of("delegate.guard.isolated_child", str(os.getpid()))
        own = {"OPENBLAS_NUM_THREADS": "1"}  # NumPy would start unused threads
        try:
            self._child = _starter()(partial(_IsolatedChild, command, own))
        except OSError as error:
            why = f"{error.strerror or error}{environment.remedy()}"
            raise DeviceError(f"no child process starts: {why}") from error
        self.number += 1
        self._stop = weakref.finalize(self, _stop, self._child, os.getpid())

    def _answer_to(self, event: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Return the answer to a request, from this event and those that follow."""
        child = self._require_child()
        while True:
            match event:
                case {"number": _}:
                    return {}
                case {"answer": dict(answer), **rest}:
                    return answer | rest
                case {"error": [str(name), str(text)], "is_lost": is_lost}:
                    if is_lost:  # the driver's context may be unusable
                        self._lose(text)
                    raise _ERRORS.get(name, DeviceError)(text)
                case {"log": str(text), "level": int(level)}:
                    _log.log(level, "%s", text)
                case {"progress": [str(word), *arguments]}:
                    progress.relay(word, *arguments)
            event = child.event(seconds)

    def _lose(self, why: str) -> None:
        """Replace a child that has died, hangs, or has a failing driver."""
        self._deaths.append(time.monotonic())
        self._replace(why)

    def _replace(self, why: str) -> None:
        """End the child, and start the next one, which imports modules in the background.

        It opens nothing until requested.
        """
        if self._child is not None and self._stop.detach():
            self._child.close()
        self._child, self._is_ready = None, False
        self._deferred.clear()
        for each in [*self.observers]:
            each.child_ended(why)
        if self._is_given_up:
            _log.warning("%s: %s", _GIVEN_UP, why)
        elif not self.is_closed:
            with contextlib.suppress(DeviceError):  # the next run reports it
                self._start()

    @property
    def _is_given_up(self) -> bool:
        deaths = self._deaths
        return len(deaths) == _MOST and deaths[-1] - deaths[0] <= _ALL_SECONDS


class _IsolatedChild(Child):
    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Driver output goes to this process's stderr."""
        super().__init__(command, environment, keeps_stderr=False, is_awaited_stopped=False)


def _stop(child: Child, owner: int) -> None:
    """End a child that is no longer referenced, unless in a forked process."""
    if os.getpid() == owner:
        child.close()


class _Starter:
    """A thread as old as the process: Linux kills children with the thread that started them."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[tuple[Callable[[], Child], Future[Child]]]
        self._waiting = queue.SimpleQueue()
        threading.Thread(target=self._work, name="starts child processes", daemon=True).start()

    def __call__(self, make: Callable[[], Child]) -> Child:
        made: Future[Child] = Future()
        self._waiting.put((make, made))
        return made.result()

    def _work(self) -> None:
        while True:
            make, made = self._waiting.get()
            try:
                made.set_result(make())
            except BaseException as error:
                made.set_exception(error)


@lru_cache(maxsize=1)
def _starter() -> _Starter:
    return _Starter()
