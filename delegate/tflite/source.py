# SPDX-License-Identifier: Apache-2.0
"""Where a model is read from: a path, which is mapped into memory, or bytes."""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
from collections.abc import Iterator

import numpy as np

from delegate.errors import ModelError
from delegate.tflite.table import MAX_FILE_BYTES, too_large


class MappedFile(mmap.mmap):
    """A file in memory, which nobody writes to there."""

    def let_go(self, address: int, size_bytes: int) -> None:
        """Keep no page of these bytes in this process; who reads them again gets them again."""
        begin = address - np.frombuffer(self, np.uint8).__array_interface__["data"][0]
        first, behind = -(-begin // mmap.PAGESIZE), (begin + size_bytes) // mmap.PAGESIZE
        if behind > first and hasattr(self, "madvise"):
            where = first * mmap.PAGESIZE, (behind - first) * mmap.PAGESIZE
            self.madvise(mmap.MADV_DONTNEED, *where)


Source = str | os.PathLike[str] | bytes | memoryview


@contextlib.contextmanager
def named(source: Source) -> Iterator[None]:
    """Put the path, if it is one, before what is said of a model that cannot be read."""
    try:
        yield
    except ModelError as error:
        if isinstance(source, (str, os.PathLike)):
            raise ModelError(f"{os.fspath(source)}: {error}") from None
        raise


def open_model(source: Source) -> memoryview:
    """Return a model's bytes; a path's are mapped into memory.

    Raises:
        ModelError: the path is no regular file, or is above 2 GB. OSError: it cannot be read.
    """
    if isinstance(source, (str, os.PathLike)):
        return _map(source)
    return memoryview(source).cast("B").toreadonly()


def _map(path: str | os.PathLike[str]) -> memoryview:
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # open() refuses a directory itself
        raise ModelError("this is a device or a pipe; give a regular file")
    with open(path, "rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes == 0:  # mmap refuses an empty file
            return memoryview(b"")
        if size_bytes > MAX_FILE_BYTES:
            raise too_large(size_bytes)
        return memoryview(MappedFile(file.fileno(), 0, access=mmap.ACCESS_READ))
