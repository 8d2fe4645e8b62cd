# SPDX-License-Identifier: Apache-2.0
"""What is known of one shape holds for another one of the same."""

from __future__ import annotations

from pathlib import Path

import pytest

import delegate.tuning.chooser as chooser_module
from delegate.store import Store
from delegate.tuning.chooser import FULL, OFF, QUICK, Choice, Chooser

NAMES = ("fast", "plain")


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFLITE_OPENCL_CACHE", str(tmp_path))


def asked(chooser: Chooser, key: str, size: int, kin: str = "node 3") -> list[str]:
    """Return what is taken of a choice, and after it what was measured for it."""
    told: list[str] = []

    def measure() -> str:
        told.append("measured")
        return "plain"

    choice = Choice(key, NAMES, "fast", kin=(kin,) if kin else (), size=size)
    return [str(chooser.take(choice, measure)), *told]


def test_another_shape_takes_the_choice_over_unless_it_is_far_larger() -> None:
    chooser = Chooser(QUICK, Store("a device of test_chooser"))
    assert asked(chooser, "224", 100) == ["plain", "measured"]
    assert asked(chooser, "192", 73) == ["plain"]
    assert asked(chooser, "160", 51) == ["plain"]  # beside 192, not beside 224
    assert asked(chooser, "48", 5) == ["plain", "measured"]
    assert asked(chooser, "other", 73, "node 4") == ["plain", "measured"]
    assert asked(chooser, "alone", 73, "") == ["plain", "measured"]
    assert chooser.left == 0


def test_a_child_takes_over_what_its_parent_did() -> None:
    store = Store("a device of test_chooser with a child")
    first = Chooser(QUICK, store)
    assert asked(first, "224", 100) == ["plain", "measured"]
    first.save()
    parent, child = Chooser(QUICK, store), Chooser(QUICK, store)
    assert asked(parent, "224", 100) == ["plain"]
    assert asked(parent, "192", 73) == ["plain"]
    child.go_on(*parent.state())  # it was never asked for 224
    assert asked(child, "192", 73) == ["plain"]
    # Nothing was measured for that: what waits for a start that measures nothing else is measured.
    assert child.take(Choice("numbers", NAMES, can_wait=True), lambda: "plain") == "plain"
    assert asked(Chooser(QUICK, store), "192", 73) == ["plain", "measured"]  # it is not kept


@pytest.mark.parametrize(("mode", "taken"), [(FULL, ["plain", "measured"]), (OFF, ["fast"])])
def test_each_shape_is_measured_for_those_who_wait(mode: str, taken: list[str]) -> None:
    chooser = Chooser(mode, Store(f"a device of test_chooser, {mode}"))
    assert asked(chooser, "224", 100) == taken
    assert asked(chooser, "192", 73) == taken


@pytest.mark.parametrize(("before", "again"), [(0.0, 0.0), (3.0, 3.0), (3600.0, 10.0)])
def test_a_start_that_takes_long_may_measure_for_as_long(
    monkeypatch: pytest.MonkeyPatch, before: float, again: float
) -> None:
    now = [100.0]
    monkeypatch.setattr(chooser_module.time, "perf_counter", lambda: now[0])
    chooser = Chooser(QUICK, Store("a device of test_chooser whose starts are long"), spent=0.5)
    spent = Chooser(QUICK, Store("a device of test_chooser with self-tests"), spent=2.5)
    now[0] += before
    for key in ("first", "second"):
        assert asked(chooser, key, 100, "") == ["plain", "measured"]
    assert chooser.seconds_left == 1.5 + again  # once a start
    assert asked(spent, "first", 100, "") == ["fast"]
    assert (spent.left, spent.seconds_left) == (1, -0.5)


def test_what_a_child_is_asked_for_is_not_taken_over_meanwhile() -> None:
    store = Store("a device of test_chooser whose graphs have nodes with the same numbers")
    parent, child, awaited = Chooser(QUICK, store), Chooser(QUICK, store), list[str]()
    assert asked(parent, "decode", 100) == ["plain", "measured"]
    parent.leave_to_child(awaited.append)
    assert asked(parent, "prefill", 100, "node 9") == ["fast"]
    assert asked(parent, "prefill", 100) == ["fast"]  # its number is that of decode's
    child.go_on(*parent.state())
    assert asked(child, "prefill", 100, "node 9") == ["plain", "measured"]
    assert set(awaited) == {"prefill"}
    parent.seconds_left = 0
    assert asked(parent, "prefill", 100) == ["plain"]
