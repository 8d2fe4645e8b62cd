# SPDX-License-Identifier: Apache-2.0
"""Results for KernelCI's database: their form, and the words for each status."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tflite_opencl.conformance.kernelci import kernelci
from tflite_opencl.conformance.results import CaseResult, ConformanceReport, ReportRow
from tflite_opencl.models.build import Case, graph

ROWS = (  # result, status, whether it is expected, KernelCI's word
    ("Pass", "Pass", True, "PASS"),
    ("Pass", "UnexpectedImprovement(Pass)", False, "PASS"),
    ("Fail", "Fail", False, "FAIL"),
    ("Fail", "ExpectedFail", True, "FAIL"),
    ("Crash", "Crash", False, "FAIL"),
    ("Timeout", "Timeout", False, "FAIL"),
    ("Flake", "Flake", False, "FAIL"),
    ("Flake", "KnownFlake", True, "SKIP"),
    ("Skip", "Skip", True, "SKIP"),
    ("NotDelegated", "NotDelegated", True, "SKIP"),
    ("NotDelegated", "NotDelegated", False, "FAIL"),
)


def content() -> dict[str, Any]:
    rows = []
    for number, (result, status, is_expected, _) in enumerate(ROWS):
        name = f"conv_2d/int8/in9x7.x-{number}"
        case = Case(name, "CONV_2D", "int8", lambda: graph([]))
        told = CaseResult(result, "a\0detail", name=name, seconds=1.5, stderr="x" * 20_000)
        rows.append(ReportRow(case, told, status, is_expected))
    date = "2026-11-29T10:11:12+00:00"
    report = ConformanceReport(rows, "opencl", "a board", "litert", 3, date, build="me:kernel")
    return dict(json.loads(kernelci(report)))


def test_words_and_names() -> None:
    tests = content()["tests"]
    assert [test["status"] for test in tests] == [word for *_, word in ROWS]
    assert len({test["id"] for test in tests}) == len(ROWS)
    first = tests[0]
    assert first["id"].startswith("me:kernel:")
    assert (first["origin"], first["build_id"]) == ("me", "me:kernel")
    assert first["path"] == "tflite_delegate_test.conv_2d.int8.in9x7_x-0"
    assert first["log_excerpt"].startswith("adetail\nxxx")
    assert len(first["log_excerpt"]) == 16384


def test_schema_accepts_content() -> None:
    schema = pytest.importorskip("kcidb_io.schema", reason="kcidb-io is not installed")
    schema.V5_3.validate_exactly(content())
