# SPDX-License-Identifier: Apache-2.0
"""Location and ownership of the cache folder, and locks between processes.

Drivers execute what is stored there, so only files that no other user can have written are used.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePath

from platformdirs import user_cache_path

from delegate.errors import CacheError

ENVIRONMENT_VARIABLE = "TFLITE_OPENCL_CACHE"
LOCK_SECONDS = 5.0  # to wait for other processes: a stopped one would block them all
_NO_HOME = Path("/dev/null/no-home")
_log = logging.getLogger("delegate")
_warned: set[str] = set()  # cache folders


def cache_folder() -> Path:
    """Return the cache folder; it need not exist yet."""
    chosen, home = os.environ.get(ENVIRONMENT_VARIABLE), os.environ.get("HOME")
    if chosen or home:
        return _folder(chosen, home, os.environ.get("XDG_CACHE_HOME"))
    return user_folder("tflite-opencl")


@lru_cache(maxsize=8)  # called for each file that is read
def _folder(chosen: str | None, *_: str | None) -> Path:
    return Path(chosen) if chosen else user_folder("tflite-opencl")


def user_folder(name: str) -> Path:
    """Return a program's folder in the user's cache folder; it need not exist yet.

    A user without HOME and without an entry of passwd(5) gets a folder that cannot be created.
    """
    try:
        folder = user_cache_path(name, appauthor=False)
    except RuntimeError:
        folder = Path("~")  # as older versions of platformdirs leave it
    return folder if folder.is_absolute() else _NO_HOME / name


def make_folder(name: str | PurePath) -> Path:
    """Create a private folder in the cache folder, and return it.

    Raises:
        CacheError: it cannot be created or written, or others may write to it.
    """
    top = os.fspath(cache_folder())
    path = os.path.join(top, name)
    try:
        for folder in _on_the_way(top, name):
            try:
                status = os.stat(folder)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(folder), exist_ok=True)
                with contextlib.suppress(FileExistsError):  # another process was faster
                    os.mkdir(folder, 0o700)
                status = os.stat(folder)
            if not stat.S_ISDIR(status.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
            check_owner(folder, status)
    except OSError as error:
        raise cannot_write(path, error) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise cannot_write(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    return Path(path)


def check_folders(name: str) -> str:
    """Return the path of an entry in the cache folder, if no other user can have created it.

    Raises:
        OSError: its folder is missing or unreadable. CacheError: others may write to it.
    """
    top = os.fspath(cache_folder())
    for folder in _on_the_way(top, os.path.dirname(name)):
        check_owner(folder, os.stat(folder))
    return os.path.join(top, name)


def check_owner(path: str, status: os.stat_result) -> None:
    """Raise CacheError unless only this user can have written a file or folder."""
    if status.st_uid != os.geteuid():
        why = "it belongs to another user"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = "other users may write to it"
        mode = status.st_mode
        if not mode & stat.S_ISVTX and (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            why += f"; chmod go-w {path} ends that"  # of /tmp and /dev/null it would do harm
    else:
        return
    raise CacheError(f"{path} is not used: {why} ({ENVIRONMENT_VARIABLE} can name another folder)")


def cannot_write(path: str | Path, error: OSError) -> CacheError:
    """Return the CacheError for a file system error."""
    return CacheError(
        f"cannot write {path}: {error.strerror or error} "
        f"({ENVIRONMENT_VARIABLE} can name another folder)"
    )


def warn_once(error: CacheError) -> None:
    """Warn once for each unusable cache folder."""
    folder = str(cache_folder())
    if folder not in _warned:
        _warned.add(folder)
        _log.warning("each start takes longer without the cache: %s", error)


@contextlib.contextmanager
def locked(name: str, seconds: float = LOCK_SECONDS) -> Iterator[int | None]:
    """Lock a folder of the cache against other processes; yield the open lock file.

    On timeout, or where locking is impossible (NFS without locks, a read-only folder), it yields
    None and continues: files are replaced atomically, so little is lost.
    """
    with contextlib.ExitStack() as stack:
        lock = None
        with contextlib.suppress(CacheError, OSError):  # reported by the next write
            path = make_folder(name) / ".lock"
            mode = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            handle = os.open(path, mode, 0o600)
            stack.callback(os.close, handle)
            end = time.monotonic() + seconds
            while lock is None and time.monotonic() < end:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    lock = handle
                except BlockingIOError:
                    time.sleep(0.005)
        yield lock


def _on_the_way(top: str, name: str | PurePath) -> list[str]:
    """Return the cache folder and its subfolders down to a folder, which comes last."""
    found = [top]
    for part in os.fspath(name).split("/"):
        if part not in ("", "."):
            found.append(f"{found[-1]}/{part}")
    return found
