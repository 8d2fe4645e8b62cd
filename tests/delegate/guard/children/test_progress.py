# SPDX-License-Identifier: Apache-2.0
"""Progress of a start: its fraction, the seconds of phases, and messages of a child."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from delegate import DeviceInfo, Model
from delegate import engine as start_engine
from delegate.guard import cache
from delegate.guard.children import helper, progress
from delegate.guard.children.helper import Response
from delegate.inspect import Progress, watched, write_model
from tests.support.nets import conv_pool
from tests.support.tiers import slow


def at(part: float, what: str) -> None:
    progress.relay("at", part, what)


def test_no_progress_without_watcher() -> None:
    with progress.phase("tune"), progress.share(0, 1):
        at(0.5, "nobody hears it")
    assert [*progress.each([1, 2], str)] == [1, 2]


def test_nested_fractions_never_decrease() -> None:
    heard: list[Progress] = []
    with watched(heard.append), progress.phase("build"):
        with progress.share(0.5, 1):
            for name, share in progress.shares(["a", "b"], 0.6):
                with share:
                    at(0.5, name)
            for _ in progress.each([3, 4], "node {}".format):
                pass
        at(0.1, "behind")
    assert [(e.part, e.what) for e in heard] == [
        (0.0, ""),
        (pytest.approx(0.85), "a"),
        (pytest.approx(0.95), "b"),
        (pytest.approx(0.95), "node 3"),
        (pytest.approx(0.95), "node 4"),
        (1.0, "node 4"),
        (1.0, "behind"),
    ]
    assert {e.phase for e in heard} == {"build"}


def test_end_of_phase_reports_enclosing_phase() -> None:
    heard: list[Progress] = []
    with watched(heard.append), progress.phase("build"):
        at(0.5, "node 3")
        with progress.phase("upload"):
            pass
    assert [(e.phase, e.what) for e in heard[-2:]] == [("upload", "node 3"), ("build", "")]


def test_phases_do_not_overlap_and_tuning_includes_nested_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    with watched() as watch:
        now += 1  # outside of phases
        with progress.phase("build"):
            now += 2
            with progress.phase("upload"):
                now += 4
            with progress.phase("tune"):
                now += 8
                with progress.phase("upload"):
                    now += 16
            now += 32
    assert watch.seconds == {"device": 0, "build": 34, "tune": 24, "upload": 4}


def test_exit_of_child_ends_its_phase() -> None:
    heard: list[Progress] = []
    with watched(heard.append), progress.phase("build"):
        with progress.relay_ends():
            child = Response()
            for words in (
                *(["begin", "tune", 0, 1], ["begin", "", 0.5, 1.0]),
                *(["at", 0.5, "node 1"], ["close_everything"]),
            ):
                child.handle_event({"progress": words})
        at(0.8, "node 2")
    assert [(e.phase, e.part, e.what) for e in heard[1:]] == [
        ("tune", 0.0, ""),
        ("tune", 0.75, "node 1"),
        ("build", 0.75, ""),
        ("build", 0.8, "node 2"),
    ]


def test_exit_of_grandchild_ends_its_phase() -> None:
    messages: list[tuple[object, ...]] = []
    # As a child reports to its parent.
    with progress.forwarded_to(lambda *step: messages.append(step)), progress.relay_ends():
        progress.relay("begin", "tune", 0, 1)
        progress.relay("at", 0.5)
    assert messages == [("begin", "tune", 0, 1), ("at", 0.5), ("end",)]


@pytest.fixture
def _a_new_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(start_engine, "is_on", True)
    yield
    helper._close()


@slow
@pytest.mark.usefixtures("_a_new_cache")
def test_first_start_reports_all_phases_and_later_ones_do_not_plan(device: DeviceInfo) -> None:
    content = write_model(conv_pool())
    phases = []
    for is_first in (True, False):
        heard: list[Progress] = []
        begun = time.perf_counter()
        with (
            watched(heard.append) as watch,
            Model(content, device.index, tune="full", in_child_first=True) as model,
        ):
            assert model.tuning_left == 0
        taken = time.perf_counter() - begun
        assert 0 < sum(watch.seconds.values()) <= taken
        parts = [each.part for each in heard]
        assert parts == sorted(parts)
        assert (parts[-1] > 0.5) == is_first
        assert ("CONV_2D" in " ".join(each.what for each in heard)) == is_first
        phases.append({name for name, seconds in watch.seconds.items() if seconds})
    assert phases == [set(progress.PHASES), {*progress.PHASES} - {"tune"}]


def test_uploads_of_self_tests_belong_to_device_phase() -> None:
    heard: list[Progress] = []
    with watched(heard.append) as watch:
        with progress.phase("device"), progress.phase("upload"):
            time.sleep(0.001)
        for _ in progress.each(["a", "b", "c"], str, {"a": 1, "b": 8, "c": 1}.__getitem__):
            with progress.phase("build"):
                pass
    assert (watch.seconds["device"] > 0, watch.seconds["upload"]) == (True, 0)
    assert {each.phase for each in heard} == {"device", "build"}
    assert [each.part for each in heard if each.phase == "build"] == pytest.approx([0, 0.1, 0.9])
