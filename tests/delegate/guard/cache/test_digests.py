# SPDX-License-Identifier: Apache-2.0
"""Digests are remembered as long as a file is the same, and no longer."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from delegate.guard import cache
from delegate.guard.cache import digests
from delegate.guard.cache.digests import FileDigests


@pytest.fixture(autouse=True)
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "_SETTLED_SECONDS", 0)
    monkeypatch.setattr(digests, "_LEAST_BYTES", 0)


def digest_of(path: Path) -> tuple[str, bool]:
    """Return the digest of a file's first two bytes, and whether they were read for it."""
    reads = []

    def compute() -> str:
        reads.append(path)
        return path.read_bytes()[:2].hex()

    found = FileDigests(path.stat())
    answer = found.of(0, 2, compute)
    cache.keep_digests()
    return answer, bool(reads)


def test_it_is_computed_once(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    assert digest_of(path) == ("6162", True)
    assert digest_of(path) == ("6162", False)


def test_each_part_has_its_own(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    found = FileDigests(path.stat())
    assert [found.of(0, 2, lambda: "one"), found.of(1, 2, lambda: "other")] == ["one", "other"]


def test_of_a_file_that_was_written_to_it_is_another(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    digest_of(path)
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"b")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # its change is seen all the same
    assert digest_of(path) == ("6262", True)


def test_of_a_file_in_its_place_it_is_another(tmp_path: Path) -> None:
    path, other = tmp_path / "weights", tmp_path / "other"
    path.write_bytes(b"abc")
    digest_of(path)
    other.write_bytes(b"xyz")
    other.rename(path)
    assert digest_of(path) == ("7879", True)


def test_a_file_that_was_just_written_may_change_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "_SETTLED_SECONDS", 2)
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    digest_of(path)
    assert digest_of(path) == ("6162", True)


def test_of_a_small_file_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "_LEAST_BYTES", 4)
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    digest_of(path)
    assert digest_of(path) == ("6162", True)


def test_a_damaged_entry_is_computed_again(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    digest_of(path)
    for entry in (cache.cache_folder() / "digests").iterdir():
        entry.write_bytes(entry.read_bytes()[:-1] + b"!")
    assert digest_of(path) == ("6162", True)


def test_a_mapped_file_remembers(tmp_path: Path) -> None:
    cache.write_cached("constants/" + "a" * 40, b"abc")
    mapped = cache.mapped("constants/" + "a" * 40)
    assert mapped is not None
    assert mapped.digests.of(0, 3, lambda: "one") == "one"
    cache.keep_digests()
    again = cache.mapped("constants/" + "a" * 40)
    assert again is not None
    assert again.digests.of(0, 3, lambda: "other") == "one"


def test_files_may_be_opened_while_digests_are_saved(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    status, is_done = path.stat(), threading.Event()

    def open_many() -> None:
        while not is_done.is_set():
            FileDigests(status).of(0, 1, lambda: "one")

    opener = threading.Thread(target=open_many)
    opener.start()
    try:
        for _ in range(50):
            cache.keep_digests()
    finally:
        is_done.set()
        opener.join()
