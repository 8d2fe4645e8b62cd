# SPDX-License-Identifier: Apache-2.0
"""Formats a report: JUnit, KTAP, LAVA signals, JSON, an HTML page, a Markdown table.

The page and the table have a matrix, op x type: how many cases are exact, and why others are not.
"""

from __future__ import annotations

import dataclasses
import json
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from delegate.inspect import WRITES
from tflite_opencl.cli.messages import stamped
from tflite_opencl.conformance.results import (
    EXPECTED_FAIL,
    FAIL,
    FLAKE,
    KNOWN_FLAKE,
    NOT_DELEGATED,
    PASS,
    SKIP,
    ConformanceReport,
    ReportRow,
)
from tflite_opencl.console.errors import OneLineError

KINDS = (
    "uint8", "int8", "int8-per-channel", "16x8", "hybrid", "hybrid-per-channel", "float32",
    "int32", "int64", "bool", "int16",
)  # fmt: skip
_REASONS = 3
# Markers in a page: --coverage PAGE replaces the table between them.
BEGIN, END = "<!-- tflite-delegate-test --coverage -->", "<!-- end of coverage -->"
_LIMIT = 500  # unexpected results listed on the page
_PASSED_OVER = (SKIP, EXPECTED_FAIL, KNOWN_FLAKE)
# XML 1.0 allows no other control characters.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: ConformanceReport) -> str:
    """Return JUnit XML, with one test suite per family."""
    root = ElementTree.Element("testsuites", name="tflite-delegate-test")
    families: dict[str, list[ReportRow]] = {}
    for row in report.rows:
        families.setdefault(row.case.name.split("/")[0], []).append(row)
    for family, rows in families.items():
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=family,
            tests=str(len(rows)),
            failures=str(sum(not row.is_expected for row in rows)),
            errors="0",
            skipped=str(sum(_is_skipped(row) for row in rows)),
            time=f"{sum(row.result.seconds for row in rows):.3f}",
        )
        for row in rows:
            name, time = _xml(row.case.name), f"{row.result.seconds:.3f}"
            facts = {"name": name, "classname": f"{family}.{row.case.kind}", "time": time}
            case = ElementTree.SubElement(suite, "testcase", facts)
            words = _xml(f"{row.status}: {row.result.detail}".removesuffix(": "))
            if not row.is_expected:
                failure = ElementTree.SubElement(case, "failure", message=words, type=row.status)
                failure.text = words
            elif _is_skipped(row):
                ElementTree.SubElement(case, "skipped", message=words)
            if row.result.stderr:
                ElementTree.SubElement(case, "system-err").text = _xml(row.result.stderr)
    ElementTree.indent(root)
    body = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{body}\n'


def ktap(report: ConformanceReport) -> str:
    """Return the kernel's TAP, version 1."""
    lines = ["KTAP version 1", f"1..{len(report.rows)}"]
    for number, row in enumerate(report.rows, 1):
        name = row.case.name
        if not row.is_expected:
            lines.append(f"not ok {number} {name}")
            lines.append(f"# {row.status}: {' '.join(row.result.detail.split())}")
        elif _is_skipped(row):
            lines.append(f"ok {number} {name} # SKIP {row.status} {row.result.detail}".rstrip())
        else:
            lines.append(f"ok {number} {name}")
    return "\n".join(lines) + "\n"


def lava(report: ConformanceReport) -> str:
    """Return lines for the serial console that LAVA parses as results, in a test set."""
    lines = ["<LAVA_SIGNAL_TESTSET START delegate_test>"]
    for row in report.rows:
        word = "skip" if _is_skipped(row) else "pass" if row.is_expected else "fail"
        name = re.sub(r"[^\w.+-]", "_", row.case.name)
        lines.append(
            f"<LAVA_SIGNAL_TESTCASE TEST_CASE_ID={name} RESULT={word} UNITS=seconds "
            f"MEASUREMENT={row.result.seconds:.4f}>"
        )
    return "\n".join([*lines, "<LAVA_SIGNAL_TESTSET STOP>"]) + "\n"


def as_json(report: ConformanceReport) -> str:
    """Return everything as JSON text."""
    return json.dumps(stamped(facts(report)), indent=1) + "\n"


def facts(report: ConformanceReport) -> dict[str, Any]:
    """Return everything as JSON values."""
    cases = [
        {
            "name": row.case.name,
            **dataclasses.asdict(row.result),
            "op": row.case.op,
            "type": row.case.kind,
            "status": row.status,
            "is_expected": row.is_expected,
        }
        for row in report.rows
    ]
    return {
        "delegate": report.delegate,
        "device": report.device,
        "runtime": report.runtime,
        "begun": report.begun,
        "seconds": round(report.seconds, 3),
        "not_run": report.not_run,
        "counts": report.counts(),
        "unexpected": len(report.unexpected),
        "cases": cases,
    }


