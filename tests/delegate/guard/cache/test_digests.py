# SPDX-License-Identifier: Apache-2.0
"""Digests are remembered as long as a file does not change."""

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
    """Return the digest of a file's first two bytes, and whether they were read."""
    reads = []

    def compute() -> str:
        reads.append(path)
        return path.read_bytes()[:2].hex()

    file_digests = FileDigests(path.stat())
    answer = file_digests.of(0, 2, compute)
    cache.keep_digests()
    return answer, bool(reads)


def test_digest_is_computed_once(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    assert digest_of(path) == ("6162", True)
    assert digest_of(path) == ("6162", False)


def test_each_part_has_a_digest(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    file_digests = FileDigests(path.stat())
    assert [file_digests.of(0, 2, lambda: "one"), file_digests.of(1, 2, lambda: "other")] == [
        "one",
        "other",
    ]


def test_modified_file_has_new_digest(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    digest_of(path)
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"b")
    os.utime(
        path, ns=(before.st_atime_ns, before.st_mtime_ns)
    )  # the change is detected although the times are equal
    assert digest_of(path) == ("6262", True)


def test_replaced_file_has_new_digest(tmp_path: Path) -> None:
    path, other = tmp_path / "weights", tmp_path / "other"
    path.write_bytes(b"abc")
    digest_of(path)
    other.write_bytes(b"xyz")
    other.rename(path)
    assert digest_of(path) == ("7879", True)


def test_recently_written_file_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "_SETTLED_SECONDS", 2)
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    digest_of(path)
    assert digest_of(path) == ("6162", True)


def test_small_file_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "_LEAST_BYTES", 4)
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    digest_of(path)
    assert digest_of(path) == ("6162", True)


def test_damaged_entry_is_computed_again(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    digest_of(path)
    for entry in (cache.cache_folder() / "digests").iterdir():
        entry.write_bytes(entry.read_bytes()[:-1] + b"!")
    assert digest_of(path) == ("6162", True)


def test_digest_of_mapped_file_is_remembered(tmp_path: Path) -> None:
    cache.write_cached("constants/" + "a" * 40, b"abc")
    mapped = cache.mapped("constants/" + "a" * 40)
    assert mapped is not None
    assert mapped.digests.of(0, 3, lambda: "one") == "one"
    cache.keep_digests()
    again = cache.mapped("constants/" + "a" * 40)
    assert again is not None
    assert again.digests.of(0, 3, lambda: "other") == "one"


def test_files_can_be_opened_while_digests_are_saved(tmp_path: Path) -> None:
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
