# SPDX-License-Identifier: Apache-2.0
"""Sources of models: a path, which is mapped into memory, or bytes."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

from delegate.errors import ModelError
from delegate.format.table import MAX_FILE_BYTES, too_large
from delegate.guard.cache import MappedFile

Source = str | os.PathLike[str] | bytes | memoryview


@contextlib.contextmanager
def named(source: Source) -> Iterator[None]:
    """Prefix errors about a model with its path, if it has one."""
    try:
        yield
    except ModelError as error:
        if isinstance(source, (str, os.PathLike)):
            raise ModelError(f"{os.fspath(source)}: {error}") from None
        raise


def open_model(source: Source) -> memoryview:
    """Return a model's bytes; a path's are mapped into memory.

    Raises:
        ModelError: the path is not a regular file, or is above 2 GB. OSError: it cannot be read.
    """
    if isinstance(source, (str, os.PathLike)):
        return _map(source)
    return memoryview(source).cast("B").toreadonly()


def _map(path: str | os.PathLike[str]) -> memoryview:
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # open() rejects a directory itself
        raise ModelError("this is a device or a pipe; give a regular file")
    with open(path, "rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes == 0:  # mmap rejects an empty file
            return memoryview(b"")
        if size_bytes > MAX_FILE_BYTES:
            raise too_large(size_bytes)
        return memoryview(MappedFile.of(file.fileno()))
