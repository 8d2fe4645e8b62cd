# SPDX-License-Identifier: Apache-2.0
"""A run of a Model: pictures on their way through a device, or what came of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from delegate.errors import DeviceError
from delegate.runtime.device_list import DeviceInfo
from delegate.sandbox import process

Array = NDArray[Any]
LOOK_SECONDS = 0.5  # whoever waits looks again after so long


class Signal:
    """Wakes a thread that waits, or the next one that will. Ctrl-C cannot break it.

    A lock of C alone is either taken or not when Ctrl-C comes. threading.Condition and what is made
    of it, such as Event and Future, may keep theirs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def give(self) -> None:
        """Let one thread go on."""
        if self._lock.locked():
            with contextlib.suppress(RuntimeError):  # another thread gave it meanwhile
                self._lock.release()

    def wait(self, seconds: float = LOOK_SECONDS) -> None:
        """Return when it was given, or after so many seconds."""
        self._lock.acquire(timeout=seconds)


class Run:
    """Up to a batch of pictures on their way through a device.

    Attributes:
        device: whose outputs these are; None: there are none yet, or no device could.
        arrays: what the device reads until the end; count: of pictures in them.
        is_given: the arrays are of `Model.empty_input`.
        is_begun: a device has it; outcome: what came of it; ended: given when it is there.
    """

    def __init__(
        self,
        await_end: Callable[[Run], object],
        arrays: Sequence[Array],
        count: int,
        is_given: bool = False,
    ) -> None:
        """`await_end`: called again and again while somebody waits."""
        self.arrays, self.count, self.is_given = arrays, count, is_given
        self.device: DeviceInfo | None = None
        self.is_begun = False
        self.outcome: list[Array] | Exception | None = None
        self.ended = Signal()
        self._await_end = await_end
        self._listen: Callable[[], object] | None = None
        self._lock = threading.Lock()  # of the outcome and the listener

    @property
    def is_done(self) -> bool:
        """Whether `result` returns at once."""
        return self.outcome is not None

    def result(self) -> list[Array]:
        """Wait for the end of the run and return its outputs, the same arrays at each call.

        Raises:
            DeviceError: the run failed, on several devices the last of them; or it was cancelled.
        """
        process.require_own()
        while self.outcome is None:
            self._await_end(self)
        self.ended.give()  # to the next thread that waits
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def cancel(self) -> None:
        """Leave it out, if no device has begun it."""
        if not self.is_begun:
            self.end(DeviceError("the run was cancelled"))

    def when_done(self, listen: Callable[[], object]) -> None:
        """Call `listen` when the run has ended; at once where it has.

        Several devices end a run by themselves, in another thread. On one device a run ends when
        somebody waits for it, or for memory that it has.
        """
        with self._lock:
            if self.outcome is None:
                self._listen = listen
                return
        listen()

    def end(self, outcome: list[Array] | Exception) -> None:
        """Take the first outcome; later ones do not count."""
        with self._lock:
            if self.outcome is not None:
                return
            self.outcome = outcome
            listen, self._listen = self._listen, None
        self.ended.give()
        if listen is not None:
            listen()
