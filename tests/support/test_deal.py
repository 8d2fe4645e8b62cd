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
from tests.support.opencl import is_optimised

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
        return f"tests/delegate/ops/test_add.py::test_add[{self.device}-{self.number}]"

    @property
    def callspec(self) -> Any:
        params = {"device": self.device, "way": self.way, "number": self.number}
        return SimpleNamespace(params=params)

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
        assert found[device, name] in (1, 2)


def test_a_case_of_one_width_runs_once_at_home() -> None:
    found = counts(*WIDTHS, marks=("one_width",))
    assert found["with vectors", "lanes4"] + found["with vectors", "lanes8"] == CASES
    assert found["without", "simt"] == CASES


def test_stand_ins_run_some_cases() -> None:
    assert counts("without", ways=(EMULATED,)) == {("without", "emulated"): 2}


@pytest.mark.parametrize("devices", [("with vectors",), tuple(WIDTHS)])
def test_devices_take_what_needs_any_of_them_in_turns(devices: tuple[str, ...]) -> None:
    items = [
        Item(device, SIMT, number, ("any_driver",)) for number in range(3) for device in devices
    ]
    everywhere = [Item(device, SIMT, 3) for device in devices]
    every_driver = [Item(device, SIMT, 4, ("any_driver", "every_driver")) for device in devices]
    left_out = deal.in_turns([*items, *everywhere, *every_driver])  # type: ignore[list-item]
    kept = [(item.number, item.device) for item in items if item not in left_out]
    assert kept == [(number, devices[number % len(devices)]) for number in (0, 1, 2)]
    assert left_out.isdisjoint([*everywhere, *every_driver])


def test_everything_runs_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_EVERYTHING", "1")
    assert set(counts(*WIDTHS).values()) == {CASES}


@pytest.mark.parametrize(
    ("arguments", "marks", "is_asked"),
    [(["tests"], "", False), ([__file__], "", True), (["tests"], "slow", True)],
)
def test_slow_ones_run_where_they_are_asked_for(
    arguments: list[str], marks: str, is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEST_EVERYTHING", raising=False)
    config: Any = SimpleNamespace(args=arguments, option=SimpleNamespace(markexpr=marks))
    items: list[Any] = [Item("without", SIMT, 0), Item("without", SIMT, 1, ("slow",))]
    assert deal.unasked(config, items) == (set() if is_asked else {items[1]})


def test_samples_share_the_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    items: list[Any] = [Item(device, SIMT, number) for number in range(100) for device in WIDTHS]
    monkeypatch.delenv("TEST_ONE_CASE_IN", raising=False)
    assert deal.sampled(items) == set()
    samples = []
    for first in (7, 8, 9):
        monkeypatch.setenv("TEST_ONE_CASE_IN", f"3:{first}")
        samples.append({*items} - deal.sampled(items))
        found = Counter(item.device for item in samples[-1])
        assert all(20 <= found[device] <= 50 for device in WIDTHS)
    assert samples[0] | samples[1] | samples[2] == {*items}
    assert sum(map(len, samples)) == len(items)


def test_each_file_is_optimised_for_one_number_of_five(monkeypatch: pytest.MonkeyPatch) -> None:
    files = ["test_add", "test_conv_2d", "pool_2d"]
    found = []
    for number in range(7, 12):
        monkeypatch.setenv("TEST_OPTIMISED", f"5:{number}")
        found += [file for file in files if is_optimised(file)]
    assert sorted(found) == sorted(files)
    monkeypatch.setenv("TEST_OPTIMISED", "1")
    assert all(map(is_optimised, files))
    monkeypatch.delenv("TEST_OPTIMISED")
    assert not any(map(is_optimised, files))
