# SPDX-License-Identifier: Apache-2.0
"""The records of a device: concurrent writers lose nothing, and readers load only named ones."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from delegate.guard import cache, store
from delegate.guard.cache import files, folder
from delegate.guard.store import BANS, CHOICES, FACTS, Store, has_stores, stores
from tests.support.cache_files import overwrite_records, record_files, truncate_records
from tests.support.tiers import slow

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(tmp_path))
    monkeypatch.setattr(folder, "_warned", set())


def test_tables_are_separate_for_each_device() -> None:
    assert (Store("a").load(CHOICES), has_stores()) == ({}, False)
    first, other = Store("a"), Store("a")
    first.save(CHOICES, {"one": "1", "two": "2"})
    other.save(CHOICES, {"two": "3"}, gone=["one"])
    other.save(BANS, {"four": ["died", 4.5]})
    other.save(FACTS, {"five": True})
    assert first.load(CHOICES) == {"two": "3"}
    assert (first.look_up(CHOICES, "two"), first.look_up(CHOICES, "one")) == ("3", None)
    assert first.look_up("other", "two") is None
    assert (Store("a").load(BANS), Store("a").load(FACTS)) == (
        {"four": ["died", 4.5]},
        {"five": True},
    )
    first.save(BANS, {}, gone=["four"])
    assert (Store("a").load(BANS), Store("a").load(FACTS)) == ({}, {"five": True})
    assert (Store("b").load(CHOICES), Store("b").look_up(CHOICES, "two")) == ({}, None)
    Store("b").save(CHOICES, {})
    assert {each.identity for each in stores()} == {"a", "b"}
    assert has_stores()


@slow
def test_load_reads_one_small_file(monkeypatch: pytest.MonkeyPatch) -> None:
    first_store = Store("a")
    monkeypatch.setattr(store, "_PAGE_DIGITS", 1)  # fills each file
    first_store.save(CHOICES, {"wanted": "done"})
    for model in range(200):
        first_store.save(CHOICES, {f"{model} {number}": "x" * 100 for number in range(10)})
    read: list[tuple[str, int]] = []
    load = files.load

    def counted(name: str, is_use: bool) -> bytes | None:
        assert is_use
        content = load(name)
        read.append((name, len(content or b"")))
        return content

    monkeypatch.setattr(cache, "load", counted)
    assert Store("a").look_up(CHOICES, "199 9") == "x" * 100
    ((_, size),) = read
    assert size < 64 * 200
    assert len(record_files()) <= 17
    pages = [json.loads(load(f"records/{p.name}") or b"") for p in record_files()[1:]]
    assert {len(page) for page in pages} == {64}  # the most recent ones
    assert Store("a").look_up(CHOICES, "wanted") is None


def test_unchanged_record_is_not_written_again(tmp_path: Path) -> None:
    Store("a").save(CHOICES, {"one": "done"})
    (page,) = tmp_path.glob("records/*")
    before = page.stat().st_ino
    Store("a").save(CHOICES, {"one": "done"})
    assert page.stat().st_ino == before
    Store("a").save(CHOICES, {"one": "wrong"})
    assert page.stat().st_ino != before


@slow
def test_concurrent_writers_lose_nothing() -> None:
    code = (
        "import sys\nfrom delegate.guard import store\nstore._PAGE_DIGITS = 1\n"
        "sys.stdin.readline()\nkept = store.Store('a')\n"
        "for number in range(20): kept.save('choices', {f'{sys.argv[1]} {number}': 'x'})"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    running = [
        subprocess.Popen([*command, str(each)], stdin=subprocess.PIPE, cwd=ROOT)
        for each in range(10)
    ]
    for each in running:
        each.communicate(b"go\n", 120)
    assert [each.returncode for each in running] == [0] * 10
    assert len(Store("a").load(CHOICES)) == 200


@slow
def test_stopped_writer_does_not_block_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store("a").save(CHOICES, {"one": "1"})
    monkeypatch.setattr(folder, "LOCK_SECONDS", 0.05)
    with (tmp_path / "devices/.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        Store("a").save(CHOICES, {"two": "2"})
    assert Store("a").load(CHOICES) == {"one": "1", "two": "2"}


def test_works_without_file_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def unlockable(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unlockable)
    Store("a").save(CHOICES, {"one": "1"})
    Store("a").save(BANS, {"two": "2"})
    assert (Store("a").look_up(CHOICES, "one"), Store("a").load(BANS)) == ("1", {"two": "2"})


def test_unwritable_folder_stores_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, "/proc/none")
    assert not Store("a").save(CHOICES, {"one": "1"})
    assert (Store("a").load(CHOICES), [*stores()], has_stores()) == ({}, [], False)


def test_read_only_folder_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    Store("a").save(CHOICES, {"one": "1"})

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "utime", read_only)
    monkeypatch.setattr("tempfile.mkstemp", read_only)
    monkeypatch.setattr(os, "mkdir", read_only)
    assert not Store("a").save(CHOICES, {"two": "2"})
    assert Store("a").load(CHOICES) == {"one": "1"}


def piped() -> None:
    for path in record_files():
        path.unlink()
        os.mkfifo(path, 0o600)


def linked() -> None:
    for path in record_files():
        path.unlink()
        path.symlink_to(path)


def writable() -> None:
    for path in record_files():
        path.chmod(0o666)


def given_away() -> None:
    for path in record_files():
        os.chown(path, 65534, 65534)


DAMAGED: dict[str, Callable[[], object]] = {
    "cut": truncate_records,
    "foreign": lambda: overwrite_records(b'{"bans": 3, "device": []}'),
    "no object": lambda: overwrite_records(b"[3]"),
    "deep": lambda: overwrite_records(b"[" * 100_000),
    "a pipe": piped,
    "a link to itself": linked,
    "that others may write to": writable,
    "of another user": given_away,
}


@pytest.mark.parametrize("how", DAMAGED)
def test_damaged_files_are_ignored_and_replaced(how: str) -> None:
    if how == "of another user" and os.geteuid():
        pytest.skip("only root gives a file away")
    store = Store("a")
    store.save(CHOICES, {"one": "1"})
    store.save(BANS, {"two": "2"})
    DAMAGED[how]()
    assert (store.look_up(CHOICES, "one"), store.load(BANS)) == (None, {})
    assert store.save(CHOICES, {"one": "3"})
    assert store.save(BANS, {"two": "4"})
    assert (Store("a").look_up(CHOICES, "one"), Store("a").load(BANS)) == ("3", {"two": "4"})


def test_swapped_files_are_ignored(tmp_path: Path) -> None:
    Store("a").save(CHOICES, {str(number): "1" for number in range(9)})
    pages = sorted(tmp_path.glob("records/*"))
    contents = [page.read_bytes() for page in pages]
    for page, content in zip(pages, [*contents[1:], contents[0]], strict=True):
        page.write_bytes(content)
    assert Store("a").load(CHOICES) == {}


def test_fork_and_parent_both_save(tmp_path: Path) -> None:
    Store("a").save(CHOICES, {"one": "1"})
    child = os.fork()
    if child == 0:
        Store("a").save(CHOICES, {"two": "2"})
        os._exit(0 if Store("a").look_up(CHOICES, "one") == "1" else 1)
    Store("a").save(CHOICES, {"three": "3"})
    assert os.waitpid(child, 0)[1] == 0
    assert Store("a").load(CHOICES) == {"one": "1", "two": "2", "three": "3"}


def test_files_of_earlier_versions_are_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "known").mkdir()
    with caplog.at_level(logging.INFO, "delegate"):
        Store("a").load(CHOICES)
        Store("a").load(BANS)
        Store("b").look_up(CHOICES, "one")
        assert caplog.messages == [f"what earlier versions kept in {tmp_path} is not used"]
        Store("a").save(CHOICES, {})
        store._report_older.cache_clear()
        Store("b").load(BANS)
    assert len(caplog.messages) == 1
