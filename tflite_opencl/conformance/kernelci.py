# SPDX-License-Identifier: Apache-2.0
"""A report in the schema of KernelCI's database, KCIDB 5.3: a test for each case."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tflite_opencl.conformance.results import (
    KNOWN_FLAKE,
    NOT_DELEGATED,
    PASS,
    SKIP,
    ConformanceReport,
    ReportRow,
)

_SUITE = "tflite_delegate_test"  # the first part of each path
_MOST = 16384  # characters of an excerpt
_COMPATIBLE = Path("/proc/device-tree/compatible")


def kernelci(report: ConformanceReport) -> str:
    """Return the report as JSON text."""
    environment: dict[str, Any] = {
        "comment": _clean(report.device),
        "misc": {"delegate": report.delegate, "runtime": report.runtime},
    }
    if _COMPATIBLE.exists():
        words = _COMPATIBLE.read_bytes().decode("utf-8", "replace").strip("\0").split("\0")
        environment["compatible"] = words
    tests = [_test(row, report, environment) for row in report.rows]
    content = {"version": {"major": 5, "minor": 3}, "tests": tests}
    return json.dumps(content, indent=1) + "\n"


def _test(row: ReportRow, report: ConformanceReport, environment: dict[str, Any]) -> dict[str, Any]:
    test = {
        "id": f"{report.build}:{_SUITE}:{report.begun}:{row.case.name}",
        "origin": report.build.partition(":")[0],
        "build_id": report.build,
        "path": ".".join([_SUITE, *(_word(part) for part in row.case.name.split("/"))]),
        "status": _status(row),
        "start_time": report.begun,
        "duration": row.result.seconds,
        "environment": environment,
        "misc": {"status": row.status, "is_expected": row.is_expected},
    }
    said = "\n".join(filter(None, [row.result.detail, row.result.stderr]))
    if said:
        test["log_excerpt"] = _clean(said)[:_MOST]
    return test


def _status(row: ReportRow) -> str:
    """Return KernelCI's word; an expected failure is one, as its issues say what is known."""
    if row.result.result == PASS:
        return "PASS"
    is_left = row.result.result == NOT_DELEGATED and row.is_expected
    return "SKIP" if row.result.result == SKIP or row.status == KNOWN_FLAKE or is_left else "FAIL"


def _word(part: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", part)


def _clean(text: str) -> str:
    return text.replace("\0", "")
