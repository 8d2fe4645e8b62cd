# SPDX-License-Identifier: Apache-2.0
"""Progress of a start: the current step, the share that is done, and the time of each phase.

A start spans from opening a device to a model that is ready to run. Use `watched` to observe one.
Progress of child processes is relayed.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

# Opening and testing the device, building kernels, measuring alternatives, and allocating and
# filling device memory.
PHASES = ("device", "build", "tune", "upload")
# The share of a start that is done when nodes have verdicts, and when they are grouped.
AT_VERDICTS, AT_GROUPS = 0.05, 0.3
_CONTAINING = ("device", "tune")  # self-tests upload, and measuring includes builds
_STEPS = ("begin", "end", "at")  # the methods of Watch that may be relayed
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a start."""

    phase: str  # one of PHASES
    part: float  # share of the whole start, 0 to 1; never decreases
    what: str  # the current item, as "node 3, CONV_2D"; "" = implied by the phase


class Watch:
    """An observed start.

    Attributes:
        seconds: by phase; phases do not overlap.
    """

    def __init__(self, listen: Callable[[Progress], None]) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._listen = listen
        # Stack of open spans: phase, and share of the whole.
        self._spans = [("", 0.0, 1.0)]
        self._since = 0.0  # when the innermost phase began or resumed
        self._part = 0.0
        self._what = ""

    def do(self, step: str, *arguments: Any) -> None:
        """Call one of the three methods below by name; other names are ignored."""
        if step in _STEPS:
            getattr(self, step)(*arguments)

    def begin(self, phase: str, low: float, high: float) -> None:
        """Begin a phase; its progress is mapped to this share of the enclosing span.

        "": the phase continues. Inside a phase that contains others, everything counts for it.
        """
        outer, begin, end = self._spans[-1]
        self._count()
        inner = phase if phase and outer not in _CONTAINING else outer
        self._spans.append((inner, begin + low * (end - begin), begin + high * (end - begin)))
        if phase:
            self._tell()

    def end(self) -> None:
        """End the innermost span, and report the phase that resumes."""
        self._count()
        ended, *_ = self._spans.pop()
        if self._spans[-1][0] not in ("", ended):
            self._what = ""
            self._tell()

    def at(self, part: float, what: str | None = None) -> None:
        """Report the share of the innermost span that is done, and the next item, if any."""
        _, low, high = self._spans[-1]
        self._part = max(self._part, low + part * (high - low))
        self._what = self._what if what is None else what
        self._tell()

    def _count(self) -> None:
        now = time.perf_counter()
        if phase := self._spans[-1][0]:
            self.seconds[phase] += now - self._since
        self._since = now

    def _tell(self) -> None:
        if phase := self._spans[-1][0]:
            self._listen(Progress(phase, self._part, self._what))


def _nobody(*_: Any) -> None:
    pass


# The receiver of each step: Watch.do. A context variable, because TFLite's callbacks are between
# the observer and the reporters.
_listener: ContextVar[Callable[..., Any]] = ContextVar("hears", default=_nobody)


@contextlib.contextmanager
def watched(listen: Callable[[Progress], None] = lambda _: None) -> Iterator[Watch]:
    """Observe the starts of this thread in this context; `listen` is called for each step.

    Exceptions from `listen` abort the start.
    """
    watch = Watch(listen)
    with forwarded_to(watch.do):
        yield watch


@contextlib.contextmanager
def forwarded_to(listener: Callable[..., Any]) -> Iterator[None]:
    """Forward each step in this context to `listener`; a child's are for `relay`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def phase(name: str) -> AbstractContextManager[None]:
    """Attribute the time in this context to a phase."""
    return _within(name, 0, 1)


def share(begin: float, end: float) -> AbstractContextManager[None]:
    """Map progress in this context to this share, within 0 to 1, of the enclosing span."""
    return _within("", begin, end)


@contextlib.contextmanager
def _within(phase: str, begin: float, end: float) -> Iterator[None]:
    listener = _listener.get()
    listener("begin", phase, begin, end)
    try:
        yield
    finally:
        listener("end")


def each(
    items: Sequence[_T], words: Callable[[_T], str], cost: Callable[[_T], float] = lambda _: 1
) -> Iterator[_T]:
    """Yield the items, and report each before it is yielded; `words` describes it.

    `cost`: estimated time, relative to the others.
    """
    listener = _listener.get()
    costs = [cost(item) for item in items]
    whole, before = sum(costs), 0.0
    for own, item in zip(costs, items, strict=True):
        listener("at", before / whole, words(item))
        yield item
        before += own
    listener("at", 1.0)


def shares(items: Sequence[_T], begin: float) -> Iterator[tuple[_T, AbstractContextManager[None]]]:
    """Yield the items, each with an equal share of the range from `begin` to 1."""
    size = (1 - begin) / max(1, len(items))
    for number, item in enumerate(items):
        yield item, share(begin + number * size, begin + (number + 1) * size)


def relay(step: str, *arguments: Any) -> None:
    """Apply a step that a child reported."""
    _listener.get()(step, *arguments)


@contextlib.contextmanager
def relay_ends() -> Iterator[None]:
    """At exit, end the spans that a child has left open.

    It counts by itself: the listener may be in another process, which returns nothing.
    """
    listener, begun = _listener.get(), 0

    def counted(step: str, *arguments: Any) -> None:
        nonlocal begun
        begun += {"begin": 1, "end": -1}.get(step, 0)
        listener(step, *arguments)

    with forwarded_to(counted):
        try:
            yield
        finally:
            for _ in range(begun):
                listener("end")


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Disable the garbage collector: it took a fifth of a start, whose objects mostly live on."""
    is_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_on:
            gc.enable()
