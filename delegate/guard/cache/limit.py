# SPDX-License-Identifier: Apache-2.0
"""The size limit of the cache folder: least recently used entries are removed first.

Only this package's files are counted and removed: users may name any folder, even their home. The
folder is scanned only after writing, and rarely.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from delegate.errors import CacheError
from delegate.guard.cache import leases
from delegate.guard.cache.folder import cache_folder, check_owner, locked

LIMIT_VARIABLE = "TFLITE_OPENCL_CACHE_MIB"
DEFAULT_MIB = 2048
PROGRAMS, PLANS, CONSTANTS = "programs", "plans", "constants"
RECORDS, DEVICES, DIGESTS = "records", "devices", "digests"
ICDS, DRIVERS, MODELS, DOWNLOADS = "lists of drivers", "drivers' files", "models", "downloads"
OLDER, UNFINISHED = "earlier versions' files", "unfinished files"
# Kind -> name patterns of its entries, which are files or whole folders.
_KINDS = {
    PROGRAMS: r"programs/\w+(-[0-9a-f]{16,40})?\.bin",
    PLANS: r"plans/[0-9a-f]{40}",
    CONSTANTS: r"constants/[0-9a-f]{40}",
    RECORDS: r"records/[0-9a-f]{3}",
    DEVICES: r"devices/[0-9a-f]{40}",
    DIGESTS: r"digests/[0-9a-f]{40}",
    ICDS: r"icds/[0-9a-f]{40}(-only)?",
    DRIVERS: r"drivers/(pocl|mesa|nvidia|pyopencl)",
    MODELS: r"language_models/[0-9a-f]{32}-\w+-\d+-\d+",
    DOWNLOADS: r"(mobilenet_v[12]_1\.0_224_quant|efficientnet_lite0_int8)\.tflite|"
    r"imagenet_labels\.txt|SmolLM2-135M-Instruct\.Q4_1\.gguf|"
    r"mobilenet_v[12]_1\.0_224_quant(_and_labels)?\.(tgz|zip)\.part",
    OLDER: r"(known|trials|tune)/(\.?[0-9a-f]{40}(\.lock)?|\.lock)",
}
_FOLDERS = (
    *(
        "",
        "programs",
        "plans",
        "constants",
        "records",
        "devices",
        "digests",
        "icds",
        "drivers",
        "language_models",
    ),
    *("known", "trials", "tune"),
)
_TEMPORARY = re.compile(r"(.*/)?\.([^/]+)\.[a-z0-9_]{8}")
_TEMPORARY_SECONDS = 3600  # after that the writer is assumed to have exited
_MIB = 1 << 20
_LOOK_SECONDS = 3600  # minimum interval of scans, unless the limit may have been exceeded
_LEAST_ROOM = 16 * _MIB  # to write before scanning again, if everything else is in use
_TARGET_SHARE = 0.9  # of the limit: otherwise each later write would exceed it again
_log = logging.getLogger("delegate")


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A file or folder of the cache that is removed as a whole."""

    name: str  # its path in the cache folder
    kind: str
    bytes: int  # on disk
    used: float  # time of last use, in seconds since the epoch; within an hour


@dataclass(slots=True)
class _ScanState:
    """What this process knows about the size of a cache folder."""

    folder: str = ""
    written: int = 0  # bytes since the last scan
    room: int = 0  # bytes that may be written before the next scan
    due: float = 0.0  # latest time of the next scan, of time.monotonic


_scan_state = _ScanState()


@lru_cache(maxsize=1 << 12)
def kind_of(name: str) -> tuple[str, str] | None:
    """Return the kind of a file in the folder, and its entry; None: it is foreign."""
    for kind, pattern in _KINDS.items():
        if found := re.match(rf"({pattern})(/|$)", name):
            return kind, found[1]
    temporary = _TEMPORARY.fullmatch(name)
    if temporary and kind_of(f"{temporary[1] or ''}{temporary[2]}"):
        return UNFINISHED, name
    return None


def cache_limit_bytes() -> int:
    """Return the size limit of the cache."""
    return _limit(os.environ.get(LIMIT_VARIABLE, ""))


@lru_cache(maxsize=8)
def _limit(text: str) -> int:
    if text and not text.isdecimal():
        _log.warning("%s=%s is no number of MiB: %d is used", LIMIT_VARIABLE, text, DEFAULT_MIB)
    return (int(text) if text.isdecimal() else DEFAULT_MIB) * _MIB


def cache_entries() -> list[CacheEntry]:
    """Return this package's entries of the cache folder, most recently used last.

    Raises:
        OSError: the folder cannot be read. CacheError: others may write to it.
    """
    top = os.fspath(cache_folder())
    if not os.path.lexists(top):
        return []
    check_owner(top, os.stat(top))
    found = [entry for folder in _FOLDERS for entry in _entries_in(top, folder)]
    return sorted(found, key=lambda entry: (entry.used, entry.name))


