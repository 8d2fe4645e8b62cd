# SPDX-License-Identifier: Apache-2.0
"""Reports -> the measured part of docs/performance.md and its pictures. Prints nothing.

The page has the rows. Series and launches are on the terminal and in --json.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import chart, report
from benchmarks.results import Report

DOCUMENT = "performance.md"
_BEGIN, _END = "<!-- measured: begin -->", "<!-- measured: end -->"
_PART = re.compile(f"{re.escape(_BEGIN)}\n.*?{re.escape(_END)}", re.DOTALL)


def write(reports: Sequence[Report], folder: Path) -> list[Path]:
    """Replace the measured part of the document; return the files written.

    Raises:
        OSError: a file cannot be read or written. ValueError: the document has no measured part.
        Skipped: matplotlib is not there.
    """
    document = folder / DOCUMENT
    text = document.read_text()
    if not _PART.search(text):
        raise ValueError(f"{document} has no part between {_BEGIN} and {_END}")
    pictures: list[Path] = []

    def picture(name: str, title: str, draw: Callable[[Path], None]) -> str:
        path = folder / f"performance_{name}.svg"
        draw(path)
        pictures.append(path)
        return f"![{title}]({path.name})\n"

    parts = [
        part
        for number, each in enumerate(reports, start=1)
        for part in _sections(each, f"{number}", picture)
    ]
    measured = "\n".join([_BEGIN, *parts, _END])
    document.write_text(_PART.sub(lambda _: measured, text))
    return [document, *pictures]


def _sections(
    each: Report, number: str, picture: Callable[[str, str, Callable[[Path], None]], str]
) -> Iterator[str]:
    names = [each.machine[part] for part in ("GPU", "CPU") if part in each.machine]
    yield f"### {' and '.join(names)}\n"
    yield "".join(f"- {name}: {value}\n" for name, value in each.machine.items())
    measured = [row for row in each.rows if row.paths]
    if any(row.figures for row in each.rows):
        yield markdown(report.figures(each.rows))
        yield picture(
            f"{number}_figures", "Figures over their limits", partial(chart.write_figures, each)
        )
    if measured:
        yield markdown(report.times(measured))
        if any(row.has_model for row in measured):
            yield picture(
                f"{number}_times", "Times of every path", partial(chart.write_times, measured)
            )
        if any(row.delegation for row in measured):
            yield markdown(report.delegated(measured))
    yield "".join(f"- {line}\n" for line in report.remarks(each.rows))


def markdown(table: Table) -> str:
    """Return a table as Markdown."""
    out = io.StringIO()
    # So wide that nothing wraps.
    Console(file=out, width=500, color_system=None).print(table)
    lines = (line.rstrip() for line in out.getvalue().splitlines())
    return "".join(f"{line}\n" for line in lines if line)
