# SPDX-License-Identifier: Apache-2.0
"""Pictures in chunks, one chunk per worker: by path if the worker sees the files, else as bytes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

_SECONDS = 2.0  # target time of a chunk: much longer than the round trip
_FIRST, _GROWTH, _MOST = 8, 4, 1024  # pictures in the first chunk; growth factor; maximum
_MOST_BYTES = 32 << 20  # of a chunk's pictures, if sent by content


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture in a chunk."""

    number: int  # index among all
    name: str  # for people
    path: str  # absolute
    facts: tuple[int, int] | None  # size and modification time; None: always send the content
    content: bytes | None = None  # None: read it from its path

    def is_there(self) -> bool:
        """Whether this machine sees the same file."""
        return self.facts is None or self.facts == _facts(self.path)

    def by_bytes(self) -> Picture:
        """Return a copy with its content; the worker reports a missing file."""
        content = None
        with contextlib.suppress(OSError), open(self.path, "rb") as file:
            content = file.read()
        return replace(self, facts=None, content=content)


Chunk = tuple[Picture, ...]


class Chunks:
    """Groups pictures into chunks that take a few seconds each.

    Attributes:
        are_by_bytes: whether the next chunks carry the content.
    """

    def __init__(self, size: int | None, batch: int) -> None:
        """`size`: pictures per chunk; None: adaptive. `batch`: the minimum."""
        self._is_fixed = size is not None
        self._size, self._batch = size or max(_FIRST, batch), batch
        self.are_by_bytes = False

    def of(self, pictures: Iterable[tuple[int, str, str]]) -> Iterator[Chunk]:
        """Yield chunks of pictures given as (number, name, path)."""
        chunk: list[Picture] = []
        size = 0
        for number, name, path in pictures:
            path = os.path.abspath(path)
            picture = Picture(number, name, path, _facts(path))
            if self.are_by_bytes:
                picture = picture.by_bytes()
                size += len(picture.content or b"")
            chunk.append(picture)
            if len(chunk) >= self._size or size >= _MOST_BYTES:
                yield (*chunk,)
                chunk, size = [], 0
        if chunk:
            yield (*chunk,)

    def with_bytes(self, chunk: Chunk) -> Chunk:
        """Resend a chunk whose worker did not see the files; later ones carry the content, too."""
        self.are_by_bytes = True
        return tuple(picture.by_bytes() for picture in chunk)

    def learn(self, pictures: int, seconds: float) -> None:
        """Adapt the size of later chunks to the time that one took."""
        if not self._is_fixed:
            wanted = int(pictures * _SECONDS / max(seconds, 1e-3))
            most = min(_MOST, _GROWTH * self._size)
            whole = min(wanted, most) // self._batch * self._batch
            self._size = max(1, self._batch, whole)


def _facts(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns
