# SPDX-License-Identifier: Apache-2.0
"""The order of a run of limited time."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from delegate import DeviceInfo
from tests.support.tiers import slow
from tflite_opencl.conformance.cases import all_cases
from tflite_opencl.conformance.selection import sample
from tflite_opencl.conformance.telling import (
    covering,
    failed_before,
    kernels_of,
    listed,
    ordered,
)
from tflite_opencl.console.errors import OneLineError
from tflite_opencl.models.build import Case


@cache
def cases() -> list[Case]:
    return [case for case in all_cases() if not case.is_heavy]


def test_failed_and_reported_cases_come_first() -> None:
    before = {"add/int8/1x7x5x3", "reported/int8/relu-in5", "of/another/version"}
    names = [case.name for case in ordered(cases(), before)]
    assert set(names[:2]) == before & {*names}
    reported = sum(bool(case.report) for case in cases())
    first = listed()[0]
    assert names.index(first) == 2 + reported - 1  # one of them failed before
    assert sorted(names) == sorted(case.name for case in cases())
    assert names == [case.name for case in ordered(cases(), before)]


def test_list_has_known_cases() -> None:
    names = listed()
    assert len(names) == len({*names}) > 500
    assert {*names} <= {case.name for case in cases()}, (
        "python -m tflite_opencl.conformance.telling"
    )


def test_case_with_most_new_kernels_is_next() -> None:
    kernels = {"a": "xy", "b": "xyz", "c": "yzu", "d": "v", "e": ""}
    found = list(covering({name: frozenset(own) for name, own in kernels.items()}))
    assert found == ["b", "c", "d"]


def test_failures_are_read_from_results(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    results = {"a": "Fail", "b": "Pass", "c": "Flake", "d": "NotDelegated", "e": "Crash"}
    rows = [{"name": name, "result": result} for name, result in results.items()]
    path.write_text(json.dumps({"cases": rows}))
    assert failed_before([str(path)]) == {"a", "c", "e"}
    boards = {"one": {"cases": rows[:1]}, "two": {"cases": rows[2:3]}}
    path.write_text(json.dumps({"boards": boards}))
    assert failed_before([str(path)]) == {"a", "c"}


@pytest.mark.parametrize(
    "text", ["", "[]", "3", '{"cases": 3}', '{"boards": 3}', '{"cases": [{"name": "a"}]}']
)
def test_other_files_are_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(OneLineError, match=r"run\.json is no result of tflite-delegate-test"):
        failed_before([str(path)])


@slow
@pytest.mark.device
def test_list_covers_more_kernels_than_sample(device: DeviceInfo) -> None:
    """Kernels of the first cases of the order, beside those of a sample as large."""
    some = [case for case in sample(cases(), 1500, 0) if not case.report]
    kernels = kernels_of(some, str(device.index))
    best = list(covering(kernels))
    in_list = {*listed()}
    assert [name for name in best[:100] if name in in_list]

    def covered(names: list[str]) -> int:
        return len({kernel for name in names for kernel in kernels.get(name, ())})

    order = [case.name for case in ordered(some, ())]
    assert covered(order[:200]) > 1.3 * covered([case.name for case in some[:200]])
