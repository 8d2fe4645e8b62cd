# SPDX-License-Identifier: Apache-2.0
"""Records of trials: which passed, and bans, which lapse and can be lifted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from delegate.guard import cache
from delegate.guard.children import environment, records
from delegate.guard.children.records import BAN_SECONDS, Records
from delegate.guard.children.trials import BUILD, DONE, RUN, SELF_TEST, Trial
from delegate.inspect import lift_bans, list_bans
from tests.support.cache_files import overwrite_records

BUILT, RAN = Trial(BUILD, "add", "a1"), Trial(RUN, "add", "a1", "add", (4, 1))
FIRST, SECOND = (Trial(SELF_TEST, name, "a1") for name in ("device", "vnni"))
WHY = "child processes that tried to build add.cl died with SIGABRT"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(tmp_path))
    return


def test_records_are_separate_for_each_device() -> None:
    first, other = Records("device"), Records("device")
    first.add({FIRST: "passed"})
    other.add({SECOND: "no such chip"})
    other.ban(BUILT, "died with SIGABRT")
    first.add({SECOND: "no such chip"})
    records = Records("device")
    assert (records.done, records.left_out) == (
        {FIRST: "passed", SECOND: "no such chip"},
        {BUILT: WHY},
    )
    first.add({RAN: DONE})  # only needed by a child
    assert Records("device").done == records.done
    another = Records("another device")
    assert (another.done, another.left_out) == ({}, {})


@pytest.mark.parametrize(
    "content",
    [
        *(b"\xff", b"[]", b'{"a": 1}', b"{", b"[" * 100_000, b'{"trials": [1], "bans": []}'),
        *(b'{"trials": {"a": 1, "[1]": 2}, "bans": {"a": 1, "[[], 1]": [2, 3]}, "device": "a"}',),
    ],
)
def test_foreign_records_are_ignored(content: bytes) -> None:
    Records("device").add({FIRST: "passed"})
    overwrite_records(content)
    assert (Records("device").done, list_bans()) == ({}, [])


def test_ban_lapses_after_a_week(monkeypatch: pytest.MonkeyPatch) -> None:
    Records("device").ban(BUILT, "died with SIGABRT")
    now = time.time()
    monkeypatch.setattr(records.time, "time", lambda: now + BAN_SECONDS - 60)
    assert Records("device").left_out == {BUILT: WHY}
    monkeypatch.setattr(records.time, "time", lambda: now + BAN_SECONDS + 60)
    assert Records("device").left_out == {}
    Records("device").add({SECOND: "no such chip"})
    assert list_bans() == []


@pytest.mark.parametrize("change", ["PATH", "LD_LIBRARY_PATH", "POCL_DEVICES", "limit", "kernel"])
def test_ban_applies_only_in_its_environment(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Records("device").ban(BUILT, "died with SIGABRT")
    with monkeypatch.context() as elsewhere:
        if change == "limit":
            elsewhere.setattr(environment.resource, "getrlimit", lambda limit: (8 << 20, 8 << 20))
        elif change == "kernel":
            elsewhere.setattr(environment.os, "uname", lambda: type("", (), {"release": "9"}))
            environment._digest.cache_clear()
        else:
            elsewhere.setenv(change, "/elsewhere")
        assert Records("device").left_out == {}
        (ban,) = list_bans()
        assert not ban.holds
        Records("device").ban(BUILT, "died with SIGSEGV")
    environment._digest.cache_clear()
    assert Records("device").left_out == {BUILT: WHY}
    assert len(list_bans()) == 2


def test_bans_are_listed_and_lifted() -> None:
    Records("a").add({SECOND: "no such chip"})
    Records("a").ban(BUILT, "died with SIGABRT")
    Records("b").ban(BUILT, "gave no answer within 60 s")
    assert sorted((ban.device, ban.trial, ban.end) for ban in list_bans()) == [
        ("a", BUILT, "died with SIGABRT"), ("b", BUILT, "gave no answer within 60 s")
    ]  # fmt: skip
    assert (lift_bans(), lift_bans(), list_bans()) == (2, 0, [])
    assert (Records("a").done, Records("a").left_out) == ({SECOND: "no such chip"}, {})


def test_trials_left_out_of_one_start_are_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = Records("device")
    assert records.are_banned
    records.ban(BUILT, "died with SIGABRT")
    assert records.are_banned
    records.left_out[RAN] = "it died by chance"
    assert not records.are_banned
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(tmp_path / "file" / "none"))
    (tmp_path / "file").write_text("")
    lost = Records("device")
    assert not lost.ban(BUILT, "died with SIGABRT")
    assert not lost.are_banned
