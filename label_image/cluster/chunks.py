# SPDX-License-Identifier: Apache-2.0
"""Pictures in chunks, each for one worker: by path where it sees the same files, else by bytes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

_SECONDS = 2.0  # that a chunk should take: much more than the way there and back
_FIRST, _GROWTH, _MOST = 8, 4, 1024  # pictures of the first chunk; of the next; of any
_MOST_BYTES = 32 << 20  # of a chunk's pictures, where they go by bytes


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of a chunk."""

    number: int  # among all
    name: str  # for people
    path: str  # absolute
    facts: tuple[int, int] | None  # its bytes and when it was written; None: not to be looked for
    content: bytes | None = None  # None: it is read by its path

    def is_there(self) -> bool:
        """Whether this machine sees the same file."""
        return self.facts is None or self.facts == _facts(self.path)

    def by_bytes(self) -> Picture:
        """Return the same with its content; a file that is gone is found missing by the worker."""
        content = None
        with contextlib.suppress(OSError), open(self.path, "rb") as file:
            content = file.read()
        return replace(self, facts=None, content=content)


Chunk = tuple[Picture, ...]


class Chunks:
    """Takes pictures ahead of their workers, as many as take some seconds.

    Attributes:
        are_by_bytes: whether the next ones have their content.
    """

    def __init__(self, size: int | None, batch: int) -> None:
        """`size`: pictures of a chunk; None: by what chunks before took. `batch`: at least so."""
        self._is_fixed = size is not None
        self._size, self._batch = size or max(_FIRST, batch), batch
        self.are_by_bytes = False

    def of(self, pictures: Iterable[tuple[int, str, str]]) -> Iterator[Chunk]:
        """Yield chunks of pictures, which are (number, name, path)."""
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
        """Return a chunk whose worker did not see the files; the next ones are by bytes, too."""
        self.are_by_bytes = True
        return tuple(picture.by_bytes() for picture in chunk)

    def learn(self, pictures: int, seconds: float) -> None:
        """Let later chunks take as long as they should, given what one took."""
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
