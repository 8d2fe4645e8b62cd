# SPDX-License-Identifier: Apache-2.0
"""The user's cache folder: files that can be lost, read and written whole.

A folder that cannot be written costs time, never the result. What drivers run is kept here, so only
what this user alone can have written is used.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from platformdirs import user_cache_path

from delegate.errors import CacheError

ENVIRONMENT_VARIABLE = "TFLITE_OPENCL_CACHE"
_DIGEST_BYTES = 32
_PART_BYTES = 1 << 20
_NO_HOME = Path("/dev/null/no-home")
_log = logging.getLogger("delegate")
_said: set[str] = set()


def cache_folder() -> Path:
    """Return the folder for what can be made or fetched again; it need not exist yet."""
    if chosen := os.environ.get(ENVIRONMENT_VARIABLE):
        return Path(chosen)
    return user_folder("tflite-opencl")


def user_folder(name: str) -> Path:
    """Return the folder of a program in the user's folder for caches; it need not exist yet.

    A user without HOME and without an entry of passwd(5) gets a folder that nobody can make.
    """
    try:
        folder = user_cache_path(name, appauthor=False)
    except RuntimeError:
        folder = Path("~")  # as older versions of platformdirs leave it
    return folder if folder.is_absolute() else _NO_HOME / name


def write_cached(name: str, content: bytes) -> Path:
    """Write a file of the cache, so that a reader sees the old file or the new one, never a part.

    Raises:
        CacheError: the folder is read-only, the disk is full, others may write to it, or the like.
    """
    path = make_folder(Path(name).parent) / Path(name).name
    try:
        replace_file(path, content)
    except OSError as error:
        raise _cannot_write(path, error) from error
    return path


def replace_file(path: Path, content: bytes) -> None:
    """Put a file of this user alone in the place of whatever is there, a link or a pipe included.

    Raises:
        OSError: it cannot be written, or a folder with files is in its place.
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
    """Open what a download is written to piece by piece; `is_rest`: behind what is there.

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
        raise _cannot_write(path, error) from error


def make_folder(name: str | Path) -> Path:
    """Make a folder in the cache folder, for this user alone, and return it.

    Raises:
        CacheError: it cannot be made, it cannot be written, or others may write to it.
    """
    path = cache_folder() / name
    try:
        for folder in _folders(path):
            if not folder.is_dir():
                folder.parent.mkdir(parents=True, exist_ok=True)
                folder.mkdir(mode=0o700, exist_ok=True)
            _check_owner(folder, folder.stat())
    except OSError as error:
        raise _cannot_write(path, error) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise _cannot_write(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    return path


def load(name: str) -> bytes | None:
    """Return what `store` put under this name; None if it is not there, damaged or not ours."""
    try:
        for folder in _folders((cache_folder() / name).parent):
            _check_owner(folder, folder.stat())
        with _opened(name) as file:
            _check_owner(cache_folder() / name, os.fstat(file.fileno()))
            content = file.read()
    except OSError:
        return None
    except CacheError as error:
        _say(error)
        return None
    payload = content[_DIGEST_BYTES:]
    return payload if _digest(name, payload) == content[:_DIGEST_BYTES] else None


def sha256_of(name: str) -> str | None:
    """Return the checksum of a file of the cache; None: there is none, or it cannot be read.

    For whoever knows what it must be: the owner is not asked.
    """
    found = hashlib.sha256()
    try:
        with _opened(name) as file:
            while part := file.read(_PART_BYTES):
                found.update(part)
    except OSError:
        return None
    return found.hexdigest()


@contextlib.contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    """Give a file of the cache to read. Raises: OSError: it cannot be opened, or is no file."""
    with open(cache_folder() / name, "rb", opener=_opened_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(name))
        yield file


def _opened_at_once(path: str, flags: int) -> int:
    # Opening a pipe would else wait for whoever writes.
    return os.open(path, flags | os.O_NONBLOCK)


def store(name: str, payload: bytes) -> bool:
    """Keep bytes under a name with their checksum; False, and one warning, where that fails.

    `name` holds a digest of all that the bytes were made for. The checksum covers the name, so that
    an entry under another's name is not loaded.
    """
    try:
        write_cached(name, _digest(name, payload) + payload)
    except CacheError as error:
        _say(error)
        return False
    return True


def _digest(name: str, payload: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + payload).digest()


def _folders(path: Path) -> list[Path]:
    """Return the cache folder and those in it on the way to a folder, itself last."""
    inside = path.relative_to(cache_folder())
    return [cache_folder() / each for each in (*reversed(inside.parents), inside)]


def _cannot_write(path: Path, error: OSError) -> CacheError:
    return CacheError(
        f"cannot write {path}: {error.strerror or error} "
        f"({ENVIRONMENT_VARIABLE} can name another folder)"
    )


def _check_owner(path: Path, status: os.stat_result) -> None:
    """Return if only this user can have written a file or folder, else raise CacheError."""
    if status.st_uid != os.geteuid():
        why = "it belongs to another user"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = f"other users may write to it; chmod go-w {path} ends that"
    else:
        return
    raise CacheError(f"{path} is not used: {why} ({ENVIRONMENT_VARIABLE} can name another folder)")


def _say(error: CacheError) -> None:
    """Warn once a cache folder."""
    folder = str(cache_folder())
    if folder not in _said:
        _said.add(folder)
        _log.warning("each start takes longer without the cache: %s", error)
