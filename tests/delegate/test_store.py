# SPDX-License-Identifier: Apache-2.0
"""What is kept of a device: tables in one file, which processes save at once and lose nothing."""

from __future__ import annotations

import fcntl
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from delegate import cache, store
from delegate.store import BANS, CHOICES, Store, has_stores, stores

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(tmp_path))


def test_tables_are_kept_by_device_and_what_others_saved_stays() -> None:
    assert (Store("a").load(CHOICES), has_stores()) == ({}, False)
    first, other = Store("a"), Store("a")
    first.save(CHOICES, {"one": "1", "two": "2"})
    other.save(CHOICES, {"two": "3"}, gone=["one"])
    other.save(BANS, {"four": ["died", 4.5]})
    assert first.load(CHOICES) == {"two": "3"}
    assert Store("a").load(BANS) == {"four": ["died", 4.5]}
    assert Store("b").load(CHOICES) == {}
    Store("b").save(CHOICES, {})
    assert {each.identity for each in stores()} == {"a", "b"}
    assert has_stores()


def test_ten_processes_that_save_at_once_lose_nothing() -> None:
    code = (
        "import sys\nfrom delegate.store import Store\n"
        "sys.stdin.readline()\n"
        "for number in range(20): Store('a').save('choices', {f'{sys.argv[1]} {number}': 'x'})"
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


def test_one_that_is_stopped_while_it_saves_does_not_hold_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store("a").save(CHOICES, {"one": "1"})
    (lock,) = tmp_path.glob("known/.*.lock")
    monkeypatch.setattr(store, "_MOST_SECONDS", 0.05)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        Store("a").save(CHOICES, {"two": "2"})
    assert Store("a").load(CHOICES) == {"one": "1", "two": "2"}


def test_where_nothing_can_be_written_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, "/proc/none")
    Store("a").save(CHOICES, {"one": "1"})
    assert (Store("a").load(CHOICES), [*stores()], has_stores()) == ({}, [], False)


def test_files_of_earlier_versions_are_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tune").mkdir()
    with caplog.at_level(logging.INFO, "delegate"):
        Store("a").load(CHOICES)
        Store("b").load(CHOICES)
        assert caplog.messages == [f"what earlier versions kept in {tmp_path} is not used"]
        Store("a").save(CHOICES, {})
        store._say_older.cache_clear()
        Store("b").load(CHOICES)
    assert len(caplog.messages) == 1
