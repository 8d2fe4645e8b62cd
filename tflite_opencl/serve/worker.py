# SPDX-License-Identifier: Apache-2.0
"""A served model's thread: requests wait in a bounded queue, and are joined into runs.

A device that fails, or does not answer, is given up: the CPU takes over, or all is refused.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from delegate import DelegateError
from tflite_opencl.common.errors import DelegateFailed, RunError, one_line, reason_of
from tflite_opencl.serve.runners import Runner
from tflite_opencl.serve.tensors import Arrays

log = logging.getLogger("tflite_opencl")
_DEVICE_ERRORS = (DelegateError, DelegateFailed)


class Busy(Exception):
    """The queue is full: the client may come again in a second."""


class Unavailable(Exception):
    """Nothing runs the model any more; the text is one line that says why."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a request."""

    arrays: Arrays
    device: str  # what ran it


@dataclass(eq=False, slots=True)
class Waiting:
    """A request that waits for its run, or for the end of it."""

    arrays: Arrays
    pictures: int
    future: Future[Ran] = field(default_factory=Future)
    since: float = field(default_factory=time.perf_counter)

    def begin(self) -> bool:
        """Return whether somebody still waits; from now on that stays so."""
        return self.future.running() or self.future.set_running_or_notify_cancel()

    def end(self, outcome: Ran | Exception) -> None:
        """Tell the outcome."""
        if isinstance(outcome, Exception):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


@dataclass(frozen=True, slots=True)
class Limits:
    """How requests wait and are joined."""

    queue: int  # requests that may wait
    pictures: int  # in a run
    delay: float  # seconds that a request may wait for others to join it


# Called after a run: requests joined, pictures, seconds.
Listener = Callable[[int, int, float], None]


