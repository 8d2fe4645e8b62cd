# SPDX-License-Identifier: Apache-2.0
"""Cache entries in use by running processes, protected from removal by others.

Each process has its own file that lists the entries it uses, and holds a lock on the file until it
exits, in whatever way. Forked processes share it.
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
_YOUNG_SECONDS = 60  # a new lease may not be locked yet
_UNLOCKABLE_SECONDS = 24 * 3600  # lifetime of a lease on a file system without locks


class _UsageList:
    """This process's list of entries it uses in one cache folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.names: set[str] = set()
        self.process = os.getpid()
        self.path = ""
        self._handle: int | None = None
        with contextlib.suppress(CacheError, OSError):  # a read-only folder is not pruned from here
            path = make_folder(FOLDER) / f"{self.process}-{secrets.token_hex(4)}"
            mode = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            unlocked = path.with_name(f".{path.name}")
            handle = os.open(unlocked, mode, 0o600)
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._handle, self.path = handle, str(path)
            os.rename(unlocked, path)

    def add(self, name: str) -> None:
        """Add an entry."""
        self.names.add(name)
        if self._handle is not None:
            with contextlib.suppress(OSError):  # a full disk
                os.write(self._handle, os.fsencode(name) + b"\n")

    def end(self) -> None:
        """Delete the list, except in a forked process."""
        if self._handle is not None and self.process == os.getpid():
            with contextlib.suppress(OSError):
                os.unlink(self.path)
            with contextlib.suppress(OSError):
                os.close(self._handle)
        self._handle = None


_usage_list: _UsageList | None = None


def use(name: str) -> None:
    """Record that this process uses an entry until it exits."""
    global _usage_list
    folder = os.fspath(cache_folder())
    if _usage_list is None or _usage_list.folder != folder:
        if _usage_list is not None:
            _usage_list.end()
        _usage_list = _UsageList(folder)
    if name not in _usage_list.names:
        _usage_list.add(name)


def hold(name: str) -> None:
    """Record that this process opens an entry by path, now or later, or lets others do so.

    Waits for concurrent pruning: an entry that exists after this call stays.
    """
    with locked(FOLDER):
        use(name)


def used_by_others() -> set[str]:
    """Return the entries in use by running processes, including this; drop expired lists."""
    found: set[str] = set()
    with contextlib.suppress(OSError), os.scandir(cache_folder() / FOLDER) as entries:
        for entry in entries:
            if entry.name != ".lock":
                with contextlib.suppress(OSError):
                    found |= _names_in(entry.path)
    return found


def _names_in(path: str) -> set[str]:
    """Return the entries a process uses; none if it has exited."""
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
