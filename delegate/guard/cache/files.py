# SPDX-License-Identifier: Apache-2.0
"""Files of the cache folder: optional, and read and written atomically.

An unwritable folder costs time, but never changes results.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import BinaryIO, TypeVar

from delegate.errors import CacheError
from delegate.guard.cache import leases, limit
from delegate.guard.cache.folder import (
    cache_folder,
    cannot_write,
    check_folders,
    check_owner,
    make_folder,
    warn_once,
)

_Found = TypeVar("_Found")
_DIGEST_BYTES = 32
_STALE_TRIES = 3  # of a file whose handle is stale
_USED_SECONDS = 3600  # granularity of the time of last use, to limit writes


def write_cached(name: str, content: bytes | memoryview) -> Path:
    """Write a file of the cache atomically.

    Raises:
        CacheError: the folder is read-only, the disk is full, others may write to it, etc.
    """
    path = make_folder(Path(name).parent) / Path(name).name
    if limit.kind_of(name) is not None:
        leases.use(name)  # before the file exists: a child writes it for its parent
    try:
        replace_file(path, content)
    except OSError as error:
        raise cannot_write(path, error) from error
    limit.after_writing(len(content))
    return path


def replace_file(path: Path, content: bytes | memoryview) -> None:
    """Write a private file in place of whatever is there, including a link or a pipe.

    Raises:
        OSError: it cannot be written, or a non-empty folder is in its place.
    """
    handle, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def open_part(name: str, is_rest: bool) -> BinaryIO:
    """Open a partial download for writing; `is_rest`: append to what is there.

    Raises:
        CacheError: as `write_cached`.
    """
    path = make_folder(Path(name).parent) / Path(name).name
    mode = os.O_APPEND if is_rest else os.O_TRUNC
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            path.unlink()
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | mode, 0o600)
        return os.fdopen(handle, "wb")
    except OSError as error:
        raise cannot_write(path, error) from error


def load(name: str, is_use: bool = True) -> bytes | None:
    """Return the bytes stored under a name; None if missing, damaged or not owned by this user.

    `is_use`: update the time of last use; not for merely listing entries.
    """
    content = read(name, lambda file, _: file.read(), is_use)
    if content is None:
        return None
    payload = content[_DIGEST_BYTES:]
    return payload if _digest(name, payload) == content[:_DIGEST_BYTES] else None


def read(name: str, use: Callable[[FileIO, int], _Found], is_use: bool = True) -> _Found | None:
    """Return `use(file, size)` for a file of the cache; None: missing or not owned by this user.

    `use` is called again where another NFS client replaced the file meanwhile.
    """
    for _ in range(_STALE_TRIES):
        try:
            path = check_folders(name)
            with opened(name, is_use) as (file, status):
                check_owner(path, status)
                return use(file, status.st_size)
        except OSError as error:
            if error.errno != errno.ESTALE:
                break
        except CacheError as error:
            warn_once(error)
            break
    return None


@contextlib.contextmanager
def opened(name: str, is_use: bool = True) -> Iterator[tuple[FileIO, os.stat_result]]:
    """Open a file of the cache; yield it with its stat, and update its time of last use.

    Raises: OSError: it cannot be opened, or is no file.
    """
    path = os.path.join(cache_folder(), name)
    # Opening a pipe would otherwise block until there is a writer.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    with FileIO(handle) as file:
        if is_use and limit.kind_of(name) is not None:
            leases.use(name)
            if not 0 <= time.time() - status.st_mtime < _USED_SECONDS:
                with contextlib.suppress(OSError):  # a read-only folder
                    os.utime(handle)
        yield file, status


def store(name: str, payload: bytes) -> bool:
    """Store bytes under a name with their checksum; on failure return False, and warn once.

    `name` contains a digest of everything the bytes depend on. The checksum covers the name, so
    that a renamed entry is not loaded.
    """
    try:
        write_cached(name, _digest(name, payload) + payload)
    except CacheError as error:
        warn_once(error)
        return False
    return True


def _digest(name: str, payload: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + payload).digest()