def _entries_in(top: str, folder: str) -> Iterator[CacheEntry]:
    path = os.path.join(top, folder) if folder else top
    try:
        if folder:
            status = os.lstat(path)
            check_owner(path, status)
            if not stat.S_ISDIR(status.st_mode):  # a link may lead to foreign files
                return
        names = os.listdir(path)
    except (OSError, CacheError):
        if not folder:
            raise
        return
    for name in names:
        whole = f"{folder}/{name}" if folder else name
        known = kind_of(whole)
        if known is not None and known[1] == whole:
            with contextlib.suppress(OSError):  # removed meanwhile
                yield _entry(top, whole, known[0])


def _entry(top: str, name: str, kind: str) -> CacheEntry:
    path = os.path.join(top, name)
    status = os.lstat(path)
    size, used = _size_of(status), status.st_mtime
    if stat.S_ISDIR(status.st_mode):
        for folder, _, files in os.walk(path):
            for file in files:
                with contextlib.suppress(OSError):
                    inside = os.lstat(os.path.join(folder, file))
                    size, used = size + _size_of(inside), max(used, inside.st_mtime)
    return CacheEntry(name, kind, size, used)


def _size_of(status: os.stat_result) -> int:
    return max(status.st_size, 512 * status.st_blocks)


def prune_cache(most_bytes: int, down_to: int | None = None) -> list[CacheEntry]:
    """Remove least recently used entries if the cache is above the limit, and return them.

    Entries in use stay. `down_to`: target size in bytes; None: derived from the limit.
    Raises: OSError, CacheError: as `cache_entries`, or an entry cannot be removed.
    """
    with locked(leases.FOLDER) as lock:
        found, in_use = cache_entries(), _in_use()
        total, removed = sum(entry.bytes for entry in found), []
        most, now = total if total <= most_bytes else down_to or most_bytes, time.time()
        for entry in found:
            is_left = entry.kind == UNFINISHED and now - entry.used > _TEMPORARY_SECONDS
            if (total > most or is_left) and entry.name not in in_use and _remove(entry):
                total -= entry.bytes
                removed.append(entry)
        if lock is not None:
            with contextlib.suppress(OSError):  # a full disk
                os.ftruncate(lock, 0)
                os.pwrite(lock, str(total).encode(), 0)
        return removed


def cache_in_use() -> set[str]:
    """Return the names of the entries in use by running processes."""
    with locked(leases.FOLDER):
        return _in_use()


def _in_use() -> set[str]:
    known = map(kind_of, leases.used_by_others())
    return {each[1] for each in known if each is not None}


def _remove(entry: CacheEntry) -> bool:
    """Remove an entry unless it was used since the scan; raises OSError."""
    top = os.fspath(cache_folder())
    path = os.path.join(top, entry.name)
    try:
        if _entry(top, entry.name, entry.kind).used != entry.used:
            return False
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
        else:  # rename first, so that no reader finds a part of it
            folder, name = os.path.split(path)
            gone = os.path.join(folder, f".{name}.{secrets.token_hex(4)}")
            os.rename(path, gone)
            shutil.rmtree(gone)
    except FileNotFoundError:
        return False
    return True


def after_writing(count: int) -> None:
    """Enforce the limit after writing `count` bytes; failures are retried later."""
    folder = os.fspath(cache_folder())
    if _scan_state.folder != folder:
        _scan_state.folder, _scan_state.written, _scan_state.room, _scan_state.due = (
            folder,
            0,
            0,
            0.0,
        )
    _scan_state.written += count
    now = time.monotonic()
    if _scan_state.written < _scan_state.room and now < _scan_state.due:
        return
    limit, (size, age) = cache_limit_bytes(), _last_scan()
    if size + _scan_state.written > limit or not 0 <= age < _LOOK_SECONDS:
        with contextlib.suppress(OSError, CacheError):
            if removed := prune_cache(limit, int(_TARGET_SHARE * limit)):
                mib = sum(entry.bytes for entry in removed) / _MIB
                _log.info("%d entries of the cache, %.0f MiB, were removed", len(removed), mib)
        _scan_state.written = 0
        size, age = _last_scan()
    _scan_state.room = limit - size if size <= limit else _LEAST_ROOM
    _scan_state.due = now + _LOOK_SECONDS - min(max(age, 0), _LOOK_SECONDS)


def _last_scan() -> tuple[int, float]:
    """Return the size of the cache at the last scan of any process, and its age in seconds.

    A negative age: it was never scanned.
    """
    try:
        path = os.path.join(cache_folder(), leases.FOLDER, ".lock")
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            return int(file.read(32)), time.time() - os.fstat(file.fileno()).st_mtime
    except (OSError, ValueError):
        return 0, -1.0
