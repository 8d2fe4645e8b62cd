# SPDX-License-Identifier: Apache-2.0
"""Mapped files, and cached SHA-256 digests of files and their parts, keyed by stat.

Otherwise each start would read and hash all weights of a model to find that nothing changed.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import threading
import time
from collections.abc import Callable
from io import FileIO

import numpy as np
from numpy.typing import NDArray

from delegate.guard.cache.files import load, opened, read, store

_PART_BYTES = 1 << 20
_LEAST_BYTES = 1 << 20  # smaller files are hashed faster than their entry is read
_SETTLED_SECONDS = 2  # changes within one tick of a file system's clock are indistinguishable
_unsaved: set[FileDigests] = set()
_lock = threading.RLock()  # of `_unsaved`, which several threads fill


class FileDigests:
    """Digests of parts of an open file, valid until it is written to or replaced."""

    def __init__(self, status: os.stat_result) -> None:
        """`status`: the file's, taken before it was read."""
        s = status
        identity = s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns
        self._name = f"digests/{hashlib.sha256(repr(identity).encode()).hexdigest()[:40]}"
        is_settled = abs(time.time() - max(s.st_mtime, s.st_ctime)) >= _SETTLED_SECONDS
        self._is_cached = is_settled and s.st_size >= _LEAST_BYTES
        self._known: dict[str, str] | None = None

    def of(self, begin: int, size_bytes: int, compute: Callable[[], str]) -> str:
        """Return the digest of a range of the file; `compute` is called if it is not cached."""
        if self._known is None:
            self._known = self._loaded()
        part = f"{begin}+{size_bytes}"
        if part not in self._known:
            self._known[part] = compute()
            with _lock:
                _unsaved.add(self)
        return self._known[part]

    def save(self) -> None:
        """Save all digests, unless the file is small or may still change undetected."""
        if self._is_cached:
            store(self._name, json.dumps(self._known).encode())

    def _loaded(self) -> dict[str, str]:
        content = load(self._name) if self._is_cached else None
        try:
            digests = json.loads(content or b"{}")
            return {str(part): str(digest) for part, digest in digests.items()}
        except (ValueError, RecursionError, AttributeError):
            return {}


class MappedFile(mmap.mmap):
    """A read-only mapped file.

    Attributes:
        digests: of its parts.
    """

    digests: FileDigests

    @classmethod
    def of(cls, handle: int) -> MappedFile:
        """Map an open file as a whole. Raises: ValueError: it is empty. OSError."""
        status = os.fstat(handle)
        mapped = cls(handle, 0, access=mmap.ACCESS_READ)
        mapped.digests = FileDigests(status)
        return mapped

    def offset_of(self, values: NDArray[np.uint8]) -> int:
        """Return the offset in the file at which an array of it begins."""
        own = np.frombuffer(self, np.uint8)
        return int(values.ctypes.data) - int(own.ctypes.data)

    def drop_pages(self, begin: int, size_bytes: int) -> None:
        """Drop the resident pages of a range; a later access faults them in again."""
        first, behind = -(-begin // mmap.PAGESIZE), (begin + size_bytes) // mmap.PAGESIZE
        if behind > first and hasattr(self, "madvise"):
            where = first * mmap.PAGESIZE, (behind - first) * mmap.PAGESIZE
            self.madvise(mmap.MADV_DONTNEED, *where)


def mapped(name: str) -> MappedFile | None:
    """Map a file of the cache; None: it is missing, empty, or not owned by this user."""

    def map_whole(file: FileIO, size_bytes: int) -> MappedFile | None:
        return MappedFile.of(file.fileno()) if size_bytes else None

    return read(name, map_whole)


def keep_digests() -> None:
    """Save the computed digests for later starts."""
    with _lock:
        unsaved = [*_unsaved]
        _unsaved.clear()
    for each in unsaved:
        each.save()


def sha256_of(name: str) -> str | None:
    """Return the checksum of a file of the cache; None: it is missing or unreadable.

    For callers that know the expected one: ownership is not checked. `name`: may also be an
    absolute path to any file.
    """
    found = hashlib.sha256()
    try:
        with opened(name) as (file, status):

            def whole() -> str:
                while part := file.read(_PART_BYTES):
                    found.update(part)
                return found.hexdigest()

            digest = FileDigests(status).of(0, status.st_size, whole)
    except OSError:
        return None
    keep_digests()
    return digest
