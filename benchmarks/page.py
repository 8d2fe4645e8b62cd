# SPDX-License-Identifier: Apache-2.0
"""Reports -> the measured part of docs/performance.md: a table and two charts for each machine.

The rest of a report is on the terminal and in --json. Prints nothing itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from rich.table import Table

from benchmarks import chart
from benchmarks.measure import PathTimes
from benchmarks.report import as_table, figure_columns, markdown, own_times, row_notes
from benchmarks.results import OPENCL, BenchmarkReport, RowResult

T = TypeVar("T")
_BEGIN, _END = "<!-- measured: begin -->", "<!-- measured: end -->"
_PART = re.compile(f"{re.escape(_BEGIN)}\n.*?{re.escape(_END)}", re.DOTALL)
_TITLE = ("GPU", "CPU")  # facts of a machine that name it


def write(reports: Sequence[BenchmarkReport], folder: Path) -> list[Path]:
    """Replace the measured part of the document; return the files written.

    Raises:
        OSError: a file cannot be read or written. ValueError: the document has no measured part.
        Skipped: matplotlib is not there.
    """
    document = folder / "performance.md"
    text = document.read_text()
    if not _PART.search(text):
        raise ValueError(f"{document} has no part between {_BEGIN} and {_END}")
    pictures: list[Path] = []
    parts = [
        part
        for number, each in enumerate(reports, start=1)
        for part in _sections(each, folder / f"performance_{number}", pictures)
    ]
    measured = "\n".join([_BEGIN, *parts, _END])
    document.write_text(_PART.sub(lambda _: measured, text))
    return [document, *pictures]


def _sections(each: BenchmarkReport, stem: Path, pictures: list[Path]) -> Iterator[str]:
    """Yield the parts of a report's section; its pictures are drawn."""

    def picture(title: str, name: str, draw: Callable[[T, Path], None], of: T) -> str:
        pictures.append(path := stem.with_name(f"{stem.name}_{name}.svg"))
        draw(of, path)
        return f"![{title}]({path.name})\n"

    names = [each.machine[part] for part in _TITLE if part in each.machine]
    yield f"### {' and '.join(names)}\n"
    facts = [f"{name}: {value}" for name, value in each.machine.items() if name not in _TITLE]
    yield "".join(f"- {line}\n" for line in (*facts, *_page_notes(each.rows)))
    if any(row.figures for row in each.rows):
        yield picture("Figures over their limits", "figures", chart.write_figures, each)
    if models := [row for row in each.rows if row.has_model]:
        yield markdown(results_table(models))
        yield picture("Times of every path", "times", chart.write_times, models)


def _page_notes(rows: Sequence[RowResult]) -> Iterator[str]:
    """Yield the devices, how outputs compare, and each figure that the table does not show."""
    for device in dict.fromkeys(row.device for row in rows if row.device):
        yield f"device: {device}"
    by_outputs: dict[str, list[str]] = {}
    for row in rows:
        if row.exact:
            by_outputs.setdefault(row.exact, []).append(row.row)
    for outputs, names in by_outputs.items():
        yield f"outputs {outputs}: {', '.join(names)}"
    for row in rows:
        yield from row_notes(row)
        for figure in row.figures:
            text, limit, _, verdict = figure_columns(figure)
            if figure.goal.unit or figure.verdict in ("missed", "not judged"):
                yield f"{row.row}: {figure.goal.what}: {text} (limit: {limit}), {verdict}"


def results_table(rows: Sequence[RowResult]) -> Table:
    """Return the table of the page: ours, XNNPACK's, and the fastest path if it is neither."""
    return as_table(
        ("row", "OpenCL, ms", "XNNPACK, ms", "ratio", "fastest peer, ms", "roofline, ms"),
        ((row.row, *_peer_columns(row)) for row in rows),
        words=(0, 4),
    )


def _peer_columns(row: RowResult) -> Iterator[str]:
    xnnpack = row.paths.get("XNNPACK")
    peers = {name: each for name, each in row.paths.items() if not name.startswith(OPENCL)}
    fastest = min(peers, key=lambda name: peers[name].min_ms, default="XNNPACK")
    yield _min_and_median(own_times(row))
    yield "" if xnnpack is None else _min_and_median(xnnpack)
    yield "" if xnnpack is None else f"{xnnpack.ratio:.2f}"
    yield "" if fastest == "XNNPACK" else f"{fastest}: {peers[fastest].min_ms:.3f}"
    yield f"{row.delegation.limit_ms:.3f}" if row.delegation and row.delegation.limit_ms else ""


def _min_and_median(times: PathTimes) -> str:
    return f"{times.min_ms:.3f} / {times.median_ms:.3f}"
