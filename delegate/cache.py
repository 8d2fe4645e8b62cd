# SPDX-License-Identifier: Apache-2.0
"""The user's cache folder: files that can be lost, read and written whole.

A folder that cannot be written costs time, never the result.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
from pathlib import Path

from platformdirs import user_cache_path

from delegate.errors import CacheError

ENVIRONMENT_VARIABLE = "TFLITE_OPENCL_CACHE"
_DIGEST_BYTES = 32
_log = logging.getLogger("delegate")
_said: set[str] = set()


def cache_folder() -> Path:
    """Return the folder for what can be made or fetched again; it need not exist yet."""
    if chosen := os.environ.get(ENVIRONMENT_VARIABLE):
        return Path(chosen)
    return user_cache_path("tflite-opencl", appauthor=False)


def write_cached(name: str, content: bytes) -> Path:
    """Write a file of the cache, so that a reader sees the old file or the new one, never a part.

    Raises:
        CacheError: the folder is read-only, the disk is full, or the like.
    """
    path = cache_folder() / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(part, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise
    except OSError as error:
        raise CacheError(
            f"cannot write {path}: {error.strerror or error} "
            f"({ENVIRONMENT_VARIABLE} can name another folder)"
        ) from error
    return path


def load(name: str) -> bytes | None:
    """Return what `store` put under this name; None if it is not there or damaged."""
    try:
        content = (cache_folder() / name).read_bytes()
    except OSError:
        return None
    payload = content[_DIGEST_BYTES:]
    return payload if hashlib.sha256(payload).digest() == content[:_DIGEST_BYTES] else None


def store(name: str, payload: bytes) -> bool:
    """Keep bytes under a name with their checksum; False, and one warning, where that fails."""
    try:
        write_cached(name, hashlib.sha256(payload).digest() + payload)
    except CacheError as error:
        folder = str(cache_folder())
        if folder not in _said:
            _said.add(folder)
            _log.warning("each start takes longer without the cache: %s", error)
        return False
    return True
