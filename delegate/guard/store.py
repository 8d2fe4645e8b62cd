# SPDX-License-Identifier: Apache-2.0
"""Persistent facts about devices and drivers, safe for concurrent writers.

Driver facts, self-test results and bans are few: one file per device, read as a whole. Choices grow
with each model. Those records are looked up by key, so that a start reads only what it needs,
whatever other models have left. The digest of a key selects one of many small files, each of which
keeps only its latest records.

Values are JSON; readers validate them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from delegate.guard import cache

FACTS, TRIALS, BANS, CHOICES = "facts", "trials", "bans", "choices"
_WHOLE = (FACTS, TRIALS, BANS)  # tables that are read whole
_DEVICES, _RECORDS = "devices", "records"  # folders
_OLDER = ("trials", "tune", "known")  # folders of earlier versions
_DEVICE = "device"
_PAGE_DIGITS = 3  # of a key's digest: 4,096 files
_MOST_RECORDS = 64  # of a file
_log = logging.getLogger("delegate")


class Store:
    """Facts about one device and driver.

    Attributes:
        identity: of DeviceInfo and its profile.
        digest: its short form in records.
    """

    def __init__(self, identity: str) -> None:
        self.identity = identity
        digest = hashlib.sha256(identity.encode()).hexdigest()[:40]
        self.digest = digest[:16]
        self._name = f"{_DEVICES}/{digest}"

    def look_up(self, table: str, key: str) -> Any:
        """Return a record of a table; None: there is none."""
        record = self._record(table, key)
        return _loaded(_page_of(record)).get(record)

    def load(self, table: str, is_use: bool = True) -> dict[str, Any]:
        """Return a whole table; empty if missing or invalid.

        `is_use`: update the time of last use. For choices this reads the records of all models,
        which no start does.
        """
        if table in _WHOLE:
            found = _loaded(self._name, is_use).get(table)
            return dict(found) if isinstance(found, dict) else {}
        start = self._record(table, "")
        return {
            record.removeprefix(start): value
            for page in _pages()
            for record, value in _loaded(page, is_use=False).items()
            if record.startswith(start)
        }

    def save(self, table: str, entries: Mapping[str, Any], gone: Collection[str] = ()) -> bool:
        """Update entries of a table, and remove some; concurrent changes are preserved.

        Returns: whether everything was written.
        """
        with cache.locked(_DEVICES):
            if table in _WHOLE:
                return self._save_whole(table, entries, gone)
            if _DEVICE not in _loaded(self._name) and not self._save_whole(FACTS, {}, ()):
                return False
            changes: dict[str, dict[str, Any]] = defaultdict(dict)
            for key in {**entries, **dict.fromkeys(gone)}:
                record = self._record(table, key)
                changes[_page_of(record)][record] = None if key in gone else entries[key]
            return {_save_page(*each) for each in changes.items()} <= {True}

    def _save_whole(self, table: str, entries: Mapping[str, Any], gone: Collection[str]) -> bool:
        tables = {name: self.load(name) for name in _WHOLE}
        kept = tables[table] | dict(entries)
        tables[table] = {key: value for key, value in kept.items() if key not in gone}
        return cache.store(self._name, json.dumps({**tables, _DEVICE: self.identity}).encode())

    def _record(self, table: str, key: str) -> str:
        return f"{self.digest} {table} {key}"


def stores() -> Iterator[Store]:
    """Yield the store of each device."""
    for name in _names_in(_DEVICES):
        identity = _loaded(f"{_DEVICES}/{name}", is_use=False).get(_DEVICE)
        if isinstance(identity, str):
            yield Store(identity)


@dataclass(frozen=True, slots=True)
class KnownDevice:
    """Summary of a device's store."""

    device: str  # DeviceInfo.identity, and its profile's
    records: int  # self-test results and choices


def known_devices() -> list[KnownDevice]:
    """Return a summary of each device's store; reads the records of all models."""
    return [
        KnownDevice(each.identity, sum(len(each.load(t, is_use=False)) for t in (TRIALS, CHOICES)))
        for each in stores()
    ]


def has_stores() -> bool:
    """Whether any store exists; does not read it."""
    return bool(_names_in(_DEVICES))


def _names_in(folder: str) -> list[str]:
    try:
        names = os.listdir(cache.cache_folder() / folder)
    except OSError:
        return []
    return sorted(name for name in names if not name.startswith("."))


def _page_of(record: str) -> str:
    return f"{_RECORDS}/{hashlib.sha256(record.encode()).hexdigest()[:_PAGE_DIGITS]}"


def _pages() -> list[str]:
    return [f"{_RECORDS}/{name}" for name in _names_in(_RECORDS)]


def _save_page(name: str, changes: Mapping[str, Any]) -> bool:
    """Change records of a file; None removes one."""
    before = _loaded(name)
    if all(before.get(record) == value for record, value in changes.items()):
        return True
    rest = {record: value for record, value in before.items() if record not in changes}
    new = {record: value for record, value in changes.items() if value is not None}
    latest = [*rest.items(), *new.items()][-_MOST_RECORDS:]
    return cache.store(name, json.dumps(dict(latest)).encode())


def _loaded(name: str, is_use: bool = True) -> Mapping[str, Any]:
    content = cache.load(name, is_use)
    if content is None:
        _report_older(cache.cache_folder())
        return {}
    return _parsed(content)


@lru_cache(maxsize=8)
def _parsed(content: bytes) -> Mapping[str, Any]:
    """Return the content of a file; empty if it is not a JSON object."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


@lru_cache(maxsize=8)
def _report_older(folder: Path) -> None:
    with contextlib.suppress(OSError):  # a folder that cannot be read
        if not (folder / _DEVICES).exists() and any((folder / name).exists() for name in _OLDER):
            _log.info("what earlier versions kept in %s is not used", folder)
