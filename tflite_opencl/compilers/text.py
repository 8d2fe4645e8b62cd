# SPDX-License-Identifier: Apache-2.0
"""The rows of `tflite-opencl kernels` and their comparison, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from tflite_opencl.compilers.rows import COMPARED, Comparison, Row

# Heading -> the column's text; one that is empty in every row is left out.
_COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("group", lambda row: _text(row.group_limit)),
    ("private", lambda row: _text(row.private_bytes)),
    ("local", lambda row: _text(row.local_bytes)),
    ("regs", lambda row: _text(row.registers)),
    ("instr", lambda row: _text(row.instructions)),
    ("spills", lambda row: "" if row.spills is None else f"{row.spills}:{row.fills}"),
    ("threads", lambda row: _text(row.threads)),
    ("cycles", lambda row: _text(row.cycles)),
    ("arith", lambda row: _text(row.arithmetic_cycles)),
    ("mem", lambda row: _text(row.memory_cycles)),
    ("/mad", lambda row: _text(row.loop_instructions)),
    ("s", lambda row: "" if row.seconds is None else f"{row.seconds:.2f}"),
)
_LEGEND = (
    "runs: launches a run, where every node that may launch the kernel does; first: those that are "
    "expected to be the fastest. group: work-items a work-group may have; private, local: bytes. "
    "spills: stores and loads of values that found no register. /mad: instructions of the hot loop "
    "a multiply-add. literal: with one layer's numbers as literals, which later starts may take."
)


def table_text(rows: Sequence[Row], width: int) -> str:
    """Return the rows as a table with a legend and a total."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("kernel (variant)", overflow="fold")
    for heading in ("runs", "first"):
        table.add_column(heading, justify="right", no_wrap=True)
    columns = [(heading, text) for heading, text in _COLUMNS if any(text(row) for row in rows)]
    for heading, _ in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    names = _names(rows)
    for row, name in zip(rows, names, strict=True):
        words = name if row.is_built else f"{name}\n  NOT BUILT: {row.built}"
        numbers = [text(row) for _, text in columns]
        table.add_row(words, str(row.launches), str(row.expected), *numbers)
    console = Console(width=width, color_system=None, highlight=False, emoji=False, markup=False)
    with console.capture() as captured:
        console.print(table)
        console.print(_LEGEND)
        console.print(_total(rows))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _names(rows: Sequence[Row]) -> list[str]:
    """Return the kernels' names, with the macros by which those of one name differ."""
    same: dict[tuple[str, str], list[set[str]]] = {}
    for row in rows:
        same.setdefault((row.kernel, row.variant), []).append({*row.macros.split()})
    names = []
    for row in rows:
        sets = same[row.kernel, row.variant]
        common = set.intersection(*sets)
        own = [macro for macro in row.macros.split() if macro not in common]
        names.append(f"{row.kernel} ({', '.join((row.variant, *own))})")
    return names


def _total(rows: Sequence[Row]) -> str:
    built = sum(row.is_built for row in rows)
    text = f"{len(rows)} kernels, {built} built"
    if any(row.spills is not None for row in rows):
        spilling = [row for row in rows if row.scratch]
        text += (
            f"; {len(spilling)} keep values in memory, and {sum(r.expected for r in spilling)} of "
            f"the {sum(row.expected for row in rows)} launches expected run one of these"
        )
    return f"{text}."


def comparison_text(found: Comparison) -> str:
    """Return what got better and worse, kernel by kernel, and the totals."""
    lines = []
    for change in found.changes:
        name = f"{change.new.device} {change.new.kernel} ({change.new.variant})"
        for words, columns in (("better", change.better), ("WORSE", change.worse)):
            figures = [_figure(column, change.old, change.new) for column in columns]
            if figures:
                lines.append(f"{words}: {name} [{change.new.macros}]: {', '.join(figures)}")
    for words, rows in (("new", found.added), ("gone", found.gone)):
        lines += [f"{words}: {r.device} {r.kernel} ({r.variant}) [{r.macros}]" for r in rows]
    counts = Counter("better" for each in found.changes if each.better)
    counts += Counter("worse" for each in found.changes if each.worse)
    lines.append(
        f"kernels: {counts['better']} better, {counts['worse']} worse, {len(found.added)} new, "
        f"{len(found.gone)} gone"
    )
    for column, old, new in found.totals:
        if old != new:
            share = f" ({(new - old) / old:+.1%})" if old else ""
            lines.append(f"total {column}: {_text(old)} -> {_text(new)}{share}")
    lines += [f"BROKEN: {r.device} {r.kernel} ({r.variant}): {_why(r)}" for r in found.broken]
    return "\n".join(lines)


def _figure(column: str, old: Row, new: Row) -> str:
    if column not in COMPARED:
        return f"{column} {getattr(old, column)} -> {getattr(new, column)}"
    return f"{column} {_text(getattr(old, column))} -> {_text(getattr(new, column))}"


def _why(row: Row) -> str:
    return f"{row.spills} spills, {row.fills} fills" if row.is_built else row.built


def _text(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.4g}"
