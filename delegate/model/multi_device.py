# SPDX-License-Identifier: Apache-2.0
"""Runs on several devices: each takes the next one unless another is likely to end it sooner.

Each device has a thread: Python's lock is free while a driver copies or is waited for. A device has
two runs or more: while it computes one, the input of another goes up. What a device that fails, or
never answers, has begun waits again, and the others take it.

Ctrl-C may end the caller's thread at each line, so callers change one container at a time, and what
they hold is a lock of C alone. Whoever waits looks again after a moment.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from delegate.errors import DelegateError, DeviceError, InvalidValue
from delegate.guard.children import process
from delegate.model.one_device import OneDevice
from delegate.model.run import LOOK_SECONDS, Array, Run, Signal, TensorDetails, outcome_of
from delegate.run.device_list import DeviceInfo

_HANGS = 10.0  # a device that has a run for so many times what another one needs
HANG_SECONDS = 60.0  # at least; as long as a child process has for a kernel
_log = logging.getLogger("delegate")


@dataclass(frozen=True, slots=True)
class Portion:
    """What one of a Model's devices did."""

    device: DeviceInfo
    pictures: int  # whose outputs are this device's
    seconds: float  # in which it had something to do
    failure: str = ""  # why it gets no more; "" = it does


@dataclass(slots=True, eq=False)
class DeviceWorker:
    """A device and what it does."""

    runner: OneDevice
    clock: Callable[[], float] = time.monotonic
    running: deque[Run] = field(default_factory=deque)  # its thread alone changes it
    wakeup: Signal = field(default_factory=Signal)  # for its thread
    since: float = 0.0  # when it was free for the first of them
    pace: float = 0.0  # seconds of its last run; 0: it has ended none
    pictures: int = 0
    seconds: float = 0.0
    failure: str = ""
    hangs: bool = False
    is_finished: bool = False  # its thread has done all that it will
    thread: threading.Thread | None = None

    @property
    def has_capacity(self) -> bool:
        """Whether it can begin one more; before its pace is known it has a single one."""
        return len(self.running) < (self.runner.slots if self.pace else 1)

    @property
    def next_seconds(self) -> float:
        """In about how many seconds it would end one more; one that hangs ever later."""
        late = self.clock() - self.since - self.pace if self.running else 0.0
        return (len(self.running) + 1) * self.pace + max(late, 0.0)

    def should_take(self, others: Sequence[DeviceWorker]) -> bool:
        """Whether it takes one more: none of the others is likely to end it sooner.

        What has nothing to do leaves it to those alone that can begin it now.
        """
        if not self.has_capacity or not self.pace:
            return not self.running
        rivals = [each for each in others if each.pace and (self.running or each.has_capacity)]
        return all(self.next_seconds <= each.next_seconds for each in rivals)


