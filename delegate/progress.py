# SPDX-License-Identifier: Apache-2.0
"""What a start does now, how much of it is done, and the time that each phase took.

A start is all from the first look at a device to a model that is ready to run. Whoever wants to
know of one calls `watched`. What a child process tells of itself is told on.
"""

from __future__ import annotations

import contextlib
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
_RELAYED = ("begin", "end", "share", "end_share", "at")
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
        self._phases: list[str] = []
        self._since = 0.0  # when the innermost phase began or went on
        self._shares = [(0.0, 1.0)]
        self._part = 0.0
        self._what = ""

    def do(self, word: str, *arguments: Any) -> None:
        """Call one of the five methods below by its name; another word does nothing."""
        if word in _RELAYED:
            getattr(self, word)(*arguments)

    def begin(self, phase: str) -> None:
        """Begin a phase; inside of those that contain others all is a part of it."""
        self._count()
        outer = (each for each in _CONTAINING if each in self._phases)
        self._phases.append(next(outer, phase))
        self._tell()

    def end(self) -> None:
        """End the innermost phase, and tell of the one that goes on."""
        self._count()
        ended = self._phases.pop()
        if self._phases and self._phases[-1] != ended:
            self._what = ""
            self._tell()

    def share(self, begin: float, end: float) -> None:
        """Let what is told until `end_share` be this part of what is told outside."""
        low, high = self._shares[-1]
        self._shares.append((low + begin * (high - low), low + end * (high - low)))

    def end_share(self) -> None:
        """End the innermost share."""
        self._shares.pop()

    def at(self, part: float, what: str | None = None) -> None:
        """Take that this part of the innermost share is done, and what comes now, if it is new."""
        low, high = self._shares[-1]
        self._part = max(self._part, low + part * (high - low))
        self._what = self._what if what is None else what
        self._tell()

    def depth(self) -> tuple[int, int]:
        """Return how many phases and shares have begun and not ended."""
        return len(self._phases), len(self._shares)

    def back_to(self, depth: tuple[int, int]) -> None:
        """End what began since `depth` was asked for: a child that died cannot."""
        while len(self._phases) > depth[0]:
            self.end()
        del self._shares[depth[1] :]

    def _count(self) -> None:
        now = time.perf_counter()
        if self._phases:
            self.seconds[self._phases[-1]] += now - self._since
        self._since = now

    def _tell(self) -> None:
        if self._phases:
            self._listen(Progress(self._phases[-1], self._part, self._what))


class Relay(Watch):
    """A watch in a child process, which gives everything to `tell` for `relayed`."""

    def __init__(self, tell: Callable[..., None]) -> None:
        super().__init__(lambda _: None)
        self._relay = tell

    def do(self, word: str, *arguments: Any) -> None:
        """Tell what is to be done."""
        self._relay(progress=[word, *arguments])


# A context's, because TFLite's callbacks lie between who watches and who tells.
_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextlib.contextmanager
def watched(listen: Callable[[Progress], None] = lambda _: None) -> Iterator[Watch]:
    """Watch the starts of this thread while inside; `listen` is told each step of them.

    What `listen` raises ends the start.
    """
    with told_to(Watch(listen)) as watch:
        yield watch


@contextlib.contextmanager
def told_to(watch: Watch) -> Iterator[Watch]:
    """Let this watch be told while inside."""
    token = _watch.set(watch)
    try:
        yield watch
    finally:
        _watch.reset(token)


@contextlib.contextmanager
def unwatched_from() -> Iterator[Callable[[], object]]:
    """Give a function; from its call on until the end nobody is told of what begins inside."""
    watch = _watch.get()
    try:
        yield lambda: _watch.set(None)
    finally:
        _watch.set(watch)


def phase(name: str) -> AbstractContextManager[None]:
    """Count the time inside for a phase."""
    return _within("begin", "end", name)


def share(begin: float, end: float) -> AbstractContextManager[None]:
    """Take what is told inside for this part, between 0 and 1, of what is told outside."""
    return _within("share", "end_share", begin, end)


@contextlib.contextmanager
def _within(begin: str, end: str, *arguments: Any) -> Iterator[None]:
    watch = _watch.get()
    if watch is not None:
        watch.do(begin, *arguments)
    try:
        yield
    finally:
        if watch is not None:
            watch.do(end)


def each(
    items: Sequence[_T], words: Callable[[_T], str], cost: Callable[[_T], float] = lambda _: 1
) -> Iterator[_T]:
    """Yield the items, and tell of each that it comes now; `words` says what it is.

    `cost`: about how long it takes, beside the others.
    """
    watch = _watch.get()
    costs = [cost(item) for item in items]
    for number, item in enumerate(items):
        if watch is not None:
            watch.do("at", sum(costs[:number]) / sum(costs), words(item))
        yield item
    if watch is not None:
        watch.do("at", 1.0)


def shares(items: Sequence[_T], begin: float) -> Iterator[tuple[_T, AbstractContextManager[None]]]:
    """Yield the items, each with its share of what is left from `begin` on."""
    size = (1 - begin) / max(1, len(items))
    for number, item in enumerate(items):
        yield item, share(begin + number * size, begin + (number + 1) * size)


def relayed(word: str, *arguments: Any) -> None:
    """Do what a Relay told."""
    watch = _watch.get()
    if watch is not None:
        watch.do(word, *arguments)


@contextlib.contextmanager
def relay_ends() -> Iterator[None]:
    """End in the end what a Relay began inside and did not end."""
    watch = _watch.get()
    depth = watch.depth() if watch is not None else (0, 0)
    try:
        yield
    finally:
        if watch is not None:
            watch.back_to(depth)
