# SPDX-License-Identifier: Apache-2.0
"""A served model's thread: combines requests from a bounded queue into runs.

A failed device is tried again, while the CPU takes over if enabled. If it fails again,
it is given up.
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
from tflite_opencl.console.errors import DelegateFailed, RunError, one_line, reason_of
from tflite_opencl.serve.runners import Runner
from tflite_opencl.serve.tensors import Arrays

log = logging.getLogger("tflite_opencl")
_DEVICE_ERRORS = (DelegateError, DelegateFailed)


class Busy(Exception):
    """The queue is full: the client may retry in a second."""


class Unavailable(Exception):
    """Nothing can run the model any more; the text is one line that says why."""


@dataclass(frozen=True, slots=True)
class InferenceResult:
    """The result of a request."""

    arrays: Arrays
    device: str  # what ran it


@dataclass(eq=False, slots=True)
class PendingRequest:
    """A queued or running request."""

    arrays: Arrays
    pictures: int
    future: Future[InferenceResult] = field(default_factory=Future)
    since: float = field(default_factory=time.perf_counter)

    def begin(self) -> bool:
        """Mark it as running; return whether its client is still waiting."""
        return self.future.running() or self.future.set_running_or_notify_cancel()

    def end(self, outcome: InferenceResult | Exception) -> None:
        """Set the result."""
        if isinstance(outcome, Exception):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


@dataclass(frozen=True, slots=True)
class BatchingOptions:
    """Limits on queueing and batching."""

    queue: int  # queued requests
    pictures: int  # per run
    delay: float  # seconds that a request may wait for others to join its batch


# Called after a run: number of requests, pictures, seconds.
Listener = Callable[[int, int, float], None]


class BatchScheduler:
    """Runs a model for all of its clients.

    Attributes:
        failure: why the device does not run it, now or permanently; "" = it does.
    """

    def __init__(
        self,
        runner: Runner,
        limits: BatchingOptions,
        fallback: Callable[[], Runner] | None = None,
        listen: Listener = lambda requests, pictures, seconds: None,
    ) -> None:
        """`fallback`: opens the runner that takes over; None: there is none."""
        self._runner: Runner | None = runner
        self._cpu: Runner | None = None  # set once it has taken over
        self._limits, self._fallback, self._listen = limits, fallback, listen
        self.failure = ""
        self._changed = threading.Condition()  # protects the fields below
        self._queue: deque[PendingRequest] = deque()
        self._pictures = 0  # in the queue
        self._run_since: float | None = None  # monotonic; None: nothing runs
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._thread.start()

    @property
    def runner(self) -> Runner | None:
        """The current runner; None: there is none."""
        return self._runner

    @property
    def waiting(self) -> int:
        """Number of queued requests."""
        return len(self._queue)

    @property
    def running_seconds(self) -> float:
        """How long the current batch has been running; 0: none is."""
        since = self._run_since
        return 0.0 if since is None else time.monotonic() - since

    def submit(self, arrays: Arrays, pictures: int) -> Future[InferenceResult]:
        """Queue a request; return the future of its outputs.

        The future raises: RunError: the model cannot run on these values. Unavailable.
        Raises: Busy: the queue is full. Unavailable: nothing runs the model.
        """
        request = PendingRequest(arrays, pictures)
        with self._changed:
            self._require_running()
            if len(self._queue) >= self._limits.queue:
                raise Busy
            self._queue.append(request)
            self._pictures += pictures
            self._changed.notify()
        return request.future

    def close(self, seconds: float = 10.0) -> None:
        """End the thread once the queue is empty, and wait for it, at most this long."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(seconds)
        if not self._thread.is_alive():  # otherwise it hangs, and ends with the process
            for runner in {self._runner, self._cpu}:
                if runner is not None:
                    _close(runner)

    def _require_running(self) -> None:
        if self._runner is None or self._is_closed:
            raise Unavailable(self.failure or "the service is being ended")

    def _work(self) -> None:
        while batch := self._next():
            self._run_since = time.monotonic()
            self._run(batch)
            self._run_since = None

    def _next(self) -> list[PendingRequest]:
        """Wait for requests; return those of the next run, [] at the end."""
        with self._changed:
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
            batch: list[PendingRequest] = []
            pictures = 0
            while self._queue and (not batch or pictures + self._queue[0].pictures <= most):
                batch.append(self._queue.popleft())
                pictures += batch[-1].pictures
            self._pictures -= pictures
        return batch

    def _run(self, batch: Sequence[PendingRequest]) -> None:
        """Run the requests as one batch, and set their results."""
        asked = [each for each in batch if each.begin()]
        whole = self._outcome(asked) if asked else InferenceResult((), "")
        if not isinstance(whole, Exception):
            ends = [*itertools.accumulate(each.pictures for each in asked)]
            outcomes: list[InferenceResult | Exception] = [
                InferenceResult(
                    [array[end - each.pictures : end] for array in whole.arrays], whole.device
                )
                for each, end in zip(asked, ends, strict=True)
            ]
        elif isinstance(whole, RunError) and len(asked) > 1:  # caused by one of them, or by all
            outcomes = [self._outcome([each]) for each in asked]
        else:
            outcomes = [whole] * len(asked)
        for each, outcome in zip(asked, outcomes, strict=True):
            each.end(outcome)

    def _outcome(self, asked: Sequence[PendingRequest]) -> InferenceResult | Exception:
        """Return the outputs of a run, or why there are none."""
        arrays, pictures = _joined(asked), sum(each.pictures for each in asked)
        runner, is_again = self._runner, False
        while runner is not None:
            begun = time.perf_counter()
            try:
                outputs = runner.run(arrays, pictures)
            except _DEVICE_ERRORS as error:
                if is_again:  # the device works with other values
                    return RunError(_reason(error))
                runner, is_again = self._take_over(runner, _reason(error), arrays), True
            except Exception as error:
                return RunError(_reason(error))
            else:
                self._listen(len(asked), pictures, time.perf_counter() - begun)
                return InferenceResult(outputs, runner.device)
        return Unavailable(self.failure)

    def _take_over(self, device: Runner, failure: str, arrays: Arrays) -> Runner | None:
        """Return the runner to use after a device failure; None: there is none."""
        zeros = [np.zeros_like(array) for array in arrays]
        if self._fallback is None:
            log.warning(
                "%s failed, and the run is repeated: %s",
                device.device,
                failure,
                extra=_fields(device),
            )
            self._try_again(device, zeros)
            return self._runner
        try:
            cpu = self._cpu = self._cpu or self._fallback()
        except Exception as error:
            self._give_up(device, f"{failure}; nor does the CPU run it: {_reason(error)}")
            return None
        with self._changed:
            self._runner, self.failure = cpu, failure
        log.error(
            "%s failed, the CPU takes over: %s", device.device, failure, extra=_fields(device)
        )
        threading.Thread(
            target=self._try_again, args=(device, zeros), name="trying again", daemon=True
        ).start()
        return cpu

    def _try_again(self, device: Runner, arrays: Arrays) -> None:
        """Retry a failed device: with `isolate` it has a new process."""
        begun = time.perf_counter()
        try:
            device.run(arrays, len(arrays[0]))
        except Exception as error:
            self._give_up(device, _reason(error))
            return
        with self._changed:
            self._runner, self.failure = device, ""
        log.info(
            "%s runs again, %.1f s later",
            device.device,
            time.perf_counter() - begun,
            extra=_fields(device),
        )

    def _give_up(self, device: Runner, failure: str) -> None:
        """Stop using a device."""
        with self._changed:
            self.failure = failure
            if self._runner is device:
                self._runner = None
            then = "requests are refused" if self._runner is None else "the CPU stays"
        log.error("%s is given up, %s: %s", device.device, then, failure, extra=_fields(device))
        # Calls that a broken device may never return from:
        threading.Thread(target=_close, args=(device,), name="closing", daemon=True).start()


def _fields(device: Runner) -> dict[str, dict[str, str]]:
    """Return a record's fields for systemd's journal."""
    return {"fields": {"device": device.device}}


def _close(runner: Runner) -> None:
    try:
        runner.close()
    except Exception as error:
        log.warning("%s: %s", runner.device, one_line(error))


def _joined(asked: Sequence[PendingRequest]) -> Arrays:
    if len(asked) == 1:
        return asked[0].arrays
    return [np.concatenate(each) for each in zip(*(one.arrays for one in asked), strict=True)]


def _reason(error: BaseException) -> str:
    return reason_of(error.__cause__ or error if isinstance(error, DelegateFailed) else error)
