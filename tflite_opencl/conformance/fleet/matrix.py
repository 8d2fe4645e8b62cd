# SPDX-License-Identifier: Apache-2.0
"""The same cases' results on several boards, side by side. Everything here returns text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tflite_opencl.cli.messages import stamped
from tflite_opencl.conformance import reports
from tflite_opencl.conformance.results import ConformanceReport, ReportRow
from tflite_opencl.console.tables import columns, csv_text, render

_SHOWN = 20  # differing cases listed on a terminal
_NONE = "-"  # a case that a board did not run


@dataclass(frozen=True, slots=True)
class Fleet:
    """The same cases on several boards."""

    cases: Sequence[str]  # names, in order
    boards: Mapping[str, ConformanceReport]  # an interrupted board has fewer rows
    why_not: Mapping[str, str]  # boards that could not run all cases, and why

    def statuses(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each case with its status on each board."""
        by_board = [{row.case.name: row for row in each.rows} for each in self.boards.values()]
        for name in self.cases:
            yield name, [rows[name].status if name in rows else _NONE for rows in by_board]

    def different(self) -> list[tuple[str, list[str]]]:
        """Return the cases with different results among the boards that ran them."""
        return [(name, each) for name, each in self.statuses() if len({*each} - {_NONE}) > 1]

    @property
    def unexpected(self) -> Sequence[ReportRow]:
        """The rows of all boards that make the run fail."""
        return [row for report in self.boards.values() for row in report.unexpected]


def text_of(fleet: Fleet, width: int) -> str:
    """Return the boards, the matrix of ops and boards, and the cases that differ."""
    lines = []
    for name, report in fleet.boards.items():
        counts = ", ".join(f"{status} {count}" for status, count in report.counts().items())
        about = ", ".join(filter(None, (report.device, report.runtime)))
        lines.append(f"{name}: {about or 'no device'}: {counts or 'nothing ran'}")
    lines += [f"{name} broke off: {why}" for name, why in fleet.why_not.items()]
    different = fleet.different()
    for name, statuses in different[:_SHOWN]:
        lines.append(f"DIFFERS {name}: {_grouped(fleet, statuses)}")
    if len(different) > _SHOWN:
        lines.append(f"and {len(different) - _SHOWN} more: see boards.csv")
    if not different and len(fleet.boards) > 1:
        lines.append(f"all {len(fleet.cases)} cases came out alike on all boards that ran them")
    return "\n".join([_matrix(fleet, width), "", *lines])


def _matrix(fleet: Fleet, width: int) -> str:
    """Return a table of ops and boards, with equal rows merged; differing rows begin with "!"."""
    ops_of: dict[tuple[str, ...], list[str]] = {}
    by_board = [reports.cells(report, by_kind=False) for report in fleet.boards.values()]
    for op in sorted({op for cells in by_board for op in cells}):
        found = [cells[op][""].words() if op in cells else _NONE for cells in by_board]
        ops_of.setdefault((*found,), []).append(op)
    rows = [
        (("! " if len({*words} - {_NONE}) > 1 else "") + ", ".join(ops), *words)
        for words, ops in ops_of.items()
    ]
    return render(width, columns(("op", *fleet.boards), rows, left=1))


def _grouped(fleet: Fleet, statuses: Sequence[str]) -> str:
    """Return the boards grouped by status: "Pass on a, b; Fail on c"."""
    boards: dict[str, list[str]] = {}
    for board, status in zip(fleet.boards, statuses, strict=True):
        boards.setdefault(status, []).append(board)
    boards.pop(_NONE, None)
    return "; ".join(f"{status} on {', '.join(names)}" for status, names in boards.items())


def csv_of(fleet: Fleet) -> str:
    """Return one row per case, with its status on each board."""
    names = ("case", *fleet.boards)
    rows = (dict(zip(names, (name, *each), strict=True)) for name, each in fleet.statuses())
    return csv_text(names, rows) + "\n"


def as_json(fleet: Fleet) -> str:
    """Return everything as JSON."""
    facts = {
        "boards": {name: reports.facts(report) for name, report in fleet.boards.items()},
        "different": {
            name: dict(zip(fleet.boards, each, strict=True)) for name, each in fleet.different()
        },
        "why_not": dict(fleet.why_not),
    }
    return json.dumps(stamped(facts), indent=1) + "\n"
