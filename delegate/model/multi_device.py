# SPDX-License-Identifier: Apache-2.0
"""Scheduling on several devices: each takes the next run unless another would finish it sooner.

Each device has a thread: drivers release Python's lock while they copy or wait. A device has two
runs or more in flight: while it computes one, the next input is uploaded. Runs of a device that
fails or hangs are queued again for the others.

Ctrl-C may interrupt the caller's thread at any line, so callers change one container at a time, and
hold only locks implemented in C. Waiting threads wake up periodically.
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

_HANGS = 10.0  # a device hangs when a run takes this many times as long as on another one
HANG_SECONDS = 60.0  # but at least this; as for a kernel in a child process
_log = logging.getLogger("delegate")


@dataclass(frozen=True, slots=True)
class Portion:
    """Statistics of one of a Model's devices."""

    device: DeviceInfo
    pictures: int  # completed by this device
    seconds: float  # busy time
    failure: str = ""  # why it was dropped; "" = it was not


@dataclass(slots=True, eq=False)
class DeviceWorker:
    """A device and its runs."""

    runner: OneDevice
    clock: Callable[[], float] = time.monotonic
    running: deque[Run] = field(default_factory=deque)  # modified only by its thread
    wakeup: Signal = field(default_factory=Signal)  # for its thread
    since: float = 0.0  # when it could start the first of them
    pace: float = 0.0  # seconds of its last run; 0: none completed
    pictures: int = 0
    seconds: float = 0.0
    failure: str = ""
    hangs: bool = False
    is_finished: bool = False  # its thread has exited
    thread: threading.Thread | None = None

    @property
    def has_capacity(self) -> bool:
        """Whether it can start another run; a single one before its pace is known."""
        return len(self.running) < (self.runner.slots if self.pace else 1)

    @property
    def next_seconds(self) -> float:
        """Estimated seconds until it would finish another run; grows while it hangs."""
        late = self.clock() - self.since - self.pace if self.running else 0.0
        return (len(self.running) + 1) * self.pace + max(late, 0.0)

    def should_take(self, others: Sequence[DeviceWorker]) -> bool:
        """Whether it takes another run: no other device is expected to finish it sooner.

        An idle device yields only to those that can start it now.
        """
        if not self.has_capacity or not self.pace:
            return not self.running
        rivals = [each for each in others if each.pace and (self.running or each.has_capacity)]
        return all(self.next_seconds <= each.next_seconds for each in rivals)


class MultiDevice:
    """Several devices with the same graph."""

    def __init__(
        self, runners: Sequence[OneDevice], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock`: returns seconds."""
        self._clock = clock
        self._workers = [DeviceWorker(runner, clock) for runner in runners]
        self._waiting: deque[Run] = deque()  # at most one per device, plus returned ones
        self._assignment_lock = threading.Lock()  # between device threads: from waiting to running
        self._capacity = Signal()
        self._is_closing = False
        self._error: Exception | None = None  # of the last device
        for worker in self._workers:
            worker.thread = threading.Thread(target=self._work, args=(worker,), daemon=True)
            worker.thread.start()

    @property
    def portions(self) -> tuple[Portion, ...]:
        """Statistics of each device, including failed ones."""
        return tuple(
            Portion(each.runner.device, each.pictures, each.seconds, each.failure)
            for each in self._workers
        )

    @property
    def tuning_left(self) -> int:
        """The number of choices that were not measured."""
        return sum(worker.runner.tuning_left for worker in self._workers)

    def start(self, arrays: Sequence[Array], count: int, is_given: bool = False) -> Run:
        """Queue a run of up to a batch; blocks while as many are queued as there are devices.

        The arrays must not change until it ends. `is_given`: they are from `empty_input`.
        Raises: DeviceError: the last device failed, or this was closed.
        """
        process.require_own()
        run = Run(self._await_end, arrays, count, is_given)
        while not self._is_closing and (left := self._working()):
            if len(self._waiting) < len(left):
                self._waiting.append(run)
                self._wake_all()
                self._capacity.notify()  # wake up the next waiting thread
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
                if isinstance(error, InvalidValue):  # independent of the device
                    raise
                self._drop(worker, error)
            else:
                worker.pace = self._clock() - begin
        if not outputs:
            raise self._reason()
        return outputs

    def empty_input(self, details: TensorDetails) -> Array:
        """Return memory for a batch that a device reads without a copy; raises as `start`."""
        for worker in self._working():
            return worker.runner.empty_input(details)
        raise self._reason()

    def leave_out(self, device: DeviceInfo, why: str) -> None:
        """Drop a device; its runs go to the others."""
        for worker in self._working():
            if worker.runner.device == device:
                self._drop(worker, DeviceError(why))

    def close(self, wait: bool = True) -> None:
        """Let the devices finish their runs and free their memory; a second call waits, too.

        `wait`: block until then. A hanging device is abandoned.
        """
        try:
            process.require_own()
        except DeviceError:
            return  # a forked process does not have the threads
        self._is_closing = True
        self._wake_all()
        for worker in self._workers if wait else ():
            assert worker.thread is not None
            while worker.thread.is_alive() and not worker.hangs:
                worker.thread.join(LOOK_SECONDS)
                self._check_workers()

    def _await_end(self, run: Run) -> None:
        """Wait a moment for the end of a run, and make sure that it comes."""
        process.require_own()
        self._check_workers()
        if not run.is_done:
            run.ended.wait()

    # The methods below also run in the devices' threads.

    def _work(self, worker: DeviceWorker) -> None:
        """Execute runs until this is closed, or the device fails."""
        under_way: deque[Run] = deque()  # runs on the device itself
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
        except Exception as error:  # whatever it is, another device may succeed
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
        """Return the run that a device starts now; None: none."""
        with self._assignment_lock:
            while self._waiting and worker.should_take(self._working()):
                run = self._waiting.popleft()
                self._capacity.notify()
                if run.is_done:  # cancelled
                    continue
                run.is_started = True
                if not worker.running:
                    worker.since = self._clock()
                worker.running.append(run)
                self._wake_all()  # now that it is busier, others may take more
                return run
        return None

    def _finish_run(self, worker: DeviceWorker, done: Run) -> None:
        """Complete a device's first run; `done`: its run on the device itself."""
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
        """Drop a device; its thread, or the one that detects the hang, returns its runs."""
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
        """Make sure that every run can end; idempotent."""
        for worker in self._workers:
            self._lose_one_that_hangs(worker)
        at_work = [each for each in self._workers if not (each.is_finished or each.hangs)]
        for run in (run for each in self._workers for run in tuple(each.running)):
            # Runs that a device cannot finish wait for the others.
            kept = any(run in runs for runs in (self._waiting, *(each.running for each in at_work)))
            if not (kept or run.is_done):
                self._waiting.appendleft(run)
                self._wake_all()
        for run in () if at_work else tuple(self._waiting):
            run.end(self._reason())

    def _lose_one_that_hangs(self, worker: DeviceWorker) -> None:
        """Drop a device whose run takes too long, unless it is the only one."""
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
