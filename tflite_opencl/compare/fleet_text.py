# SPDX-License-Identifier: Apache-2.0
"""Formats the same comparison on several boards. Everything here returns text."""

from __future__ import annotations

from collections.abc import Iterator

from tflite_opencl.compare.records import FleetReport, ModelResult, PathResult
from tflite_opencl.compare.text import CSV, ROWS, csv_rows, notes
from tflite_opencl.console.tables import NONE, columns, csv_text, markdown_table, render

# Omitted on terminals for lack of space; CSV and JSON have all.
_LEFT_OUT = ("device", "average, ms", "minimum, ms", "peak memory, MiB", "top result")
_SHOWN = [(name, of) for name, of in ROWS if name not in _LEFT_OUT]


def text_of(fleet: FleetReport, width: int) -> str:
    """Return one table per model, with one row per board and path, then remarks."""
    results: dict[int, list[tuple[str, ModelResult]]] = {}
    for board, report in fleet.boards.items():
        for number, model in enumerate(report.models):
            results.setdefault(number, []).append((board, model))
    parts = [_table(each, width) for each in results.values()]
    return "\n\n".join([*parts, "\n".join(_told(fleet))])


def _table(results: list[tuple[str, ModelResult]], width: int) -> str:
    model = results[0][1]
    rows = [(board, *_cells(path)) for board, each in results for path in each.paths]
    # Empty columns are omitted.
    names = [
        (number, name)
        for number, name in enumerate(("board", "path", *(name for name, _ in _SHOWN)))
        if any(row[number] != NONE for row in rows)
    ]
    kept = [[row[number] for number, _ in names] for row in rows]
    table = columns([name for _, name in names], kept, left=2)
    return f"{model.model}, {model.input}\n{render(width, table).rstrip()}"


def _cells(result: PathResult) -> tuple[str, ...]:
    return (result.path, *(of(result) for _, of in _SHOWN))


def _told(fleet: FleetReport) -> Iterator[str]:
    """Yield remarks, each once, with the boards they apply to."""
    boards: dict[str, list[str]] = {}
    for board, report in fleet.boards.items():
        devices = {
            f"{path.path} runs on {path.device}"
            for each in report.models
            for path in each.paths
            if path.device
        }
        lines = [f"{each.model}: {line}" for each in report.models for line in notes(each)]
        facts = [f"{name}: {fact}" for name, fact in report.machine.items()]
        for line in (*lines, *sorted(devices), *facts):
            boards.setdefault(line, []).append(board)
    for line, names in boards.items():
        is_all = len(names) == len(fleet.boards) > 1
        yield f"{'all boards' if is_all else ', '.join(names)}: {line}"
    for board, why in fleet.why_not.items():
        yield f"{board}: no result: {why}"


def csv_of(fleet: FleetReport) -> str:
    """Return one row per board and path; numbers are unrounded, unknown values empty."""
    rows = (
        {"board": board, **row}
        for board, report in fleet.boards.items()
        for row in csv_rows(report)
    )
    return csv_text(("board", *CSV), rows)


def markdown_of(fleet: FleetReport) -> str:
    """Return one Markdown table, with one row per board and path, and the remarks as a list."""
    names = ["board", "model", "path", *(name for name, _ in ROWS)]
    rows = (
        [board, model.model, path.path, *(of(path) for _, of in ROWS)]
        for board, report in fleet.boards.items()
        for model in report.models
        for path in model.paths
    )
    return "\n".join([markdown_table(names, rows), "", *(f"- {line}" for line in _told(fleet))])
