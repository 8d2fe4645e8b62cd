# SPDX-License-Identifier: Apache-2.0
"""Measured choices, and their reuse for other shapes of the same node."""

from __future__ import annotations

from pathlib import Path

import pytest

import delegate.plan.tuning.chooser as chooser_module
from delegate.guard.store import CHOICES, Store
from delegate.plan.tuning.chooser import FULL, LEAST_SECONDS, OFF, QUICK, Choice, Chooser

NAMES = ("fast", "plain")


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFLITE_OPENCL_CACHE", str(tmp_path))


def choose(chooser: Chooser, key: str, size: int, subject: str = "node 3") -> list[str]:
    """Return the chosen candidate, followed by the measured ones."""
    measured: list[str] = []

    def measure() -> str:
        measured.append("measured")
        return "plain"

    choice = Choice(key, NAMES, "fast", subject=(subject,) if subject else (), size=size)
    return [str(chooser.choose(choice, measure)), *measured]


def test_choice_is_reused_for_similar_shapes() -> None:
    chooser = Chooser(QUICK, Store("a device of test_chooser"))
    assert choose(chooser, "224", 100) == ["plain", "measured"]
    assert choose(chooser, "192", 73) == ["plain"]
    assert choose(chooser, "160", 51) == ["plain"]  # near 192, but not near 224
    assert choose(chooser, "48", 5) == ["plain", "measured"]
    assert choose(chooser, "other", 73, "node 4") == ["plain", "measured"]
    assert choose(chooser, "alone", 73, "") == ["plain", "measured"]
    assert chooser.unmeasured == 0


def test_choice_for_shape_persists() -> None:
    store = Store("a device of test_chooser with later starts")
    first = Chooser(QUICK, store)
    assert choose(first, "224", 100) == ["plain", "measured"]
    assert choose(Chooser(QUICK, store), "192", 73) == ["plain", "measured"]  # it was not saved
    first.save()
    for key, size in (("224", 100), ("192", 73)):
        assert choose(Chooser(QUICK, store), key, size) == ["plain"]
    assert choose(Chooser(FULL, store), "224", 100) == ["plain"]
    assert choose(Chooser(FULL, store), "192", 73) == ["plain", "measured"]


def test_choices_without_a_tolerance_are_cached_apart() -> None:
    store = Store("a device of test_chooser with precisions")
    first, exact = Chooser(QUICK, store), Chooser(QUICK, store, is_exact=True)
    assert choose(first, "224", 100) == ["plain", "measured"]
    first.save()
    assert choose(exact, "224", 100) == ["plain", "measured"]
    exact.save()
    for is_exact in (False, True):
        assert choose(Chooser(QUICK, store, is_exact=is_exact), "192", 73) == ["plain"]


@pytest.mark.parametrize("kept", ["", "plain", "many plain", "100", "100 other", "-100 plain"])
def test_foreign_content_of_another_shape_is_ignored(kept: str) -> None:
    store = Store(f"a device of test_chooser with foreign words: {kept}")
    family = Choice("", NAMES, subject=("node 3",)).shape_family
    store.save(CHOICES, {family: kept})
    assert choose(Chooser(QUICK, store), "192", 73) == ["plain", "measured"]


def test_plan_counts_its_unmeasured_choices() -> None:
    chooser = Chooser(QUICK, Store("a device of test_chooser with several plans"))
    chooser.seconds_left = 0.0
    assert choose(chooser, "first", 100, "") == ["fast"]
    assert chooser.unmeasured == 1
    chooser.begin(0.5)
    assert (chooser.unmeasured, chooser.seconds_left) == (0, 0.5)
    assert choose(chooser, "first", 100, "") == ["plain", "measured"]
    patient = Chooser(FULL, Store("a device of test_chooser with several plans"))
    patient.begin(0.5)
    assert patient.seconds_left == float("inf")


def test_estimate_of_remaining_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(chooser_module.time, "perf_counter", lambda: now[0])
    chooser = Chooser(QUICK, Store("a device of test_chooser whose choices take long"))

    def measure(seconds: float) -> str:
        now[0] += seconds
        return "plain"

    assert chooser.unmeasured_seconds == 0
    chooser.choose(Choice("first", NAMES), lambda: measure(0.5))
    chooser.choose(Choice("second", NAMES), lambda: measure(2.5))
    for key in ("third", "fourth"):
        assert chooser.choose(Choice(key, NAMES), lambda: measure(1.0)) is None
    rounds = chooser_module.ROUNDS[FULL] / chooser_module.ROUNDS[QUICK]
    assert chooser.unmeasured_seconds == 2 * 1.5 * rounds


@pytest.mark.parametrize(("mode", "taken"), [(FULL, ["plain", "measured"]), (OFF, ["fast"])])
def test_full_tuning_measures_each_shape(mode: str, taken: list[str]) -> None:
    chooser = Chooser(mode, Store(f"a device of test_chooser, {mode}"))
    assert choose(chooser, "224", 100) == taken
    assert choose(chooser, "192", 73) == taken


@pytest.mark.parametrize(("before", "again"), [(0.0, 0.0), (3.0, 3.0), (3600.0, 10.0)])
def test_slow_start_may_measure_longer(
    monkeypatch: pytest.MonkeyPatch, before: float, again: float
) -> None:
    now = [100.0]
    monkeypatch.setattr(chooser_module.time, "perf_counter", lambda: now[0])
    chooser = Chooser(QUICK, Store("a device of test_chooser whose starts are long"), spent=0.5)
    spent = Chooser(QUICK, Store("a device of test_chooser with self-tests"), spent=2.5)
    now[0] += before
    for key in ("first", "second"):
        assert choose(chooser, key, 100, "") == ["plain", "measured"]
    assert chooser.seconds_left == 1.5 + again  # once for each start
    # The plan is final, so a device's first model is measured, too, but not as long.
    assert choose(spent, "first", 100, "") == ["plain", "measured"]
    assert spent.seconds_left == LEAST_SECONDS
