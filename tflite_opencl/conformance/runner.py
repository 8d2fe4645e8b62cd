# SPDX-License-Identifier: Apache-2.0
"""Runs cases in worker processes: a crash or hang costs a single case.

A worker's events, its death and its timeouts become results.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from delegate.guard.children.child import LAST_WAIT_SECONDS, Child, ChildDied, command_of
from tflite_opencl.conformance.results import (
    CRASH,
    FAIL,
    FLAKE,
    PASS,
    SKIP,
    TIMEOUT,
    CaseResult,
    named,
)
from tflite_opencl.conformance.subject import COMPILED_MODEL, LibraryError
from tflite_opencl.console import interrupts

_BATCH = 120  # cases per worker; PoCL needs 2 MB of memory for each program
_IDLE_DEATHS = 3  # workers that die before any case; then give up
_STARTING_SECONDS = 120.0  # a driver's first build may take long
# What a worker is told.
_TOLD = "delegate", "options", "device", "runtime", "tolerance", "alternatives", "compile_only"
_KEPT_STDERR = 4000  # characters per case


class CannotRun(Exception):
    """No worker can run: no device, or no delegate; the text is one line."""


@dataclass(frozen=True, slots=True)
class Item:
    """A case to run: by name, or a model from a file."""

    name: str
    model: str | None = None
    inputs: str | None = None  # an .npz file
    is_repeated: bool = True  # whether to retry a failure
    patience: float = 1.0  # factor of the time limit


class _Stopped(Exception):
    """The results are no longer needed."""


@dataclass(frozen=True, slots=True)
class Workers:
    """How to start workers."""

    delegate: str
    options: dict[str, str]
    device: str | None
    runtime: str | None
    tolerance: int
    timeout: float  # seconds per case, or per alternative
    on_ready: Callable[[str, str], None] = lambda device, runtime: None
    alternatives: bool = False  # run each case once per alternative of its nodes
    compile_only: bool = False  # build each case's kernels, and run nothing
    command: Sequence[str] = field(
        default_factory=lambda: command_of("tflite_opencl.conformance.worker")
    )

    def run(
        self,
        items: Sequence[Item],
        jobs: int,
        on_result: Callable[[CaseResult], None],
        repeat: bool = True,
        until_s: float = math.inf,
    ) -> None:
        """Run all items, `jobs` workers at a time; results arrive in any order, one at a time.

        At `until_s` of time.monotonic() the run ends: items without a result get none.
        Raises: CannotRun: the delegate is not usable at all. `on_result`'s errors.
        """
        stopped, lock = threading.Event(), threading.Lock()
        batches: queue.SimpleQueue[Sequence[Item]] = queue.SimpleQueue()
        size = max(1, min(_BATCH, -(-len(items) // jobs)))
        for start in range(0, len(items), size):
            batches.put(items[start : start + size])
        problems: list[Exception] = []

        def work() -> None:
            with contextlib.suppress(queue.Empty):
                while not stopped.is_set():
                    batch = batches.get_nowait()
                    try:
                        for result in self._batch(batch, stopped, repeat, until_s):
                            with lock:
                                on_result(result)
                    except Exception as error:  # including `on_result`'s; raised below
                        problems.append(error)
                        stopped.set()

        threads = [threading.Thread(target=work, daemon=True) for _ in range(min(jobs, len(items)))]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.2)  # a timeout, so that Ctrl-C is handled
                    interrupts.check()
                    if time.monotonic() > until_s:
                        stopped.set()
        except KeyboardInterrupt:
            stopped.set()
            for thread in threads:
                thread.join(LAST_WAIT_SECONDS)
            raise
        if problems:
            raise problems[0]

    def _batch(
        self, batch: Sequence[Item], stopped: threading.Event, repeat: bool, until_s: float
    ) -> Iterator[CaseResult]:
        """Yield one result per item; failures are retried at the end, in a new worker."""
        failed: dict[Item, CaseResult] = {}
        for item, result in self._results(batch, stopped):
            if result.result in (FAIL, CRASH, TIMEOUT):
                failed[item] = result
            else:
                yield result
        excused = self._failures_of_runtime(failed, stopped)
        again: dict[Item, CaseResult] = {}
        for item, result in {**failed, **excused}.items():
            if repeat and item.is_repeated and item not in excused:
                again[item] = result
            else:
                yield result
        for item, result in self._results([*again], stopped):
            first = again.pop(item)
            if result.result == PASS:
                detail = f"{first.result} at first, then Pass: {first.detail}"
                first = dataclasses.replace(first, result=FLAKE, detail=detail)
            yield first
        for first in again.values() if time.monotonic() > until_s else ():
            yield dataclasses.replace(first, detail=f"{first.detail} (not repeated)")

    def _failures_of_runtime(
        self, failed: Mapping[Item, CaseResult], stopped: threading.Event
    ) -> Mapping[Item, CaseResult]:
        """Return a Skip for each failure that LiteRT's CompiledModel has without any delegate.

        This runs in a process that never had one. Only the same failure and message counts:
        if the CPU alone fails differently, the delegate may be wrong, too.
        """
        if not self.delegate.startswith(COMPILED_MODEL):
            return {}
        # Failures without a node are exceptions of this suite itself.
        asked = [item for item, each in failed.items() if each.result == FAIL and each.nodes]
        cpu = dataclasses.replace(
            self, delegate=COMPILED_MODEL, on_ready=lambda device, runtime: None
        )
        found = {}
        for item, alone in cpu._results(asked, stopped):
            result = failed[item]
            if (alone.result, alone.detail) == (FAIL, result.detail):
                words = f"LiteRT's CompiledModel fails so on the CPU alone: {result.detail}"
                found[item] = dataclasses.replace(result, result=SKIP, detail=words)
        return found

    def _results(
        self, items: Sequence[Item], stopped: threading.Event
    ) -> Iterator[tuple[Item, CaseResult]]:
        """Yield one result per item, in order, using as many workers as needed."""
        done = idle_deaths = 0
        while done < len(items) and not stopped.is_set():
            before = done
            for result in self._worker(items[done:], stopped):
                yield items[done], result
                done += 1
            idle_deaths = idle_deaths + 1 if done == before else 0
            if idle_deaths == _IDLE_DEATHS and not stopped.is_set():
                raise CannotRun("worker processes end before their first case")

    def _worker(self, items: Sequence[Item], stopped: threading.Event) -> Iterator[CaseResult]:
        """Run items in one process; yield their results, in order, until it is done or dies.

        Raises: CannotRun: the worker cannot start, or reports that it cannot run anything.
            LibraryError: the delegate cannot be loaded.
        """

        def check() -> None:
            if stopped.is_set():
                raise _Stopped

        try:
            child = Child(self.command, check=check)
        except OSError as error:
            reason = error.strerror or error
            raise CannotRun(f"a worker process cannot start: {reason}") from error
        with child, contextlib.suppress(_Stopped, ChildDied):
            names = [item.name for item in items if item.model is None]
            told = {name: getattr(self, name) for name in _TOLD}
            ready = child.ask(_STARTING_SECONDS, **told, names=names)
            if "fatal" in ready:
                raise (LibraryError if ready["is_library"] else CannotRun)(ready["fatal"])
            self.on_ready(ready["device"], ready["runtime"])
            for item in items:
                result, is_alive = _result(child, item, self.timeout * item.patience)
                yield result
                if not is_alive:
                    return


def _result(child: Child, item: Item, seconds: float) -> tuple[CaseResult, bool]:
    """Return an item's result, and whether the worker survived it."""
    begun, alternative, is_delegates = time.monotonic(), "", False
    child.send(name=item.name, model=item.model, inputs=item.inputs)
    try:
        while True:
            match child.event(seconds):
                case {"result": result}:
                    return CaseResult(**result | {"stderr": _words(child.stderr())}), True
                case {"alternative": name}:
                    alternative = name
                case {"delegate": _}:  # from here on the delegate is to blame
                    is_delegates = True
    except ChildDied as died:
        ended = died.exit
    if ended.is_late:
        word, detail = TIMEOUT, f"no answer after {seconds:g} seconds"
    else:
        who = "the process" if is_delegates else "TFLite's own kernels"
        word, detail = CRASH, f"{who} died ({ended.signal or f'exit code {ended.code}'})"
    result = CaseResult(
        word if is_delegates else SKIP,
        named(alternative, detail),
        alternative=alternative,
        name=item.name,
        seconds=time.monotonic() - begun,
        stderr=_words(ended.stderr),
    )
    return result, False


def _words(stderr: str) -> str:
    """Return stderr since the start of the case, without TFLite's own messages."""
    kept = [line for line in stderr.splitlines() if not line.startswith("INFO: ")]
    return "\n".join(kept)[-_KEPT_STDERR:]
