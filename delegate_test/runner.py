# SPDX-License-Identifier: Apache-2.0
"""Cases in worker processes: a crash or a hang costs the one case, and the rest goes on."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from delegate_test.outcome import CRASH, FAIL, FLAKE, PASS, SKIP, TIMEOUT, Result

_BATCH = 60
_STARTING_SECONDS = 120.0  # a driver's first build may take long
_LAST_WAIT_SECONDS = 5.0  # a process inside a hung driver may not even end by SIGKILL
_KEPT_STDERR = 4000  # characters a case


class CannotRun(Exception):
    """No worker can run anything: no device, no delegate; the text is one line."""


@dataclass(frozen=True, slots=True)
class Item:
    """A case to run: by its name, or a model of a file."""

    name: str
    model: str | None = None
    inputs: str | None = None  # an .npz file
    is_repeated: bool = True  # whether a failure is tried again
    patience: float = 1.0  # times the time limit

    def request(self) -> dict[str, Any]:
        """Return what the worker is told."""
        return {"name": self.name, "model": self.model, "inputs": self.inputs}


@dataclass(frozen=True, slots=True)
class Workers:
    """How workers are started."""

    delegate: str
    options: dict[str, str]
    device: str | None
    runtime: str | None
    tolerance: int | None
    timeout: float  # seconds a case
    on_ready: Callable[[str, str], None] = lambda device, runtime: None
    command: tuple[str, ...] = field(default=(sys.executable, "-m", "delegate_test.worker"))

    def run(
        self,
        items: Sequence[Item],
        jobs: int,
        on_result: Callable[[Result], None],
        stop: threading.Event | None = None,
        repeat: bool = True,
    ) -> None:
        """Run all items, `jobs` workers at a time; results come in any order, one at a time.

        Raises: CannotRun: the delegate cannot be used at all.
        """
        stopped = stop or threading.Event()
        batches: queue.SimpleQueue[list[Item]] = queue.SimpleQueue()
        size = max(1, min(_BATCH, -(-len(items) // jobs)))
        for start in range(0, len(items), size):
            batches.put(list(items[start : start + size]))
        lock, problems = threading.Lock(), []

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
                except CannotRun as error:
                    problems.append(error)
                    stopped.set()

        threads = [threading.Thread(target=work, daemon=True) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.2)  # so that Ctrl-C is heard
        except KeyboardInterrupt:
            stopped.set()
            for thread in threads:
                thread.join(_LAST_WAIT_SECONDS)
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
                tell(Result(first.name, FLAKE, detail, first.seconds, first.quanta, first.taken,
                            first.nodes, first.stderr))  # fmt: skip
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
        """Yield the results of one process, in order, until it is done or gone."""
        request = {
            "delegate": self.delegate,
            "options": self.options,
            "device": self.device,
            "runtime": self.runtime,
            "tolerance": self.tolerance,
            "items": [item.request() for item in items],
        }
        with tempfile.TemporaryFile() as errors:
            child = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=Path(__file__).resolve().parent.parent,
                start_new_session=True,
            )
            try:
                assert child.stdin is not None
                with contextlib.suppress(BrokenPipeError):
                    child.stdin.write(json.dumps(request).encode())
                    child.stdin.close()
                yield from self._follow(child, items, errors, stopped)
            finally:
                _end(child)

    def _follow(
        self,
        child: subprocess.Popen[bytes],
        items: Sequence[Item],
        errors: BinaryIO,
        stopped: threading.Event,
    ) -> Iterator[Result]:
        assert child.stdout is not None
        current: Item | None = None
        is_delegates = False
        by_name = {item.name: item for item in items}
        mark, begun, limit = 0, time.monotonic(), _STARTING_SECONDS
        lines = _Lines(child.stdout.fileno())
        while not stopped.is_set():
            line = lines.next(min(0.5, max(0.0, begun + limit - time.monotonic())))
            now = time.monotonic()
            if line is None:
                if now - begun < limit:
                    continue
                if current is None:
                    return  # it hangs before its first case, or after its last
                detail = f"no answer after {limit:g} seconds"
                what = TIMEOUT if is_delegates else SKIP
                yield Result(current.name, what, detail, now - begun, stderr=_text(errors, mark))
                return
            if not line:
                if current is not None:
                    code = _wait(child)
                    if is_delegates:
                        detail, what = f"the process died ({_death(code)})", CRASH
                    else:
                        detail, what = f"TFLite's own kernels died ({_death(code)})", SKIP
                    words = _text(errors, mark)
                    yield Result(current.name, what, detail, now - begun, stderr=words)
                return
            event = _event(line)
            kind = event.get("event")
            if kind == "ready":
                self.on_ready(event["device"], event["runtime"])
            elif kind == "fatal":
                raise CannotRun(event["text"])
            elif kind == "start":
                current, is_delegates = by_name[event["name"]], False
                mark, begun = errors.seek(0, os.SEEK_END), now
                limit = self.timeout * current.patience
            elif kind == "delegate":
                is_delegates = True
            elif kind == "result":
                current, limit = None, self.timeout
                event.pop("event")
                yield Result(**event, stderr=_text(errors, mark))


class _Lines:
    """Lines of a pipe, with a time limit each."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._held = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(handle, selectors.EVENT_READ)

    def next(self, seconds: float) -> bytes | None:
        """Return a line, b"" at the end, None if none came in time."""
        until = time.monotonic() + seconds
        while b"\n" not in self._held:
            if not self._selector.select(max(0.0, until - time.monotonic())):
                return None
            read = os.read(self._handle, 65536)
            if not read:
                self._selector.close()
                return b""
            self._held += read
        line, _, self._held = self._held.partition(b"\n")
        return line or b" "


def _event(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}  # something else got hold of the pipe
    return event if isinstance(event, dict) else {}


def _text(errors: BinaryIO, mark: int) -> str:
    """Return what came on stderr since then, without TFLite's own notes."""
    errors.seek(mark)
    text = errors.read().decode(errors="replace")
    errors.seek(0, os.SEEK_END)
    kept = [line for line in text.splitlines() if not line.startswith("INFO: ")]
    return "\n".join(kept)[-_KEPT_STDERR:]


def _wait(child: subprocess.Popen[bytes]) -> int | None:
    try:
        return child.wait(_LAST_WAIT_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def _death(code: int | None) -> str:
    if code is None:
        return "without an end"
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the worker and all it started."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        if child.poll() is None and child.stdout is not None and child.stdout.closed:
            child.wait(0.1)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_LAST_WAIT_SECONDS)
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
