# SPDX-License-Identifier: Apache-2.0
"""What is known of a device and driver: one file on disk, which several processes may save at once.

A file has tables of keys and values that JSON takes: facts that the driver was asked for, how
trials ended, bans, and what was chosen. Whoever loads a table checks its values.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import time
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from delegate import cache
from delegate.errors import CacheError

FACTS, TRIALS, BANS, CHOICES = "facts", "trials", "bans", "choices"
_FOLDER = "known"
_OLDER = ("trials", "tune")  # folders of earlier versions
_DEVICE = "device"
_MOST_SECONDS = 5.0  # to wait for others who save: one that is stopped would hold them all
_log = logging.getLogger("delegate")


class Store:
    """The file of a device and driver.

    Attributes:
        identity: DeviceInfo.identity, and its profile's.
    """

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self._name = f"{_FOLDER}/{hashlib.sha256(identity.encode()).hexdigest()[:40]}"

    def load(self, table: str) -> dict[str, Any]:
        """Return a table as it is on disk; an empty one where nothing is or the file is foreign."""
        return dict(_loaded(self._name).get(table, {}))

    def save(self, table: str, entries: Mapping[str, Any], gone: Collection[str] = ()) -> bool:
        """Put entries into a table, and take some out of it; all that others saved stays.

        Returns: whether the file could be written.
        """
        with _alone(self._name):
            tables: dict[str, Any] = dict(_loaded(self._name))
            kept = tables.get(table, {}) | dict(entries)
            tables[table] = {key: value for key, value in kept.items() if key not in gone}
            return cache.store(self._name, json.dumps({**tables, _DEVICE: self.identity}).encode())


def stores() -> Iterator[Store]:
    """Yield what is known of each device."""
    for path in sorted((cache.cache_folder() / _FOLDER).glob("[!.]*")):
        identity = _loaded(f"{_FOLDER}/{path.name}").get(_DEVICE)
        if isinstance(identity, str):
            yield Store(identity)


def has_stores() -> bool:
    """Whether anything is known of any device; asks no content."""
    try:
        with os.scandir(cache.cache_folder() / _FOLDER) as entries:
            return any(entries)
    except OSError:
        return False


def _loaded(name: str) -> Mapping[str, Any]:
    content = cache.load(name)
    if content is None:
        _say_older(cache.cache_folder())
        return {}
    return _parsed(content)


@lru_cache(maxsize=8)
def _parsed(content: bytes) -> Mapping[str, Any]:
    """Return the tables; those that are none are left out."""
    try:
        tables = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(tables, dict):
        return {}
    return {n: table for n, table in tables.items() if isinstance(table, dict) or n == _DEVICE}


@lru_cache(maxsize=8)
def _say_older(folder: Path) -> None:
    with contextlib.suppress(OSError):  # a folder that cannot be read
        if not (folder / _FOLDER).exists() and any((folder / name).exists() for name in _OLDER):
            _log.info("what earlier versions kept in %s is not used", folder)


@contextlib.contextmanager
def _alone(name: str) -> Iterator[None]:
    """Wait until no other process saves this file. Without a lock it goes on: little is lost."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(CacheError, OSError):  # which storing says
            path = cache.make_folder(_FOLDER) / f".{Path(name).name}.lock"
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            stack.callback(os.close, handle)
            end = time.monotonic() + _MOST_SECONDS
            while time.monotonic() < end:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(0.005)
        yield
