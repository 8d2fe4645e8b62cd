# SPDX-License-Identifier: Apache-2.0
"""One worker process: its events become results, and so do its death and its silence."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from delegate.sandbox.child import Child, Died
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

    def check() -> None:
        if stopped.is_set():
            raise _Stopped

    try:
        child = Child(command, check=check)
    except OSError as error:
        raise CannotRun(f"a worker process cannot start: {error.strerror or error}") from error
    names = [item.name for item in items if item.model is None]
    with child, contextlib.suppress(_Stopped, Died):
        ready = child.ask(_STARTING_SECONDS, **request, names=names)
        if "fatal" in ready:
            raise CannotRun(ready["fatal"])
        on_ready(ready["device"], ready["runtime"])
        for item in items:
            result, is_alive = _result(child, item, seconds * item.patience)
            yield result
            if not is_alive:
                return


class _Stopped(Exception):
    """Nobody wants the results any more."""


def _result(child: Child, item: Item, seconds: float) -> tuple[Result, bool]:
    """Return what came of an item, and whether the worker outlived it."""
    begun, alternative, is_delegates = time.monotonic(), "", False
    child.send(name=item.name, model=item.model, inputs=item.inputs)
    try:
        while True:
            match child.event(seconds):
                case {"result": result}:
                    return Result(**result, stderr=_words(child.stderr())), True
                case {"alternative": name}:
                    alternative = name
                case {"delegate": _}:  # from here on it is the delegate's fault
                    is_delegates = True
    except Died as died:
        ended = died.ended
    if ended.is_late:
        word, detail = TIMEOUT, f"no answer after {seconds:g} seconds"
    else:
        who = "the process" if is_delegates else "TFLite's own kernels"
        word, detail = CRASH, f"{who} died ({ended.signal or f'exit code {ended.code}'})"
    result = Result(
        item.name,
        word if is_delegates else SKIP,
        named(alternative, detail),
        time.monotonic() - begun,
        alternative=alternative,
        stderr=_words(ended.stderr),
    )
    return result, False


def _words(stderr: str) -> str:
    """Return what came on stderr since the case began, without TFLite's own notes."""
    kept = [line for line in stderr.splitlines() if not line.startswith("INFO: ")]
    return "\n".join(kept)[-_KEPT_STDERR:]
