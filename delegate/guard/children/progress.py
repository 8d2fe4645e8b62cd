# SPDX-License-Identifier: Apache-2.0
"""What a start does now, how much of it is done, and the time that each phase took.

A start is all from the first look at a device to a model that is ready to run. Whoever wants to
know of one calls `watched`. What a child process tells of itself is told on.
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

# Opening and testing the device, building kernels, measuring which are the fastest, and taking
# memory on the device and filling it with constants.
PHASES = ("device", "build", "tune", "upload")
# What is done of a start when the nodes are judged, and when they are in groups.
AT_VERDICTS, AT_GROUPS = 0.05, 0.3
_CONTAINING = ("device", "tune")  # self-tests upload, and what is measured is built, too
_STEPS = ("begin", "end", "at")  # the methods of Watch that may be told
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a start is."""

    phase: str  # one of PHASES
    part: float  # what is done of the whole start, 0 to 1; it never falls
    what: str  # what is worked on, as "node 3, CONV_2D"; "" = the phase says it


class Watch:
    """A start that somebody watches.

    Attributes:
        seconds: by phase, and no second is in two of them.
    """

    def __init__(self, listen: Callable[[Progress], None]) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._listen = listen
        # By what began and has not ended: its phase, and its part of the whole.
        self._spans = [("", 0.0, 1.0)]
        self._since = 0.0  # when the innermost phase began or went on
        self._part = 0.0
        self._what = ""

    def do(self, step: str, *arguments: Any) -> None:
        """Call one of the three methods below by its name; another word does nothing."""
        if step in _STEPS:
            getattr(self, step)(*arguments)

    def begin(self, phase: str, low: float, high: float) -> None:
        """Begin a phase, and let what is told until its end be this part of what is told outside.

        "": the phase goes on. Inside of those that contain others all is a part of it.
        """
        outer, begin, end = self._spans[-1]
        self._count()
        inner = phase if phase and outer not in _CONTAINING else outer
        self._spans.append((inner, begin + low * (end - begin), begin + high * (end - begin)))
        if phase:
            self._tell()

    def end(self) -> None:
        """End what began last, and tell of the phase that goes on."""
        self._count()
        ended, *_ = self._spans.pop()
        if self._spans[-1][0] not in ("", ended):
            self._what = ""
            self._tell()

    def at(self, part: float, what: str | None = None) -> None:
        """Take that this part of what began last is done, and what comes now, if it is new."""
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


# Who hears each step: Watch.do. A context's, because TFLite's callbacks lie between who watches and
# who tells.
_listener: ContextVar[Callable[..., Any]] = ContextVar("hears", default=_nobody)


@contextlib.contextmanager
def watched(listen: Callable[[Progress], None] = lambda _: None) -> Iterator[Watch]:
    """Watch the starts of this thread while inside; `listen` is told each step of them.

    What `listen` raises ends the start.
    """
    watch = Watch(listen)
    with forwarded_to(watch.do):
        yield watch


@contextlib.contextmanager
def forwarded_to(listener: Callable[..., Any]) -> Iterator[None]:
    """Let this be called with each step while inside; a child's gives them to `relay`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def phase(name: str) -> AbstractContextManager[None]:
    """Count the time inside for a phase."""
    return _within(name, 0, 1)


def share(begin: float, end: float) -> AbstractContextManager[None]:
    """Take what is told inside for this part, between 0 and 1, of what is told outside."""
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
    """Yield the items, and tell of each that it comes now; `words` says what it is.

    `cost`: about how long it takes, beside the others.
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
    """Yield the items, each with its share of what is left from `begin` on."""
    size = (1 - begin) / max(1, len(items))
    for number, item in enumerate(items):
        yield item, share(begin + number * size, begin + (number + 1) * size)


def relay(step: str, *arguments: Any) -> None:
    """Do a step that a child told."""
    _listener.get()(step, *arguments)


@contextlib.contextmanager
def relay_ends() -> Iterator[None]:
    """End in the end what a child began inside and did not end.

    It counts by itself: who hears may be in another process, which answers nothing.
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
    """Keep Python from looking for garbage: a start makes what lives on, and took a fifth more."""
    is_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_on:
            gc.enable()
