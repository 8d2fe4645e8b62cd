# SPDX-License-Identifier: Apache-2.0
"""rich's tables as plain text of a width."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table

_NARROW = 60  # columns below which a value stands under its name


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


def pairs(rows: Sequence[tuple[str, str]], width: int) -> Table:
    """Return names with their values beside them, or below them where there is no place."""
    return _narrow(rows) if width < _NARROW else _wide(rows)


def _wide(rows: Sequence[tuple[str, str]]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    return table


def _narrow(rows: Sequence[tuple[str, str]]) -> Table:
    """Return the rows with each value below its name: beside it there is no place."""
    table = Table(box=None, show_header=False, padding=(0, 0, 0, 2))
    table.add_column(overflow="fold")
    for name, value in rows:
        if name:
            table.add_row(name)
        table.add_row(Padding(value, (0, 0, 0, 2)))
    return table
