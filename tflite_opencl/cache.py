# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl cache`: lists and prunes the cache folder."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from delegate.inspect import (
    DOWNLOADS,
    MODELS,
    CacheEntry,
    cache_entries,
    cache_folder,
    cache_in_use,
    cache_limit_bytes,
    known_devices,
    prune_cache,
)
from tflite_opencl.cli.flags import add_flag
from tflite_opencl.cli.outputs import as_json, shown
from tflite_opencl.console.errors import CommandError
from tflite_opencl.console.tables import NONE, columns, render, terminal_width

HELP = "show what the cache folder holds, and remove what is not needed"
EXAMPLES = (
    ("tflite-opencl cache", "what is there, by kind, model and device"),
    ("tflite-opencl cache --prune", "leave what was used last"),
    ("tflite-opencl cache --clear", "leave what running processes use"),
)
_MIB = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's flags."""
    add = parser.add_mutually_exclusive_group().add_argument
    add("--prune", action="store_true",
        help="remove what was used least recently until the cache is no larger than its limit: "
        "2048 MiB, or TFLITE_OPENCL_CACHE_MIB",
    )  # fmt: skip
    add("--clear", action="store_true", help="remove all but what running processes use")
    add_flag(parser, "json")


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """The totals of some entries.

    Attributes:
        used: time of the latest use, in seconds since 1970; None: there are no entries.
    """

    name: str
    entries: int
    bytes: int
    used: float | None
    in_use: int  # entries used by running processes

    @classmethod
    def of(cls, name: str, entries: Iterable[CacheEntry], in_use: set[str]) -> CacheUsage:
        """Return the totals of entries; `in_use`: the names of entries in use."""
        found = [*entries]
        used = max((entry.used for entry in found), default=None)
        size = sum(entry.bytes for entry in found)
        return cls(name, len(found), size, used, sum(entry.name in in_use for entry in found))


def run(options: argparse.Namespace) -> str:
    """Return the text to print.

    Raises: CommandError, CacheError: the folder cannot be read, or an entry cannot be removed.
    """
    try:
        if options.prune or options.clear:
            return _pruned(options)
        entries, in_use = cache_entries(), cache_in_use()
    except OSError as error:
        why = f"{error.filename or cache_folder()}: {error.strerror or error}"
        raise CommandError(f"the cache cannot be used: {why}") from error
    facts: dict[str, Any] = {
        "folder": str(cache_folder()),
        "limit_bytes": cache_limit_bytes(),
        "bytes": sum(entry.bytes for entry in entries),
        "kinds": [asdict(each) for each in _kinds(entries, in_use)],
        "models": [asdict(each) for each in _models(entries, in_use)],
        "devices": [asdict(each) for each in known_devices()],
    }
    return shown(options, _text(facts, terminal_width()), json=lambda: as_json(facts))


def _pruned(options: argparse.Namespace) -> str:
    removed = prune_cache(0 if options.clear else cache_limit_bytes())
    left, in_use = cache_entries(), cache_in_use()
    facts = {
        "folder": str(cache_folder()),
        "removed": len(removed),
        "removed_bytes": sum(entry.bytes for entry in removed),
        "left": len(left),
        "left_bytes": sum(entry.bytes for entry in left),
        "left_in_use": sum(entry.name in in_use for entry in left),
    }
    counts = f"{_count(removed)} removed, {_count(left)} left"
    used = f", {facts['left_in_use']} of them in use" if facts["left_in_use"] else ""
    return shown(options, f"{cache_folder()}: {counts}{used}", json=lambda: as_json(facts))


def _count(entries: Sequence[CacheEntry]) -> str:
    words = "1 entry" if len(entries) == 1 else f"{len(entries)} entries"
    return f"{words} ({_mib(sum(entry.bytes for entry in entries))} MiB)"


def _kinds(entries: Sequence[CacheEntry], in_use: set[str]) -> list[CacheUsage]:
    """Return the kinds of entries, largest first."""
    names = {entry.kind for entry in entries}
    found = (CacheUsage.of(name, (e for e in entries if e.kind == name), in_use) for name in names)
    return sorted(found, key=lambda each: (-each.bytes, each.name))


def _models(entries: Sequence[CacheEntry], in_use: set[str]) -> list[CacheUsage]:
    kept = [entry for entry in entries if entry.kind in (MODELS, DOWNLOADS)]
    return [
        CacheUsage.of(e.name, [e], in_use) for e in sorted(kept, key=lambda entry: -entry.bytes)
    ]


def _text(facts: dict[str, Any], width: int) -> str:
    size, most = _mib(facts["bytes"]), facts["limit_bytes"] // _MIB
    head = f"{facts['folder']}: {size} MiB; the limit is {most} MiB"
    parts = []
    # Title, and the counters with their headings.
    for title, counts in (
        ("kind", {"entries": "entries", "in use": "in_use"}),
        ("model", {"in use": "in_use"}),
    ):
        rows = [
            (
                each["name"],
                *(str(each[fact] or NONE) for fact in counts.values()),
                _mib(each["bytes"]),
                _time(each["used"]),
            )
            for each in facts[f"{title}s"]
        ]
        if rows:
            parts.append(columns((title, *counts, "MiB", "last used"), rows, left=1))
    if facts["devices"]:
        rows = [(_name(each["device"]), str(each["records"])) for each in facts["devices"]]
        parts.append(columns(("device", "records"), rows, left=1))
    return f"{head}\n\n{render(width, *parts)}" if parts else head


def _mib(size: int) -> str:
    return f"{size / _MIB:.1f}"


def _time(used: float | None) -> str:
    return NONE if used is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(used))


def _name(identity: str) -> str:
    platform, *more = identity.split("|")  # DeviceInfo.identity, and a device profile's
    return f"{more[1]} ({', '.join((platform, *more[2:]))})" if more[2:] else identity
