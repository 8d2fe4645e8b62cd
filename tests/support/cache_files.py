# SPDX-License-Identifier: Apache-2.0
"""The files of a cache folder, and damage done to those with facts about devices."""

from __future__ import annotations

from pathlib import Path

from delegate.guard import cache


def written_files(folder: Path) -> list[str]:
    """Return the relative paths of a cache folder's files, without the leases."""
    names = (p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    return sorted(name for name in names if not name.startswith("leases/"))


def record_files() -> list[Path]:
    """Return the files of device facts and bans, and those of records."""
    folder = cache.cache_folder()
    return sorted(path for name in ("devices", "records") for path in folder.glob(f"{name}/[!.]*"))


def truncate_records() -> None:
    """Remove the last byte of each record file."""
    assert record_files()
    for path in record_files():
        path.write_bytes(path.read_bytes()[:-1])


def overwrite_records(content: bytes) -> None:
    """Replace each record file's content, with a valid checksum."""
    assert record_files()
    for path in record_files():
        assert cache.store(f"{path.parent.name}/{path.name}", content)