class Worker:
    """What runs a model for all of its clients.

    Attributes:
        failure: why the device was given up; "" = it was not.
    """

    def __init__(
        self,
        runner: Runner,
        limits: Limits,
        fallback: Callable[[], Runner] | None = None,
        listen: Listener = lambda requests, pictures, seconds: None,
    ) -> None:
        """`fallback`: opens what takes over; None: nothing does."""
        self._runner: Runner | None = runner
        self._limits, self._fallback, self._listen = limits, fallback, listen
        self.failure = ""
        self._changed = threading.Condition()  # of all below
        self._queue: deque[Waiting] = deque()
        self._pictures = 0  # in the queue
        self._running: Sequence[Waiting] = ()
        self._begun = 0.0  # when that was
        self._is_closed = False
        with self._changed:
            self._thread = self._started()

    @property
    def runner(self) -> Runner | None:
        """What runs the model now; None: nothing does."""
        return self._runner

    @property
    def waiting(self) -> int:
        """Count the requests that wait."""
        return len(self._queue)

    def submit(self, arrays: Arrays, pictures: int) -> Future[Ran]:
        """Let a request wait for its run, whose outputs the future gets.

        The future raises: RunError: the model cannot run on these values. Unavailable.
        Raises: Busy: too many wait. Unavailable: nothing runs the model.
        """
        request = Waiting(arrays, pictures)
        with self._changed:
            self._require_running()
            if len(self._queue) >= self._limits.queue:
                raise Busy
            self._queue.append(request)
            self._pictures += pictures
            self._changed.notify()
        return request.future

    def give_up_after(self, seconds: float) -> None:
        """Give the device up, if its run has taken longer than that."""
        with self._changed:
            running = self._running
            if not running or time.perf_counter() - self._begun < seconds:
                return
            self._running = ()  # the old thread, should it come back, has nothing to tell
            again = [each for each in running if not each.future.done()]
            self._queue.extendleft(reversed(again))
            self._pictures += sum(each.pictures for each in again)
            self._thread = self._started(f"it has not answered for {seconds:g} seconds")

    def close(self, seconds: float = 10.0) -> None:
        """End the thread when the queue is empty, and wait so long for that."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(seconds)
        if not self._thread.is_alive() and self._runner is not None:
            self._runner.close()  # else it hangs, and the end of the process ends it

    def _require_running(self) -> None:
        if self._runner is None or self._is_closed:
            raise Unavailable(self.failure or "the service is being ended")

    def _started(self, failure: str = "") -> threading.Thread:
        thread = threading.Thread(target=self._work, args=(failure,), name="model", daemon=True)
        thread.start()
        return thread

    def _work(self, failure: str) -> None:
        if failure:
            self._replace_runner(failure)
        while batch := self._next():
            self._run(batch)

    def _next(self) -> list[Waiting]:
        """Wait for requests; return those of the next run, [] at the end."""
        with self._changed:
            if threading.current_thread() is not self._thread:
                return []  # another one has its work
            while not (self._queue or self._is_closed):
                self._changed.wait()
            if not self._queue:
                return []
            joins = self._runner is not None and len(self._runner.sizes) > 1
            most = self._limits.pictures if joins else 1
            until = self._queue[0].since + self._limits.delay
            while joins and self._pictures < most and not self._is_closed:
                if (left := until - time.perf_counter()) <= 0:
                    break
                self._changed.wait(left)
            batch: list[Waiting] = []
            pictures = 0
            while self._queue and (not batch or pictures + self._queue[0].pictures <= most):
                batch.append(self._queue.popleft())
                pictures += batch[-1].pictures
            self._pictures -= pictures
            self._running, self._begun = batch, time.perf_counter()
        return batch

    def _run(self, batch: Sequence[Waiting]) -> None:
        """Run the requests together, and tell each its outcome."""
        asked = [each for each in batch if each.begin()]
        whole = self._outcome(batch, asked) if asked else Ran((), "")
        if not isinstance(whole, Exception):
            ends = [*itertools.accumulate(each.pictures for each in asked)]
            outcomes: list[Ran | Exception] = [
                Ran([array[end - each.pictures : end] for array in whole.arrays], whole.device)
                for each, end in zip(asked, ends, strict=True)
            ]
        elif isinstance(whole, RunError) and len(asked) > 1:  # of one of them, or of each
            outcomes = [self._outcome(batch, [each]) for each in asked]
        else:
            outcomes = [whole] * len(asked)
        with self._changed:
            if self._running is not batch:  # another thread has taken them over
                return
            self._running = ()
        for each, outcome in zip(asked, outcomes, strict=True):
            each.end(outcome)

    def _outcome(self, batch: Sequence[Waiting], asked: Sequence[Waiting]) -> Ran | Exception:
        """Return the outputs of a run, or why there are none; a failed device is replaced."""
        pictures = sum(each.pictures for each in asked)
        while (runner := self._runner) is not None:
            begun = time.perf_counter()
            try:
                outputs = runner.run(_joined(asked), pictures)
            except _DEVICE_ERRORS as error:
                with self._changed:
                    is_mine = self._running is batch
                if not is_mine:
                    return Unavailable(self.failure)  # nobody waits for it here
                self._replace_runner(_reason(error))
            except Exception as error:
                return RunError(_reason(error))
            else:
                self._listen(len(asked), pictures, time.perf_counter() - begun)
                return Ran(outputs, runner.device)
        return Unavailable(self.failure)

    def _replace_runner(self, failure: str) -> None:
        """Give the device up, and let the CPU take over, where that is wanted."""
        old, taking, why = self._runner, None, failure
        if self._fallback is not None and not self.failure:
            try:
                taking = self._fallback()
            except Exception as error:
                why = f"{failure}; nor does the CPU run it: {_reason(error)}"
        with self._changed:
            self._runner, self.failure, self._begun = taking, why, time.perf_counter()
        device = old.device if old is not None else "the device"
        then = "the CPU takes over" if taking is not None else "requests are refused"
        log.error("%s failed, %s: %s", device, then, why)
        if old is not None:  # what a broken device may never answer
            threading.Thread(target=_close, args=(old,), name="closing", daemon=True).start()


def _close(runner: Runner) -> None:
    try:
        runner.close()
    except Exception as error:
        log.warning("%s: %s", runner.device, one_line(error))


def _joined(asked: Sequence[Waiting]) -> Arrays:
    if len(asked) == 1:
        return asked[0].arrays
    return [np.concatenate(each) for each in zip(*(one.arrays for one in asked), strict=True)]


def _reason(error: BaseException) -> str:
    return reason_of(error.__cause__ or error if isinstance(error, DelegateFailed) else error)
