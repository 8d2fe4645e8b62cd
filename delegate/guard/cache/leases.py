# SPDX-License-Identifier: Apache-2.0
"""What running processes use of the cache, so that another process does not remove it.

Each process has a file of its own that lists the entries it uses, and holds a lock on that file
until it ends, however it ends. Forked processes share it.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import secrets
import time

from delegate.errors import CacheError
from delegate.guard.cache.folder import cache_folder, locked, make_folder

FOLDER = "leases"
_YOUNG_SECONDS = 60  # a lease that may not be locked yet
_UNLOCKABLE_SECONDS = 24 * 3600  # a lease where the file system knows no locks


class _UsageList:
    """This process's list of what it uses of one cache folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.names: set[str] = set()
        self.process = os.getpid()
        self.path = ""
        self._handle: int | None = None
        with contextlib.suppress(CacheError, OSError):  # a read-only one is not pruned from here
            path = make_folder(FOLDER) / f"{self.process}-{secrets.token_hex(4)}"
            mode = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            unlocked = path.with_name(f".{path.name}")
            handle = os.open(unlocked, mode, 0o600)
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._handle, self.path = handle, str(path)
            os.rename(unlocked, path)

    def add(self, name: str) -> None:
        """List one more entry."""
        self.names.add(name)
        if self._handle is not None:
            with contextlib.suppress(OSError):  # a full disk
                os.write(self._handle, os.fsencode(name) + b"\n")

    def end(self) -> None:
        """Give up what is listed, unless a forked process calls this."""
        if self._handle is not None and self.process == os.getpid():
            with contextlib.suppress(OSError):
                os.unlink(self.path)
            with contextlib.suppress(OSError):
                os.close(self._handle)
        self._handle = None


_usage_list: _UsageList | None = None


def use(name: str) -> None:
    """Note that this process uses an entry until it ends."""
    global _usage_list
    folder = os.fspath(cache_folder())
    if _usage_list is None or _usage_list.folder != folder:
        if _usage_list is not None:
            _usage_list.end()
        _usage_list = _UsageList(folder)
    if name not in _usage_list.names:
        _usage_list.add(name)


def hold(name: str) -> None:
    """Note that this process opens an entry by its path, now or later, or lets others do so.

    No other process is removing entries meanwhile: what is there after this call stays.
    """
    with locked(FOLDER):
        use(name)


def used_by_others() -> set[str]:
    """Return what running processes use, this one included; forget those that ended."""
    found: set[str] = set()
    with contextlib.suppress(OSError), os.scandir(cache_folder() / FOLDER) as entries:
        for entry in entries:
            if entry.name != ".lock":
                with contextlib.suppress(OSError):
                    found |= _names_in(entry.path)
    return found


def _names_in(path: str) -> set[str]:
    """Return what a process uses; nothing, if it ended."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        age = time.time() - os.fstat(handle).st_mtime
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            is_held = True
        except OSError:
            is_held = age < _UNLOCKABLE_SECONDS
        else:
            is_held = os.path.basename(path).startswith(".") and age < _YOUNG_SECONDS
        if not is_held:
            os.unlink(path)
            return set()
        return {os.fsdecode(line) for line in file.read().splitlines()}


@atexit.register
def _end() -> None:
    global _usage_list
    if _usage_list is not None:
        _usage_list.end()
    _usage_list = None
