# SPDX-License-Identifier: Apache-2.0
"""The user's cache folder: files that can be lost, read and written whole.

A folder that cannot be written costs time, never the result; it is said once, as a warning.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from pathlib import Path

from platformdirs import user_cache_path

_DIGEST_BYTES = 32
_log = logging.getLogger("delegate")
_said: set[str] = set()


def folder() -> Path:
    """Return the cache folder, which need not exist: $TFLITE_OPENCL_CACHE or the user's own."""
    chosen = os.environ.get("TFLITE_OPENCL_CACHE")
    return Path(chosen) if chosen else user_cache_path("tflite-opencl", appauthor=False)


def load(name: str) -> bytes | None:
    """Return what `store` put under this name; None if it is not there or damaged."""
    try:
        content = (folder() / name).read_bytes()
    except OSError:
        return None
    payload = content[_DIGEST_BYTES:]
    return payload if hashlib.sha256(payload).digest() == content[:_DIGEST_BYTES] else None


def store(name: str, payload: bytes) -> bool:
    """Keep bytes under a name with their checksum; False (and one warning) where that fails."""
    return write(folder() / name, hashlib.sha256(payload).digest() + payload)


def write(path: Path, content: bytes) -> bool:
    """Replace a file of the cache in one step; False (and one warning) where that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        reason = f"{folder()}: {error.strerror or error}"
        if reason not in _said:
            _said.add(reason)
            _log.warning("the cache is not used, so each start takes longer: %s", reason)
        return False
    return True
