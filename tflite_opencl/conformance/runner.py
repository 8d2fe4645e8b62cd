# SPDX-License-Identifier: Apache-2.0
"""Cases in worker processes: a crash or a hang costs the one case, and the rest goes on."""

from __future__ import annotations

import dataclasses
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from delegate.sandbox.child import LAST_WAIT_SECONDS, command_of
from tflite_opencl.common import interrupts
from tflite_opencl.conformance.outcome import CRASH, FAIL, FLAKE, PASS, TIMEOUT, Result
from tflite_opencl.conformance.process import CannotRun, Item, results_of

_BATCH = 60
_WORKER = "tflite_opencl.conformance.worker"


@dataclass(frozen=True, slots=True)
class Workers:
    """How workers are started."""

    delegate: str
    options: dict[str, str]
    device: str | None
    runtime: str | None
    tolerance: int | None
    timeout: float  # seconds a case, or each of its alternatives
    on_ready: Callable[[str, str], None] = lambda device, runtime: None
    alternatives: bool = False  # run each case once for each alternative of its nodes
    command: Sequence[str] = field(default_factory=lambda: command_of(_WORKER))

    def run(
        self,
        items: Sequence[Item],
        jobs: int,
        on_result: Callable[[Result], None],
        repeat: bool = True,
    ) -> None:
        """Run all items, `jobs` workers at a time; results come in any order, one at a time.

        Raises: CannotRun: the delegate cannot be used at all. And what `on_result` raises.
        """
        stopped = threading.Event()
        batches: queue.SimpleQueue[list[Item]] = queue.SimpleQueue()
        size = max(1, min(_BATCH, -(-len(items) // jobs)))
        for start in range(0, len(items), size):
            batches.put(list(items[start : start + size]))
        lock = threading.Lock()
        problems: list[Exception] = []

        def tell(result: Result) -> None:
            with lock:
                on_result(result)

        def work() -> None:
            while not stopped.is_set():
                try:
                    batch = batches.get_nowait()
                except queue.Empty:
                    return
                try:
                    self._batch(batch, tell, stopped, repeat)
                except Exception as error:  # also of `on_result`; raised below
                    problems.append(error)
                    stopped.set()

        threads = [threading.Thread(target=work, daemon=True) for _ in range(min(jobs, len(items)))]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.2)  # so that Ctrl-C is heard
                    interrupts.check()
        except KeyboardInterrupt:
            stopped.set()
            for thread in threads:
                thread.join(LAST_WAIT_SECONDS)
            raise
        if problems:
            raise problems[0]

    def _batch(
        self,
        batch: list[Item],
        tell: Callable[[Result], None],
        stopped: threading.Event,
        repeat: bool,
    ) -> None:
        again: dict[str, tuple[Item, Result]] = {}
        by_name = {item.name: item for item in batch}
        for result in self._results(batch, stopped):
            item = by_name[result.name]
            if repeat and item.is_repeated and result.result in (FAIL, CRASH, TIMEOUT):
                again[item.name] = item, result
            else:
                tell(result)
        for result in self._results([item for item, _ in again.values()], stopped):
            _, first = again.pop(result.name)
            if result.result == PASS:
                detail = f"{first.result} at first, then Pass: {first.detail}"
                tell(dataclasses.replace(first, result=FLAKE, detail=detail))
            else:
                tell(first)

    def _results(self, items: Sequence[Item], stopped: threading.Event) -> Iterator[Result]:
        """Yield a result an item, from as many workers as it takes."""
        left = list(items)
        idle_deaths = 0
        while left and not stopped.is_set():
            done = 0
            for result in self._worker(left, stopped):
                done += 1
                yield result
            left = left[done:]
            idle_deaths = 0 if done else idle_deaths + 1
            if idle_deaths == 3 and not stopped.is_set():
                raise CannotRun("worker processes end before their first case")

    def _worker(self, items: Sequence[Item], stopped: threading.Event) -> Iterator[Result]:
        request = {
            "delegate": self.delegate,
            "options": self.options,
            "device": self.device,
            "runtime": self.runtime,
            "tolerance": self.tolerance,
            "alternatives": self.alternatives,
        }
        return results_of(self.command, request, items, self.timeout, self.on_ready, stopped)
