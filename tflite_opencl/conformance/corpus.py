# SPDX-License-Identifier: Apache-2.0
"""One page from the JSON files of many runs: reported faults x delegates that were run.

A run's delegate, device and runtime are a column. A cell is the result of the newest run that
has the fault's cases, and of the newest before it that differs.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tflite_opencl.cli.messages import printable
from tflite_opencl.conformance.cases import frontend, reported
from tflite_opencl.conformance.reports import rendered
from tflite_opencl.conformance.results import CRASH, FAIL, NOT_DELEGATED, PASS, SKIP, TIMEOUT
from tflite_opencl.conformance.telling import read_runs

_UNDATED = "no date"
_FAR = 1e6  # a greater multiple of a bound tells nothing
_Results = dict[str, dict[str, Any]]  # by the case's name


@dataclass(frozen=True, slots=True)
class ReportedFault:
    """A reported fault and the cases that stand for it."""

    report: str
    text: str
    cases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """The runs of one delegate, oldest first."""

    name: str
    runs: Sequence[tuple[str, _Results]]  # the date, results

    @property
    def dates(self) -> str:
        """The first and the last date."""
        first, last = self.runs[0][0], self.runs[-1][0]
        return first if first == last else f"{first} to {last}"


@dataclass(frozen=True, slots=True)
class CorpusCell:
    """The results of a fault's cases on a delegate."""

    kind: str  # "right", "wrong", "refused", "none"
    words: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """The table."""

    columns: Sequence[Column]
    rows: Sequence[tuple[ReportedFault, Sequence[CorpusCell]]]

    def shown(self, column: int) -> str:
        """Return how many faults a column shows, of those whose cases it ran."""
        kinds = Counter(cells[column].kind for _, cells in self.rows)
        return f"{kinds['wrong']} of {kinds.total() - kinds['none']} faults"

    def letter(self, column: int) -> str:
        """Return the short name of a column: A, B, ..., Z, A1, ..."""
        turn, place = divmod(column, 26)
        return f"{chr(ord('A') + place)}{turn or ''}"


def corpus(paths: Iterable[str]) -> Corpus:
    """Return the table of these files, which --json wrote.

    Raises: OneLineError: a file is something else.
    """
    by_name: dict[str, list[tuple[str, _Results]]] = {}
    for run in itertools.chain.from_iterable(map(read_runs, paths)):
        name = ", ".join(str(run.get(key, "?")) for key in ("delegate", "device", "runtime"))
        date = str(run.get("begun") or _UNDATED)[:10]
        results = {row["name"]: row for row in run["cases"]}
        by_name.setdefault(printable(name), []).append((printable(date), results))
    # Files without a date are of an older version of the suite.
    columns = [
        Column(name, sorted(runs, key=lambda run: (run[0] != _UNDATED, run[0])))
        for name, runs in sorted(by_name.items())
    ]
    rows = [(fault, [_cell(fault, column) for column in columns]) for fault in faults()]
    return Corpus(columns, rows)


def faults() -> list[ReportedFault]:
    """Return all reported faults, in the order of their cases."""
    cases: dict[tuple[str, str], list[str]] = {}
    for case in itertools.chain(frontend.cases(), reported.cases()):
        cases.setdefault((case.report, case.fault), []).append(case.name)
    return [ReportedFault(*key, tuple(names)) for key, names in cases.items()]


def _cell(fault: ReportedFault, column: Column) -> CorpusCell:
    found = [
        (date, _verdict([results[name] for name in fault.cases if name in results]))
        for date, results in reversed(column.runs)
    ]
    found = [(date, cell) for date, cell in found if cell.kind != "none"]
    if not found:
        return CorpusCell("none", "")
    date, newest = found[0]
    words = f"{newest.words}, {date}"
    earlier = next(((day, each) for day, each in found if each.words != newest.words), None)
    if earlier:
        words += f" (before: {earlier[1].words}, {earlier[0]})"
    return CorpusCell(newest.kind, words)


def _verdict(results: Sequence[Mapping[str, Any]]) -> CorpusCell:
    counts = Counter(row["result"] for row in results)
    ran = counts.total() - counts[SKIP]
    if not ran:
        return CorpusCell("none", "")
    refused, dead = counts[NOT_DELEGATED], counts[CRASH] + counts[TIMEOUT]
    wrong = [row for row in results if row["result"] not in (PASS, SKIP, NOT_DELEGATED)]
    if wrong and all(map(_is_rounding, wrong)):
        return CorpusCell("right", f"rounds otherwise: {len(wrong)} of {ran} differ by 1")
    if wrong:
        how = "crash or hang" if dead == len(wrong) else "wrong"
        greatest = max(float(row.get("quanta", 0)) for row in wrong)
        extent = f", by up to {greatest:.3g}" if 0 < greatest < _FAR else ""
        return CorpusCell("wrong", f"{len(wrong)} of {ran} {how}{extent}")
    if refused == ran:
        return CorpusCell("refused", "refused")
    return CorpusCell("right", f"right, {refused} of {ran} refused" if refused else "right")


def _is_rounding(row: Mapping[str, Any]) -> bool:
    """Whether a result differs by one quantum: other roundings do that."""
    is_float = str(row.get("type", "")).startswith(("float", "hybrid"))
    return row["result"] == FAIL and row.get("quanta") == 1 and not is_float


def markdown(made: Corpus) -> str:
    """Return the page in Markdown."""
    letters = [made.letter(place) for place in range(len(made.columns))]
    lines = [
        "# Reported faults and delegates",
        "",
        "Each row is a fault that somebody reported, or that a front end's source shows, with the",
        "number of cases that stand for it. A delegate that refuses them does not show it.",
        "Differences are in quanta, those of floats in multiples of the bound.",
        "",
        *(
            f"- {letter}: {column.name}; {column.dates}: {made.shown(place)}"
            for place, (letter, column) in enumerate(zip(letters, made.columns, strict=True))
        ),
        "",
        f"| report | fault | cases |{''.join(f' {letter} |' for letter in letters)}",
        f"|---|---|---|{'---|' * len(letters)}",
    ]
    for fault, cells in made.rows:
        words = "".join(f" {cell.words} |" for cell in cells)
        lines.append(f"| {fault.report} | {fault.text} | {len(fault.cases)} |{words}")
    return "\n".join(lines) + "\n"


def html(made: Corpus) -> str:
    """Return the page in HTML.

    Raises: OneLineError: jinja2 is missing.
    """
    return rendered("corpus.html", corpus=made)
