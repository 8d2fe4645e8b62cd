# SPDX-License-Identifier: Apache-2.0
"""Consequences of a child's death for its trial: a ban, left out of one start, or repeated."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from delegate import DeviceError
from delegate.guard import cache
from delegate.guard.children.child import ChildExit
from delegate.guard.children.helper import Response
from delegate.guard.children.records import Records
from delegate.guard.children.trials import BINARY_OF, BUILD, EXECUTOR, FILE, RUN, SELF_TEST, Trial
from delegate.inspect import list_bans

BUILT = Trial(BUILD, "add_vector", "a1")
RAN = Trial(RUN, "add_vector", "a1", "add", (1, 1))
WORDS = "LLVM ERROR: Cannot select"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(tmp_path))
    return


@pytest.fixture
def records() -> Records:
    return Records("device")


def dead(
    trial: Trial | None = BUILT, code: int | None = -signal.SIGABRT, words: str = WORDS
) -> Response:
    return Response(trying=[trial] if trial else [], exit=ChildExit(code, words, 60))


def test_trial_that_kills_two_children_alike_is_banned(
    records: Records, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "delegate"):
        executor = Trial(EXECUTOR, digest="e")
        first = Response(trying=[executor, RAN], exit=ChildExit(-6, f"{WORDS} at 0x7f01, a/1.o"))
        assert records.blame(first) is None
        assert records.left_out == {}
        again = Response(trying=[executor, RAN], exit=ChildExit(-6, f"{WORDS} at 0x7f99, a/2.o"))
        assert records.blame(again) == BUILT
    assert caplog.messages == [
        f"a child process {first.exit}, as it tried to build add_vector.cl: another one tries it "
        "again",
        f"a child process {again.exit}, as it tried to build add_vector.cl, as another one did: "
        "it is left out for a week, or until `tflite-opencl info --lift_bans`",
    ]
    assert Records("device").left_out == records.left_out
    assert [*records.left_out] == [BUILT]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (dead(code=-signal.SIGKILL), dead(code=-signal.SIGKILL)),
        (dead(code=-signal.SIGKILL), dead()),
        (dead(), dead(code=-signal.SIGALRM)),
        (dead(), dead(code=-signal.SIGSEGV)),
        (dead(), dead(words="std::bad_alloc")),
    ],
)
def test_possible_accident_is_left_out_of_this_start_only(
    records: Records, caplog: pytest.LogCaptureFixture, one: Response, two: Response
) -> None:
    assert (records.blame(one), records.blame(two)) == (None, BUILT)
    assert [*records.left_out] == [BUILT]
    assert (Records("device").left_out, list_bans()) == ({}, [])
    assert ("short of memory" in caplog.text) == (not two.exit.is_self_inflicted)


def test_environment_is_broken_if_fallback_kernel_fails_too() -> None:
    records = Records("device", lambda: "its self-test died with SIGABRT: no linker")
    records.blame(dead())
    with pytest.raises(DeviceError, match="does not work in this environment: its self-test died"):
        records.blame(dead())
    assert (records.left_out, list_bans()) == ({}, [])


@pytest.mark.parametrize(
    ("death", "count"),
    [(dead(None), 3), (dead(code=None), 5), (dead(code=-signal.SIGKILL), 6), (dead(), 30)],
)
def test_device_that_kills_every_child_is_given_up(
    records: Records, death: Response, count: int
) -> None:
    for _ in range(count - 1):
        records.blame(death)
    with pytest.raises(DeviceError, match=f"^a child process that tried the device {death.exit}"):
        records.blame(death)


@pytest.mark.parametrize(
    "file", ["add_vector", "runtime_persistent", "runtime_persistent_specialised"]
)
@pytest.mark.parametrize(("is_late", "count"), [(True, 1), (False, 3)], ids=["hangs", "deaths"])
def test_kernel_file_whose_builds_kill_children_is_left_out(
    records: Records, is_late: bool, count: int, file: str
) -> None:
    whole = Trial(FILE, file)
    for number in range(count):
        assert whole not in records.left_out
        trial = Trial(BINARY_OF if number else BUILD, file, f"{number}")
        for _ in range(2):
            records.blame(dead(trial, None if is_late else -signal.SIGABRT))
    assert whole in records.left_out
    # A persistent launch belongs to one model, and those of others may build.
    assert (whole in Records("device").left_out) == (file == "add_vector")


def test_no_ban_without_cache(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, "/proc/no/such/folder")
    records = Records("device")
    with caplog.at_level(logging.WARNING, "delegate"):
        for _ in range(2):
            records.blame(dead())
    assert "no later one will know, as the cache cannot be written" in caplog.text
    assert "a week" not in caplog.text


@pytest.mark.parametrize("trial", [Trial(SELF_TEST, "vnni"), Trial(BUILD, "runtime_persistent")])
def test_death_in_optional_trial_is_a_debug_message(
    records: Records, trial: Trial, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "delegate"):
        for _ in range(2):
            records.blame(dead(trial))
    (line,) = [each for each in caplog.records if "child process" in each.message]
    assert line.levelno == logging.DEBUG
    assert line.message.endswith("or until `tflite-opencl info --lift_bans`")


def test_missing_instruction_is_no_warning(
    records: Records, caplog: pytest.LogCaptureFixture
) -> None:
    test = Trial(SELF_TEST, "vnni", "a1")
    with caplog.at_level(logging.WARNING, "delegate"):
        for _ in range(2):
            left = records.blame(dead(test, -signal.SIGILL))
        assert (left, caplog.messages) == (test, [])
        records.blame(dead(Trial(SELF_TEST, "avx2"), -signal.SIGKILL))
    assert "as it tried to pass the self-test of avx2: another one tries it" in caplog.text
