# SPDX-License-Identifier: Apache-2.0
"""Op x type: how many cases are exact, and why the others are not: a documentation page's table."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from tflite_opencl.conformance.outcome import FAIL, FLAKE, NOT_DELEGATED, PASS, SKIP
from tflite_opencl.conformance.results import Report

KINDS = (
    "uint8", "int8", "int8-per-channel", "16x8", "float32", "int32", "int64", "bool", "int16",
)  # fmt: skip
_REASONS = 3
# Lines of a page whose table --coverage PAGE renews, and leaves the rest as it is.
BEGIN, END = "<!-- tflite-delegate-test --coverage -->", "<!-- end of coverage -->"


@dataclass(slots=True)
class Cell:
    """What is known of an op and a type."""

    kind: str
    counts: Counter[str] = field(default_factory=Counter)  # result -> cases
    reasons: Counter[str] = field(default_factory=Counter)  # why nothing was delegated
    quanta: float = 0  # the greatest difference of a failed case

    @property
    def ran(self) -> int:
        """Cases that say something of the delegate."""
        return sum(self.counts.values()) - self.counts[SKIP]

    @property
    def passed(self) -> int:
        """Cases that are right."""
        return self.counts[PASS]

    def words(self) -> str:
        """Return the table's cell."""
        if not self.ran:
            return "-"
        refused = self.counts[NOT_DELEGATED]
        if refused == self.ran:
            return "no"
        wrong = self.ran - refused - self.passed
        right = "in bound" if self.kind == "float32" else "exact"
        words = f"{wrong} of {self.ran} differ" if wrong else right
        if wrong and self.quanta:
            words += f", up to {self.quanta:g}"
        return f"{words}, or refused" if refused else words


def cells(report: Report) -> dict[str, dict[str, Cell]]:
    """Return the matrix: op -> type -> what is known."""
    found: dict[str, dict[str, Cell]] = {}
    for row in report.rows:
        kind = row.case.kind
        cell = found.setdefault(row.case.op, {}).setdefault(kind, Cell(kind))
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


def table(report: Report) -> str:
    """Return the matrix in Markdown, equal rows as one, and the reasons of refusals below it."""
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
    """Return a page with the table between its two marks; without marks it is the table alone."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{begin}\n{made}{end}{after}" if end else made


def _general(reason: str) -> str:
    """Return a reason without a case's own numbers, so that equal ones add up."""
    return re.sub(r"(?<![\w.])-?\d[\dx.e+-]*(?!\w)", "N", reason)[:160]
