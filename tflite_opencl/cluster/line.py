# SPDX-License-Identifier: Apache-2.0
"""The queue of one place's chunks: which chunk is next, and whose result is next. Sends nothing."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

_AHEAD = 4  # results per worker that may wait for an earlier one

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SkippedChunk:
    """Why a chunk is skipped, on one line."""

    why: str


@dataclass(slots=True, eq=False)
class Sent(Generic[T]):
    """A chunk taken from the queue."""

    number: int
    chunk: T
    ends: int = 0  # workers that it killed, or on which it failed


class Line(Generic[T]):
    """Issues chunks while workers are free, and yields results in order, or as completed."""

    def __init__(self, chunks: Iterable[T], is_ordered: bool) -> None:
        self._source = (Sent(number, chunk) for number, chunk in enumerate(chunks))
        self._is_ordered = is_ordered
        self._again: deque[Sent[T]] = deque()
        self._ready: dict[int, tuple[T, Any]] = {}
        self._under_way = self._taken = self._given = self._workers = 0
        self._is_at_end = False
        self._seen_s = time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether all results have been yielded."""
        return self._is_at_end and self._given == self._taken

    def count(self, workers: int, gone_s: float) -> None:
        """Update the number of workers; after this long without any, skip remaining chunks."""
        now = time.monotonic()
        self._workers = workers
        if workers or self._under_way:
            self._seen_s = now
        elif now - self._seen_s > gone_s:
            self._workers = 1
            while (sent := self.next()) is not None:
                self.done(sent, SkippedChunk("no worker is there any more"))

    def next(self) -> Sent[T] | None:
        """Return the next chunk to send; None: the workers are busy, or there is none."""
        if self._under_way >= self._workers:
            return None
        if self._again:
            sent: Sent[T] | None = self._again.popleft()
        elif self._is_at_end or self._taken - self._given >= _AHEAD * self._workers:
            return None
        else:
            sent = next(self._source, None)
            self._is_at_end = sent is None
            self._taken += sent is not None
        self._under_way += sent is not None
        return sent

    def again(self, sent: Sent[T]) -> None:
        """Schedule a chunk for a retry."""
        self._under_way -= 1
        self._again.append(sent)

    def done(self, sent: Sent[T], came: Any) -> None:
        """Store a chunk's result, or why it is skipped, until its turn."""
        self._under_way -= 1
        self._ready[sent.number] = sent.chunk, came

    def ready(self) -> Iterator[tuple[T, Any]]:
        """Yield the results whose turn it is."""
        while self._ready:
            number = self._given if self._is_ordered else next(iter(self._ready))
            if number not in self._ready:
                return
            self._given += 1
            yield self._ready.pop(number)
