# SPDX-License-Identifier: Apache-2.0
"""The user's cache folder: where it is, and files in it that are whole or not there at all.

What lies in it is checked by whoever put it there.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import platformdirs

ENVIRONMENT_VARIABLE = "TFLITE_OPENCL_CACHE"

# Told how much of a long job is done: (done, total); a total of 0 is not known.
Progress = Callable[[int, int], None]


class CacheError(Exception):
    """The cache folder takes no file; the text says which, why, and how to choose another."""


def cache_folder() -> Path:
    """Return the folder for what can be made or fetched again; it need not exist yet."""
    if chosen := os.environ.get(ENVIRONMENT_VARIABLE):
        return Path(chosen)
    return platformdirs.user_cache_path("tflite-opencl", appauthor=False)


def make_cache_folder() -> Path:
    """Return the cache folder, which exists from now on.

    Raises: CacheError: it cannot be made.
    """
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cache_error(folder, error) from error
    return folder


def write_cached(name: str, data: bytes) -> Path:
    """Write a file of the cache, so that a reader sees the old file or the new one, never a part.

    Raises: CacheError: the folder is read-only, the disk is full, or the like.
    """
    folder = make_cache_folder()
    path = folder / name
    try:
        handle, part = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
        try:
            with open(handle, "wb") as file:
                file.write(data)
            os.replace(part, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise
    except OSError as error:
        raise cache_error(path, error) from error
    return path


def cache_error(path: Path, error: OSError) -> CacheError:
    """Return the error for a cache path that cannot be written."""
    return CacheError(
        f"cannot write {path}: {error.strerror or error} "
        f"({ENVIRONMENT_VARIABLE} can name another folder)"
    )