class MultiDevice:
    """Several devices that are ready to run the same graph."""

    def __init__(
        self, runners: Sequence[OneDevice], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock`: gives seconds."""
        self._clock = clock
        self._workers = [DeviceWorker(runner, clock) for runner in runners]
        self._waiting: deque[Run] = deque()  # one a device; what comes back has no limit
        self._assignment_lock = threading.Lock()  # of the devices' threads: from waiting to begun
        self._capacity = Signal()
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
        """Count the choices that were not measured."""
        return sum(worker.runner.tuning_left for worker in self._workers)

    def start(self, arrays: Sequence[Array], count: int, is_given: bool = False) -> Run:
        """Let a device run up to a batch; wait before that while as many wait as there are devices.

        The arrays stay as they are until the end. `is_given`: they are of `empty_input`.
        Raises: DeviceError: the last device failed, or this was closed.
        """
        process.require_own()
        run = Run(self._await_end, arrays, count, is_given)
        while not self._is_closing and (left := self._working()):
            if len(self._waiting) < len(left):
                self._waiting.append(run)
                self._wake_all()
                self._capacity.notify()  # to the next thread that waits
                self._check_workers()
                return run
            self._capacity.wait()
            self._check_workers()
        self._capacity.notify()
        raise self._reason()

    def on_each(self, arrays: Sequence[Array], count: int) -> list[tuple[DeviceInfo, list[Array]]]:
        """Run the same on each device, one after the other; raises as `start`."""
        outputs = []
        for worker in () if self._is_closing else self._working():
            begin = self._clock()
            try:
                outputs.append((worker.runner.device, worker.runner.run(arrays, count)))
            except DelegateError as error:
                if isinstance(error, InvalidValue):  # on any device
                    raise
                self._drop(worker, error)
            else:
                worker.pace = self._clock() - begin
        if not outputs:
            raise self._reason()
        return outputs

    def empty_input(self, details: TensorDetails) -> Array:
        """Return memory for a batch that a device reads without another copy; raises as `start`."""
        for worker in self._working():
            return worker.runner.empty_input(details)
        raise self._reason()

    def leave_out(self, device: DeviceInfo, why: str) -> None:
        """Give a device no more; what it has goes to the others."""
        for worker in self._working():
            if worker.runner.device == device:
                self._drop(worker, DeviceError(why))

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
                self._check_workers()

    def _await_end(self, run: Run) -> None:
        """Wait a moment for the end of a run, and see to it that it comes."""
        process.require_own()
        self._check_workers()
        if not run.is_done:
            run.ended.wait()

    # What follows runs in the devices' threads, too.

    def _work(self, worker: DeviceWorker) -> None:
        """Run what comes until there will be no more, or until the device fails."""
        under_way: deque[Run] = deque()  # the same on the device itself
        try:
            while not worker.failure:
                if (run := self._next_run(worker)) is not None:
                    under_way.append(worker.runner.start(run.arrays, run.count, run.is_given))
                elif under_way:
                    self._finish_run(worker, under_way.popleft())
                elif self._is_over():
                    break
                else:
                    worker.wakeup.wait()
        except Exception as error:  # whatever it is, the other devices may do better
            self._drop(worker, error)
        under_way.clear()
        worker.is_finished = True
        self._check_workers()
        self._wake_all()
        try:
            worker.runner.close()
        except DelegateError as error:
            _log.debug("closing %s: %s", worker.runner.device.name, error)

    def _next_run(self, worker: DeviceWorker) -> Run | None:
        """Return the run that a device begins now; None: there is none for it."""
        with self._assignment_lock:
            while self._waiting and worker.should_take(self._working()):
                run = self._waiting.popleft()
                self._capacity.notify()
                if run.is_done:  # it was cancelled
                    continue
                run.is_started = True
                if not worker.running:
                    worker.since = self._clock()
                worker.running.append(run)
                self._wake_all()  # one that has less room lets others take more
                return run
        return None

    def _finish_run(self, worker: DeviceWorker, done: Run) -> None:
        """Take what comes of a device's first run; `done`: the same on the device itself."""
        outcome = outcome_of(done)
        now = self._clock()
        if worker.failure:
            return
        run = worker.running[0]
        worker.pace = now - worker.since
        worker.seconds += worker.pace
        worker.since = now
        if not run.is_done:
            worker.pictures += run.count
            run.device = worker.runner.device
        run.end(outcome)
        worker.running.popleft()
        if self._is_closing:
            self._wake_all()

    def _wake_all(self) -> None:
        for worker in self._workers:
            worker.wakeup.notify()

    def _is_over(self) -> bool:
        """Whether this was closed and every run has ended."""
        every = (self._waiting, *(each.running for each in self._workers))
        return self._is_closing and all(run.is_done for runs in every for run in tuple(runs))

    def _drop(self, worker: DeviceWorker, error: Exception) -> None:
        """Give a device no more; its thread, or who finds it hanging, gives back what it has."""
        if worker.failure:
            return
        worker.failure = " ".join(str(error).split()) or type(error).__name__
        if self._working():
            device = worker.runner.device
            _log.warning(
                "device %d (%s) is left out, and the others take its pictures: %s",
                device.index, device.name, worker.failure,
            )  # fmt: skip
        else:
            self._error = error
        self._wake_all()

    def _check_workers(self) -> None:
        """See to it that every run comes to an end; again and again it is the same."""
        for worker in self._workers:
            self._lose_one_that_hangs(worker)
        at_work = [each for each in self._workers if not (each.is_finished or each.hangs)]
        for run in (run for each in self._workers for run in tuple(each.running)):
            # What a device will not end waits for the others.
            kept = any(run in runs for runs in (self._waiting, *(each.running for each in at_work)))
            if not (kept or run.is_done):
                self._waiting.appendleft(run)
                self._wake_all()
        for run in () if at_work else tuple(self._waiting):
            run.end(self._reason())

    def _lose_one_that_hangs(self, worker: DeviceWorker) -> None:
        """Give a device up that has had a run for long; the only one is waited for."""
        paces = [each.pace for each in self._working() if each is not worker and each.pace]
        if worker.failure or not worker.running or not paces:
            return
        seconds = self._clock() - worker.since
        if seconds > max(HANG_SECONDS, _HANGS * min(paces)):
            worker.hangs = True
            self._drop(worker, DeviceError(f"it gave no answer within {seconds:.0f} s"))

    def _reason(self) -> Exception:
        """Return why nothing can run any more."""
        return self._error or DeviceError("the model was closed")

    def _working(self) -> list[DeviceWorker]:
        return [worker for worker in self._workers if not worker.failure]
