# SPDX-License-Identifier: Apache-2.0
"""Renders rich's tables as plain text of a given width, and writes tables as CSV."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table

NONE = "-"  # an empty cell
_WIDTH = 100  # without a terminal
_LONGEST, _NARROW = 26, 60  # longest name with its value beside it; columns that needs


def terminal_width() -> int:
    """Return the number of columns for text output."""
    return shutil.get_terminal_size((_WIDTH, 24)).columns


def render(width: int, *parts: RenderableType) -> str:
    """Return tables as plain text."""
    console = Console(
        file=io.StringIO(), width=width, color_system=None, markup=False, highlight=False,
        emoji=False, legacy_windows=False, force_terminal=False,
    )  # fmt: skip
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().strip("\n").splitlines())


def columns(headings: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> Table:
    """Return a table with a rule below its head; `left`: text columns, before the numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def table_text(
    width: int, head: str, names: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]
) -> str:
    """Return a table of these columns, without empty rows."""
    kept = [(name, *cells) for name, cells in rows if any(cell != NONE for cell in cells)]
    return render(width, columns((head, *names), kept, left=1)).strip("\n")


def markdown_table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(map(_line, [names, ["---"] * len(names), *rows]))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def csv_text(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return these columns of rows as CSV with a header line; None is empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().rstrip("\n")


def pairs(rows: Sequence[tuple[str, str]], width: int) -> Group:
    """Return names with their values beside them, or below if the name is too long."""
    most = _LONGEST if width >= _NARROW else 0
    column = max((len(name) for name, _ in rows if len(name) <= most), default=0)
    parts: list[RenderableType] = []
    for name, value in rows:
        if len(name) <= column:
            table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
            table.add_column(no_wrap=True, min_width=column)
            table.add_column(overflow="fold")
            table.add_row(name, value)
            parts.append(table)
        else:
            parts += [Padding(name, (0, 0, 0, 2)), Padding(value, (0, 0, 0, 4))]
    return Group(*parts)
