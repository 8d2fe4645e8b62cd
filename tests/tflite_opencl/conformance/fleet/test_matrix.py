# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import io
import json

import pytest

from tflite_opencl.conformance.cases import all_cases
from tflite_opencl.conformance.fleet.matrix import Fleet, as_json, csv_of, text_of
from tflite_opencl.conformance.results import (
    FAIL,
    NOT_DELEGATED,
    PASS,
    CaseResult,
    ConformanceReport,
    ReportRow,
)
from tflite_opencl.models.build import Case

ADD, CONV = "add/int8/1x7x5x3", "conv_2d/int8/in7x5x3-k3x3-out8-same"


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return {case.name: case for case in all_cases() if case.name in (ADD, CONV)}


def report(cases: dict[str, Case], **found: str) -> ConformanceReport:
    names = {"add": ADD, "conv": CONV}
    rows = [
        ReportRow(cases[names[name]], CaseResult(status, name=names[name]), status, status == PASS)
        for name, status in found.items()
    ]
    return ConformanceReport(rows, "opencl", "a device", "a runtime", 1.0)


def test_differing_case_stands_out(cases: dict[str, Case]) -> None:
    boards = {
        "one": report(cases, add=PASS, conv=PASS),
        "two": report(cases, add=FAIL, conv=PASS),
        "three": report(cases, add=PASS, conv=PASS),
    }
    fleet = Fleet([ADD, CONV], boards, {})
    text = text_of(fleet, 100)
    rows = {" ".join(line.split()) for line in text.splitlines()}
    assert "! ADD exact 1 of 1 differ exact" in rows
    assert "CONV_2D exact exact exact" in rows
    assert f"DIFFERS {ADD}: Pass on one, three; Fail on two" in rows
    assert "two: a device, a runtime: Fail 1, Pass 1" in rows
    assert [row.result.name for row in fleet.unexpected] == [ADD]
    assert next(csv.DictReader(io.StringIO(csv_of(fleet)))) == {
        "case": ADD, "one": PASS, "two": FAIL, "three": PASS,
    }  # fmt: skip
    result = json.loads(as_json(fleet))
    assert result["different"] == {ADD: {"one": PASS, "two": FAIL, "three": PASS}}
    assert result["boards"]["two"]["counts"] == {FAIL: 1, PASS: 1}


def test_equal_boards_and_ops_are_merged(cases: dict[str, Case]) -> None:
    result = report(cases, add=NOT_DELEGATED, conv=NOT_DELEGATED)
    text = text_of(Fleet([ADD, CONV], {"one": result, "two": result}, {}), 100)
    assert "ADD, CONV_2D" in text
    assert "all 2 cases came out alike on all boards that ran them" in text
    assert "DIFFERS" not in text


def test_cases_missing_on_a_board_are_no_difference(cases: dict[str, Case]) -> None:
    boards = {"one": report(cases, add=PASS, conv=PASS), "two": report(cases, add=PASS)}
    fleet = Fleet([ADD, CONV], boards, {"two": "no worker is there any more"})
    assert fleet.different() == []
    text = text_of(fleet, 100)
    assert "two broke off: no worker is there any more" in text
    assert "!" not in text