def html(report: ConformanceReport) -> str:
    """Return an HTML page: the matrix of ops and types, and the failures.

    Raises: OneLineError: jinja2 is missing.
    """
    matrix = cells(report)
    return rendered(
        "page.html",
        report=report,
        matrix=matrix,
        kinds=kinds_of(matrix),
        # Undelegated cases are in the matrix; wrong results come first here.
        unexpected=sorted(report.unexpected, key=lambda row: row.status == NOT_DELEGATED),
        limit=_LIMIT,
        mark=_mark,
    )


def rendered(template: str, **values: Any) -> str:
    """Return one of this folder's templates with these values.

    Raises: OneLineError: jinja2 is missing.
    """
    try:
        import jinja2
    except ImportError:
        raise OneLineError("--html needs jinja2 (pip install tflite-opencl[suite])") from None
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    text = (Path(__file__).parent / template).read_text(encoding="utf-8")
    return environment.from_string(text).render(**values)


def _mark(cell: Cell) -> str:
    if cell.counts[NOT_DELEGATED] == cell.ran:
        return "refused"
    if cell.passed == cell.ran:
        return "all"
    return "some" if cell.passed else "none"


def _is_skipped(row: ReportRow) -> bool:
    return row.is_expected and row.status in (*_PASSED_OVER, NOT_DELEGATED)


def _xml(text: str) -> str:
    return _NOT_XML.sub("?", text)


@dataclass(slots=True)
class Cell:
    """The results of an op and type."""

    kind: str
    op: str
    counts: Counter[str] = field(default_factory=Counter)  # result -> cases
    reasons: Counter[str] = field(default_factory=Counter)  # why cases were not delegated
    quanta: float = 0  # the largest difference of a failed case

    @property
    def ran(self) -> int:
        """Number of cases that ran on the delegate."""
        return sum(self.counts.values()) - self.counts[SKIP]

    @property
    def passed(self) -> int:
        """Number of correct cases."""
        return self.counts[PASS]

    def words(self) -> str:
        """Return the table's cell."""
        if not self.ran:
            return "-"
        refused = self.counts[NOT_DELEGATED]
        if refused == self.ran:
            return "no"
        wrong = self.ran - refused - self.passed
        # Stateful ops accumulate floats over time, even if their rows are quantised.
        is_float = self.kind == "float32" or (self.kind == "hybrid" and self.op in WRITES)
        right = "in bound" if is_float else "exact"
        words = f"{wrong} of {self.ran} differ" if wrong else right
        if wrong and self.quanta:
            words += f", up to {self.quanta:g}"
        return f"{words}, or refused" if refused else words


def cells(report: ConformanceReport, by_kind: bool = True) -> dict[str, dict[str, Cell]]:
    """Return the matrix: op -> type -> results; not `by_kind`: all types are ""."""
    found: dict[str, dict[str, Cell]] = {}
    for row in report.rows:
        kind = row.case.kind if by_kind else ""
        cell = found.setdefault(row.case.op, {}).setdefault(kind, Cell(kind, row.case.op))
        cell.counts[row.result.result] += 1
        if row.result.result == NOT_DELEGATED:
            cell.reasons[_general(row.result.detail.removeprefix(f"{row.case.op}: "))] += 1
        elif row.result.result in (FAIL, FLAKE):
            cell.quanta = max(cell.quanta, row.result.quanta)
    return dict(sorted(found.items(), key=lambda pair: (pair[0].islower(), pair[0])))


def kinds_of(matrix: dict[str, dict[str, Cell]]) -> list[str]:
    """Return the columns in use."""
    used = {kind for row in matrix.values() for kind in row}
    return [kind for kind in KINDS if kind in used] + sorted(used - set(KINDS))


def table(report: ConformanceReport) -> str:
    """Return the matrix in Markdown, with equal rows merged, and reasons of refusals below it."""
    matrix = cells(report)
    columns = kinds_of(matrix)
    ops_of: dict[tuple[str, ...], list[str]] = {}
    for op, row in matrix.items():
        words = tuple(row[kind].words() if kind in row else "" for kind in columns)
        ops_of.setdefault(words, []).append(op)
    lines = [
        f"{report.delegate} on {report.device}, beside the kernels of {report.runtime}.",
        "",
        f"| op | {' | '.join(columns)} |",
        f"|---|{'---|' * len(columns)}",
        *(f"| {', '.join(ops)} | {' | '.join(words)} |" for words, ops in ops_of.items()),
    ]
    refusals = [
        f"- {op} {kind}: {count} x {reason}"
        for op, row in matrix.items()
        for kind, cell in row.items()
        for reason, count in cell.reasons.most_common(_REASONS)
    ]
    if refusals:
        lines += ["", "Refused:", "", *refusals]
    return "\n".join(lines) + "\n"


def placed(page: str, made: str) -> str:
    """Return a page with the table between its markers; without markers only the table."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{begin}\n{made}{end}{after}" if end else made


def _general(reason: str) -> str:
    """Return a reason without case-specific numbers, so that equal ones are merged."""
    return re.sub(r"(?<![\w.])-?\d[\dx.e+-]*(?!\w)", "N", reason)[:160]
