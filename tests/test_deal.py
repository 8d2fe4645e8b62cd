# SPDX-License-Identifier: Apache-2.0
"""Who runs which case: all of a way where it is at home, some elsewhere, none nowhere."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import deal
from tests.support.cases import EMULATED, LANES_4, LANES_8, SIMT, Way

WIDTHS = {"with vectors": 8, "without": 1}
CASES = 13


@dataclass(frozen=True)
class Item:
    """What `dealt` asks of a test."""

    device: str
    way: Way = field(hash=False)
    number: int
    marks: tuple[str, ...] = ()

    @property
    def nodeid(self) -> str:
        return f"tests/delegate/ops/test_add.py::test_add[{self.number}]"

    @property
    def callspec(self) -> Any:
        return SimpleNamespace(params={"device": self.device, "way": self.way})

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None


def counts(
    *devices: str, marks: tuple[str, ...] = (), ways: tuple[Way, ...] = (SIMT, LANES_4, LANES_8)
) -> dict[tuple[str, str], int]:
    """Return how many cases of each way each device runs."""
    items = [
        Item(device, way, number, marks)
        for device in devices
        for number in range(CASES)
        for way in ways
    ]
    left_out = deal.dealt(items)  # type: ignore[arg-type]
    return Counter((item.device, str(item.way)) for item in items if item not in left_out)


@pytest.fixture(autouse=True)
def _devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_EVERYTHING", raising=False)
    monkeypatch.setattr(deal, "vector_width", WIDTHS.__getitem__)


@pytest.mark.parametrize("only", WIDTHS)
def test_one_device_runs_everything(only: str) -> None:
    assert counts(only) == {(only, name): CASES for name in ("simt", "lanes4", "lanes8")}


def test_a_way_runs_all_cases_at_home_and_some_elsewhere() -> None:
    found = counts(*WIDTHS)
    assert found["with vectors", "lanes4"] == found["with vectors", "lanes8"] == CASES
    assert found["without", "simt"] == CASES
    for device, name in (("with vectors", "simt"), ("without", "lanes4"), ("without", "lanes8")):
        assert found[device, name] in (2, 3)


def test_a_case_of_one_width_runs_once_at_home() -> None:
    found = counts(*WIDTHS, marks=("one_width",))
    assert found["with vectors", "lanes4"] + found["with vectors", "lanes8"] == CASES
    assert found["without", "simt"] == CASES


def test_stand_ins_run_some_cases() -> None:
    assert counts("without", ways=(EMULATED,)) == {("without", "emulated"): 3}


def test_everything_runs_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_EVERYTHING", "1")
    assert set(counts(*WIDTHS).values()) == {CASES}
