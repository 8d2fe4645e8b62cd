# SPDX-License-Identifier: Apache-2.0
"""One worker process: its events become results, and so do its death and its silence."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from delegate.sandbox.child import Child, Lines, signal_name
from tflite_opencl.conformance.outcome import CRASH, SKIP, TIMEOUT, Result, named

_STARTING_SECONDS = 120.0  # a driver's first build may take long
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


def results_of(
    command: Sequence[str],
    request: dict[str, Any],
    items: Sequence[Item],
    seconds: float,
    on_ready: Callable[[str, str], None],
    stopped: threading.Event,
) -> Iterator[Result]:
    """Run items in one process; yield their results, in order, until it is done or gone.

    `request`: what the worker is told beside the items; `seconds`: the time limit of a case.

    Raises: CannotRun: the worker cannot start, or says that it can run nothing.
    """
    with tempfile.TemporaryFile() as errors:
        try:
            child = Child(command, errors)
        except OSError as error:
            raise CannotRun(f"a worker process cannot start: {error.strerror or error}") from error
        try:
            told = {**request, "items": [item.request() for item in items]}
            child.send(json.dumps(told).encode(), is_last=True)
            yield from _Conversation(child, items, errors, seconds, on_ready).results(stopped)
        finally:
            child.close()


class _Conversation:
    """What is known of a worker while it runs."""

    def __init__(
        self,
        child: Child,
        items: Sequence[Item],
        errors: IO[bytes],
        seconds: float,
        on_ready: Callable[[str, str], None],
    ) -> None:
        self._child, self._errors, self._on_ready = child, errors, on_ready
        self._seconds = seconds
        self._items = {item.name: item for item in items}
        self._current: Item | None = None
        self._is_delegates = False  # whether what happens now is the delegate's fault
        self._alternative = ""  # that runs now
        self._mark = 0  # where the case's part of stderr begins
        # The time limit counts anew from each alternative, a case's seconds from its start.
        self._case_begun = self._begun = time.monotonic()
        self._limit = _STARTING_SECONDS

    def results(self, stopped: threading.Event) -> Iterator[Result]:
        """Yield a result for each case that the worker runs, or dies of."""
        lines = Lines(self._child.answers.fileno())
        while not stopped.is_set():
            end = self._begun + self._limit
            line = lines.next(min(0.5, max(0.0, end - time.monotonic())))
            if line is None and time.monotonic() < end:
                continue
            if not line:
                # Without a case it hangs or ends before its first one, or after its last.
                if self._current is not None:
                    yield self._late() if line is None else self._died()
                return
            result = self._heard(_event(line))
            if result is not None:
                yield result

    def _heard(self, event: dict[str, Any]) -> Result | None:
        """Take one event; return the result if it is one."""
        kind = event.pop("event", None)
        said = event.pop("stderr_bytes", 0)
        if kind == "ready":
            self._on_ready(event["device"], event["runtime"])
        elif kind == "fatal":
            raise CannotRun(event["text"])
        elif kind == "start":
            self._current = self._items[event["name"]]
            self._is_delegates, self._alternative = False, ""
            self._mark = said
            self._case_begun = self._begun = time.monotonic()
            self._limit = self._seconds * self._current.patience
        elif kind == "delegate":
            self._is_delegates = True
        elif kind == "alternative":
            self._alternative, self._begun = event["name"], time.monotonic()
        elif kind == "result":
            self._current, self._begun, self._limit = None, time.monotonic(), self._seconds
            return Result(**event, stderr=self._words(said))
        return None

    def _late(self) -> Result:
        detail = f"no answer after {self._limit:g} seconds"
        return self._ended(TIMEOUT if self._is_delegates else SKIP, detail)

    def _died(self) -> Result:
        death = _death(self._child.wait())
        if self._is_delegates:
            return self._ended(CRASH, f"the process died ({death})")
        return self._ended(SKIP, f"TFLite's own kernels died ({death})")

    def _ended(self, word: str, detail: str) -> Result:
        assert self._current is not None
        return Result(
            self._current.name,
            word,
            named(self._alternative, detail),
            time.monotonic() - self._case_begun,
            alternative=self._alternative,
            stderr=self._words(os.fstat(self._errors.fileno()).st_size),
        )

    def _words(self, end: int) -> str:
        """Return what came on stderr since the case began, without TFLite's own notes."""
        # The worker writes where this file object is: reading must not move it.
        handle = self._errors.fileno()
        text = os.pread(handle, end - self._mark, self._mark).decode(errors="replace")
        kept = [line for line in text.splitlines() if not line.startswith("INFO: ")]
        return "\n".join(kept)[-_KEPT_STDERR:]


def _event(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}  # something else got hold of the pipe
    return event if isinstance(event, dict) else {}


def _death(code: int | None) -> str:
    if code is None:
        return "without an end"
    return signal_name(code) or f"exit code {code}"
