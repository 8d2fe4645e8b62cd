# SPDX-License-Identifier: Apache-2.0
"""Pieces of work on several devices: each piece goes to the device that is likely to end it first.

Each device has a thread: Python's lock is free while a driver copies or is waited for. A device has
two pieces or more: while it computes one, the input of another goes up. The pieces of a device that
fails, or never answers, go to the others.

Ctrl-C may end the caller's thread at each line, so callers change one container at a time, and what
they hold is a lock of C alone. Whoever waits looks again after a moment.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from delegate.devices.model_io import TensorDetails
from delegate.devices.one_device import OneDevice
from delegate.devices.pieces import LOOK_SECONDS, PendingPiece, Portion, Signal
from delegate.devices.slots import Pending
from delegate.errors import DelegateError, DeviceError
from delegate.runtime.device_list import DeviceInfo
from delegate.sandbox import process

Array = NDArray[Any]
_HANGS = 10.0  # a device that has a piece for so many times what another one needs
HANG_SECONDS = 60.0  # at least; as long as a child process has for a kernel
_log = logging.getLogger("delegate")


@dataclass(slots=True, eq=False)
class _Worker:
    """A device and what it has."""

    runner: OneDevice
    # In the order in which they came. Only this device's thread takes one away.
    pieces: deque[PendingPiece] = field(default_factory=deque)
    news: Signal = field(default_factory=Signal)  # for the thread
    since: float = 0.0  # when it was free for the first of them
    pace: float = 0.0  # seconds of its last piece; 0: it has ended none
    pictures: int = 0
    seconds: float = 0.0
    failure: str = ""
    hangs: bool = False
    thread: threading.Thread | None = None

    @property
    def has_room(self) -> bool:
        """Whether it takes one more; before its pace is known it takes a single one."""
        return len(self.pieces) < (self.runner.slots + 1 if self.pace else 1)

    def take(self, piece: PendingPiece) -> None:
        """Put a piece behind the others."""
        self.pieces.append(piece)
        self.news.give()


class Spread:
    """Several devices that are ready to run the same graph."""

    def __init__(self, runners: Sequence[OneDevice]) -> None:
        self._workers = [_Worker(runner) for runner in runners]
        self._room = Signal()
        self._is_closing = False
        self._error: Exception | None = None  # of the last device
        for worker in self._workers:
            worker.thread = threading.Thread(target=self._work, args=(worker,), daemon=True)
            worker.thread.start()

    @property
    def portions(self) -> tuple[Portion, ...]:
        """What each device did, those that failed included."""
        return tuple(
            Portion(each.runner.device, each.pictures, each.seconds, each.failure)
            for each in self._workers
        )

    @property
    def tuning_left(self) -> int:
        """Count the choices that wait for a later start to be measured."""
        return sum(worker.runner.tuning_left for worker in self._workers)

    def start(self, arrays: Sequence[Array], count: int, is_given: bool = False) -> PendingPiece:
        """Let a device run a piece; wait before that while those that would end it soon are full.

        The arrays stay as they are until the end. `is_given`: they are of `empty_input`.
        Raises: DeviceError: the last device failed, or this was closed.
        """
        process.require_own()
        piece = PendingPiece(self.look, arrays, count, is_given)
        while not self._is_closing and (left := self._left()):
            best = self._soonest(left)
            free = [best] if best.has_room else [each for each in left if not each.pieces]
            if free:
                free[0].take(piece)
                self._room.give()  # to the next thread that waits
                return piece
            self._room.wait()
            self.look(piece)
        self._room.give()
        raise self._reason()

    def on_each(self, arrays: Sequence[Array], count: int) -> list[tuple[DeviceInfo, list[Array]]]:
        """Run the same on each device, one after the other; raises as `start`."""
        outputs = []
        for worker in () if self._is_closing else self._left():
            begin = time.monotonic()
            try:
                outputs.append((worker.runner.device, worker.runner.run(arrays, count)))
            except DelegateError as error:
                self._lose(worker, error)
            else:
                worker.pace = time.monotonic() - begin
        if not outputs:
            raise self._reason()
        return outputs

    def empty_input(self, details: TensorDetails) -> Array:
        """Return memory for a batch that a device reads without another copy; raises as `start`."""
        for worker in self._left():
            return worker.runner.empty_input(details)
        raise self._reason()

    def leave_out(self, device: DeviceInfo, why: str) -> None:
        """Give a device no more; what it has goes to the others."""
        for worker in self._left():
            if worker.runner.device == device:
                self._lose(worker, DeviceError(why))

    def close(self, wait: bool = True) -> None:
        """Let the devices end what was begun and give their memory back; a second call waits, too.

        `wait`: for that. A device that hangs is left alone.
        """
        try:
            process.require_own()
        except DeviceError:
            return  # a forked process has no such threads
        self._is_closing = True
        self._wake_all()
        for worker in self._workers if wait else ():
            assert worker.thread is not None
            while worker.thread.is_alive() and not worker.hangs:
                worker.thread.join(LOOK_SECONDS)
                self._look_for_one_that_hangs()

    def look(self, piece: PendingPiece) -> None:
        """See to it that a piece which somebody waits for comes to an end.

        Raises:
            DeviceError: this process was forked from the one that has the devices.
        """
        process.require_own()
        self._look_for_one_that_hangs()
        if self._is_closing and not any(
            each.thread and each.thread.is_alive() for each in self._workers
        ):
            piece.end(self._reason())

    # What follows runs in the devices' threads, too.

    def _work(self, worker: _Worker) -> None:
        """Run pieces until there will be none, or until the device fails."""
        under_way: deque[Pending] = deque()
        try:
            self._run_pieces(worker, under_way)
        except Exception as error:  # whatever it is, the other devices may do better
            self._lose(worker, error)
        under_way.clear()
        try:
            worker.runner.close()
        except DelegateError as error:
            _log.debug("closing %s: %s", worker.runner.device.name, error)
        while not self._is_over():  # a caller may have chosen this device just before
            self._hand_on(worker)
            worker.news.wait()

    def _run_pieces(self, worker: _Worker, under_way: deque[Pending]) -> None:
        while not worker.failure:
            if len(under_way) < min(worker.runner.slots, len(worker.pieces)):
                piece = worker.pieces[len(under_way)]
                if not under_way:
                    worker.since = time.monotonic()
                if piece.is_done:  # it was cancelled
                    del worker.pieces[len(under_way)]
                    self._room.give()
                    continue
                piece.is_begun = True
                start = worker.runner.start
                under_way.append(start(piece.arrays, piece.count, piece.is_given))
            elif under_way:
                self._ended(worker, under_way.popleft().result())
            elif self._is_over():
                return
            else:
                worker.news.wait()

    def _ended(self, worker: _Worker, outputs: list[Array]) -> None:
        """Take the outputs of a device's first piece."""
        now = time.monotonic()
        if worker.failure:
            return
        piece = worker.pieces[0]
        worker.pace = now - worker.since
        worker.seconds += worker.pace
        worker.since = now
        if not piece.is_done:
            worker.pictures += piece.count
            piece.device = worker.runner.device
        worker.pieces.popleft()
        piece.end(outputs)
        self._room.give()
        if self._is_closing:
            self._wake_all()

    def _wake_all(self) -> None:
        for worker in self._workers:
            worker.news.give()

    def _is_over(self) -> bool:
        """Whether this was closed and no device has anything to do."""
        return self._is_closing and all(
            piece.is_done for each in self._workers for piece in tuple(each.pieces)
        )

    def _soonest(self, left: Sequence[_Worker]) -> _Worker:
        """Return the one of these devices that is likely to end one more piece first."""
        fastest = min((each.pace for each in left if each.pace), default=0.0)

        def when(worker: _Worker) -> tuple[bool, float, int]:
            is_measured_now = not worker.pace and not worker.has_room
            seconds = (len(worker.pieces) + 1) * (worker.pace or fastest)
            return is_measured_now, seconds, len(worker.pieces)

        return min(left, key=when)

    def _lose(self, worker: _Worker, error: Exception) -> None:
        """Give a device no more, and what it has to the others, or to nobody."""
        if worker.failure:
            return
        worker.failure = " ".join(str(error).split()) or type(error).__name__
        if self._left():
            device = worker.runner.device
            _log.warning(
                "device %d (%s) is left out, and the others take its pictures: %s",
                device.index, device.name, worker.failure,
            )  # fmt: skip
        else:
            self._error = error
        self._hand_on(worker)
        self._room.give()

    def _hand_on(self, worker: _Worker) -> None:
        """Give the pieces of a device that failed to others; again and again it is the same."""
        for piece in tuple(worker.pieces):
            left = self._left()
            if piece.is_done or any(piece in each.pieces for each in left):
                continue
            if left:
                self._soonest(left).take(piece)
            else:
                piece.end(self._reason())

    def _look_for_one_that_hangs(self) -> None:
        """Give a device up that has had a piece for long; the only one is waited for."""
        for worker in self._workers:
            if worker.hangs:
                self._hand_on(worker)
            paces = [each.pace for each in self._left() if each is not worker and each.pace]
            is_at_work = any(piece.is_begun for piece in tuple(worker.pieces)[:1])
            if worker.failure or not is_at_work or not paces:
                continue
            seconds = time.monotonic() - worker.since
            if seconds > max(HANG_SECONDS, _HANGS * min(paces)):
                worker.hangs = True
                self._lose(worker, DeviceError(f"it gave no answer within {seconds:.0f} s"))

    def _reason(self) -> Exception:
        """Return why nothing can run any more."""
        return self._error or DeviceError("the model was closed")

    def _left(self) -> list[_Worker]:
        return [worker for worker in self._workers if not worker.failure]
