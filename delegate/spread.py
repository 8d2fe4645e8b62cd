# SPDX-License-Identifier: Apache-2.0
"""Pieces of work on several devices: a free device takes the next one, so each has its own pace.

Each device has a thread: Python's lock is free while a driver copies or is waited for. A device has
two pieces or more: while it computes one, the input of another goes up. So the end, and whoever
waits for results in order, would wait for the slowest device. Therefore a device without work takes
over a piece that another one has not begun, or has had for much longer than this one needs. The
first result counts. The same holds for a device that never answers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from delegate import process
from delegate.details import TensorDetails
from delegate.errors import DelegateError, DeviceError
from delegate.one_device import OneDevice
from delegate.pieces import PendingPiece, Portion
from delegate.runtime.device_list import DeviceInfo
from delegate.slots import Pending

Array = NDArray[Any]
# A device that has a piece for so many times what another one needs is late, or hangs.
_LATE, _HANGS = 2.0, 10.0
_LEAST_SECONDS = 0.01  # until a device is late: threads wake up late, too
HANG_SECONDS = 60.0  # at least; as long as a child process has for a kernel
_LOOK_SECONDS = 0.5  # Ctrl-C that comes just before a wait does not end it
_log = logging.getLogger("delegate")


@dataclass(slots=True, eq=False)
class _Worker:
    """A device and what it has."""

    runner: OneDevice
    pieces: list[PendingPiece] = field(default_factory=list)  # the first is computed
    since: float = 0.0  # when it was free for the first of them
    pace: float | None = None  # seconds of its last piece
    pictures: int = 0
    seconds: float = 0.0
    failure: str = ""
    hangs: bool = False
    thread: threading.Thread | None = None

    @property
    def patience(self) -> float:
        """Seconds after which this device takes over what another one computes."""
        return HANG_SECONDS if self.pace is None else max(_LEAST_SECONDS, _LATE * self.pace)


class Spread:
    """Several devices that are ready to run the same graph."""

    def __init__(self, runners: Sequence[OneDevice]) -> None:
        self._workers = [_Worker(runner) for runner in runners]
        # Of all below. A finaliser may close this in any thread, so that one may take it again.
        self._changed = threading.Condition(threading.RLock())
        self._waiting: deque[PendingPiece] = deque()
        self._unfinished = 0
        self._is_closing = False
        self._error: Exception | None = None  # of the last device
        for worker in self._workers:
            worker.thread = threading.Thread(target=self._work, args=(worker,), daemon=True)
            worker.thread.start()

    @property
    def portions(self) -> tuple[Portion, ...]:
        """What each device did, those that failed included."""
        with self._changed:
            return tuple(
                Portion(each.runner.device, each.pictures, each.seconds, each.failure)
                for each in self._workers
            )

    @property
    def tuning_left(self) -> int:
        """Count the choices that wait for a later start to be measured."""
        return sum(worker.runner.tuning_left for worker in self._workers)

    def start(self, arrays: Sequence[Array], count: int, is_given: bool = False) -> PendingPiece:
        """Let a device run a piece; wait before that while each has all it takes, and one more.

        The arrays stay as they are until the end. `is_given`: they are of `empty_input`.
        Raises: DeviceError: the last device failed, or this was closed.
        """
        process.require_own()
        piece = PendingPiece(self, arrays, count, is_given)
        with self._changed:
            while self._error is None and self._unfinished >= sum(
                each.runner.slots + 1 for each in self._left()
            ):
                self._changed.wait(_LOOK_SECONDS)
            if self._is_closing or self._error is not None:
                raise self._reason()
            self._waiting.append(piece)
            self._unfinished += 1
            self._changed.notify_all()
        return piece

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
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        for worker in self._workers if wait else ():
            assert worker.thread is not None
            while worker.thread.is_alive() and not worker.hangs:
                worker.thread.join(_LOOK_SECONDS)
                self._lose_if_it_hangs(worker)

    # What follows is PendingPiece's.

    def wait(self, piece: PendingPiece) -> None:
        """Return when a piece has its outcome."""
        process.require_own()
        with self._changed:
            while piece.outcome is None:
                self._changed.wait(_LOOK_SECONDS)

    def cancel(self, piece: PendingPiece) -> None:
        """Leave out a piece that waits."""
        with self._changed:
            if piece in self._waiting:
                self._waiting.remove(piece)
                self._end(piece, DeviceError("the run was cancelled"))

    def listen(self, piece: PendingPiece, listen: Callable[[], object]) -> None:
        """Call `listen` when a piece has its outcome."""
        with self._changed:
            if piece.outcome is None:
                piece.listen = listen
            else:
                listen()

    # What follows runs in the devices' threads.

    def _work(self, worker: _Worker) -> None:
        """Run pieces until there will be none, or until the device fails."""
        under_way: deque[tuple[PendingPiece, Pending]] = deque()
        try:
            while (piece := self._next(worker)) is not None or under_way:
                if piece is not None:
                    start = worker.runner.start
                    under_way.append((piece, start(piece.arrays, piece.count, piece.is_given)))
                    if len(under_way) < worker.runner.slots:
                        continue
                piece, pending = under_way.popleft()
                self._ended(worker, piece, pending.result())
        except Exception as error:  # whatever it is, the other devices may do better
            self._lose(worker, error)
        under_way.clear()
        try:
            worker.runner.close()
        except DelegateError as error:
            _log.debug("closing %s: %s", worker.runner.device.name, error)

    def _next(self, worker: _Worker) -> PendingPiece | None:
        """Return a piece to begin; None: there is none now, and the device has one, or the end."""
        with self._changed:
            while not worker.failure:
                for other in self._left():
                    self._lose_if_it_hangs(other)
                if worker.pieces and not all(other.pieces for other in self._left()):
                    return None  # a device without work has the next one
                if self._waiting:
                    piece: PendingPiece | None = self._waiting.popleft()
                else:
                    piece = None if worker.pieces else self._to_take_over(worker)
                if piece is not None:
                    if not worker.pieces:
                        worker.since = time.monotonic()
                    worker.pieces.append(piece)
                    return piece
                if worker.pieces or (self._is_closing and not self._unfinished):
                    return None
                self._changed.wait(self._until_late(worker))
        return None

    def _until_late(self, worker: _Worker) -> float | None:
        """Return the seconds until a piece may be late that another device has; None: none is."""
        begun = [other.since for other in self._left() if other.pieces]
        if not begun:
            return None
        seconds = min(begun) + worker.patience - time.monotonic()
        return seconds if seconds > 0 else _LOOK_SECONDS

    def _to_take_over(self, worker: _Worker) -> PendingPiece | None:
        """Return a piece that this device is likely to end before those that have it."""
        late, left = time.monotonic() - worker.patience, self._left()
        in_time = {each.pieces[0] for each in left if each.pieces and each.since > late}
        # Those that are computed first: others may wait for them.
        most = max(each.runner.slots for each in left)
        held = [each.pieces[place:][:1] for place in range(most) for each in left]
        pieces = (piece for pieces in held for piece in pieces)
        return next((p for p in pieces if p.outcome is None and p not in in_time), None)

    def _ended(self, worker: _Worker, piece: PendingPiece, outputs: list[Array]) -> None:
        """Take the outputs of a piece, if they are the first."""
        with self._changed:
            now = time.monotonic()
            if worker.failure:
                return
            worker.pieces.remove(piece)
            worker.pace = now - worker.since
            worker.seconds += worker.pace
            worker.since = now
            if piece.outcome is None:
                worker.pictures += piece.count
                piece.device = worker.runner.device
                self._end(piece, outputs)

    def _end(self, piece: PendingPiece, outcome: list[Array] | Exception) -> None:
        piece.outcome = outcome
        self._unfinished -= 1
        self._changed.notify_all()
        if piece.listen is not None:
            piece.listen()

    def _lose(self, worker: _Worker, error: Exception) -> None:
        """Give a device no more, and what it has to the others, or to nobody."""
        with self._changed:
            if worker.failure:
                return
            worker.failure = " ".join(str(error).split()) or type(error).__name__
            pieces, worker.pieces = worker.pieces, []
            others = [piece for each in self._left() for piece in each.pieces]
            left = [piece for piece in pieces if piece.outcome is None and piece not in others]
            self._waiting.extendleft(reversed(left))
            if self._left():
                device = worker.runner.device
                _log.warning(
                    "device %d (%s) is left out, and the others take its pictures: %s",
                    device.index, device.name, worker.failure,
                )  # fmt: skip
            else:
                self._error = error
                while self._waiting:
                    self._end(self._waiting.popleft(), error)
            self._changed.notify_all()

    def _lose_if_it_hangs(self, worker: _Worker) -> None:
        """Give a device up that has had a piece for long; the only one is waited for."""
        with self._changed:
            paces = [each.pace for each in self._left() if each is not worker and each.pace]
            if not worker.pieces or not paces:
                return
            seconds = time.monotonic() - worker.since
            if seconds > max(HANG_SECONDS, _HANGS * min(paces)):
                worker.hangs = True
                self._lose(worker, DeviceError(f"it gave no answer within {seconds:.0f} s"))

    def _reason(self) -> Exception:
        """Return why nothing can run any more."""
        return self._error or DeviceError("the model was closed")

    def _left(self) -> list[_Worker]:
        return [worker for worker in self._workers if not worker.failure]
