# SPDX-License-Identifier: Apache-2.0
"""The table of docs/ops.md matches the suite's cases with expected results.

CI runs a sample of the cases. Those that it expects to be refused run here.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from delegate import DeviceInfo
from delegate.inspect import write_model
from tests.support.tiers import slow
from tflite_opencl.conformance import reports, results
from tflite_opencl.conformance.cases import all_cases
from tflite_opencl.conformance.checks import run_check
from tflite_opencl.conformance.checks.job import CaseJob
from tflite_opencl.conformance.results import PASS, CaseResult, ConformanceReport, ReportRow
from tflite_opencl.conformance.subject import OPENCL, Subject
from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.models.build import Case

CHECKOUT = Path(__file__).parents[3]
PAGE = CHECKOUT / "docs" / "ops.md"
EXPECTED = results.read(str(CHECKOUT / ".ci" / "opencl-fails.txt"), (), (), False).baseline


@pytest.fixture
def subject(device: DeviceInfo) -> Subject:
    return Subject(OPENCL, {}, str(device.index), find_runtime())


def outcome(case: Case, subject: Subject) -> CaseResult:
    """Return the outcome of a case: it passes unless a failure is expected."""
    if case.name not in EXPECTED:
        return CaseResult(PASS, name=case.name)
    graph = case.make()
    job = CaseJob(subject, graph, write_model(graph), 0, None, lambda: None)
    return dataclasses.replace(run_check(case.check, job), name=case.name)


@slow
def test_document_has_table_of_all_cases(subject: Subject, device: DeviceInfo) -> None:
    if "Portable Computing Language" not in device.platform:
        pytest.skip("the page's table is of PoCL")
    cases = [case for case in all_cases() if not case.name.startswith("teflon/")]
    matches = [(case, outcome(case, subject)) for case in cases]
    rows = [ReportRow(case, result, result.result, True) for case, result in matches]
    table = reports.table(ConformanceReport(rows, OPENCL, "", subject.runtime.text, 0))
    page = PAGE.read_text("utf-8")
    # The first line names the device.
    assert reports.placed(page, table).splitlines() == [
        line if not line.startswith(f"{OPENCL} on ") else table.splitlines()[0]
        for line in page.splitlines()
    ]
