# SPDX-License-Identifier: Apache-2.0
"""What several devices share: pieces of the work on their way, and what became of each portion."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from delegate.errors import DeviceError
from delegate.runtime.device_list import DeviceInfo

Array = NDArray[Any]
LOOK_SECONDS = 0.5  # whoever waits looks again after so long


@dataclass(frozen=True, slots=True)
class Portion:
    """What one of a Model's devices did."""

    device: DeviceInfo
    pictures: int  # whose outputs are this device's
    seconds: float  # in which it had something to do
    failure: str = ""  # why it gets no more; "" = it does


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
        with contextlib.suppress(RuntimeError):  # it was given before
            self._lock.release()

    def wait(self, seconds: float = LOOK_SECONDS) -> None:
        """Return when it was given, or after so many seconds."""
        self._lock.acquire(timeout=seconds)


class PendingPiece:
    """Up to a batch of pictures on their way through one of several devices.

    Attributes:
        device: whose outputs these are; None: there are none yet, or no device could.
        arrays, count, is_given: what is run; is_begun: a device has it; outcome: what came of it.
    """

    def __init__(
        self,
        look: Callable[[PendingPiece], None],
        arrays: Sequence[Array],
        count: int,
        is_given: bool,
    ) -> None:
        """`look`: called again and again while somebody waits."""
        self.arrays, self.count, self.is_given = arrays, count, is_given
        self.device: DeviceInfo | None = None
        self.is_begun = False
        self.outcome: list[Array] | Exception | None = None
        self._listen: Callable[[], object] | None = None
        self._lock = threading.Lock()  # of the two before
        self._has_ended = Signal()
        self._look = look

    @property
    def is_done(self) -> bool:
        """Whether `result` returns at once."""
        return self.outcome is not None

    def result(self) -> list[Array]:
        """Wait for the end of the run and return its outputs, the same arrays at each call.

        Raises:
            DeviceError: the last device failed, or the run was cancelled.
        """
        self._look(self)
        while self.outcome is None:
            self._has_ended.wait()
            self._look(self)
        self._has_ended.give()  # to the next thread that waits
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def cancel(self) -> None:
        """Leave it out, if no device has taken it."""
        if not self.is_begun:
            self.end(DeviceError("the run was cancelled"))

    def when_done(self, listen: Callable[[], object]) -> None:
        """Call `listen` when the run has ended, in another thread; at once where it has."""
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
            listen = self._listen
        self._has_ended.give()
        if listen is not None:
            listen()


def pieces_of(arrays: Sequence[Array], count: int, batch: int) -> Iterator[tuple[list[Array], int]]:
    """Yield the arrays of so many pictures in pieces, each with its number of pictures."""
    for first in range(0, count, batch):
        piece = [array[first : first + batch] for array in arrays]
        yield piece, min(batch, count - first)
