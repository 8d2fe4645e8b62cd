# SPDX-License-Identifier: Apache-2.0
"""The files of a cache: all that were written, and those of what is known of devices."""

from __future__ import annotations

from pathlib import Path

from delegate.guard import cache


def written_files(folder: Path) -> list[str]:
    """Return the files of a cache folder, but for those by which processes find each other."""
    names = (p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    return sorted(name for name in names if not name.startswith("leases/"))


def known_files() -> list[Path]:
    """Return the files of facts and bans, one a device, and those of records."""
    folder = cache.cache_folder()
    return sorted(path for name in ("devices", "records") for path in folder.glob(f"{name}/[!.]*"))


def cut_all() -> None:
    """Take the last byte of each."""
    assert known_files()
    for path in known_files():
        path.write_bytes(path.read_bytes()[:-1])


def replace_all(content: bytes) -> None:
    """Let each hold something else, with a sound checksum."""
    assert known_files()
    for path in known_files():
        assert cache.store(f"{path.parent.name}/{path.name}", content)
