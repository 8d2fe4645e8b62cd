# SPDX-License-Identifier: Apache-2.0
"""The rows of `tflite-opencl kernels` and their comparison, for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from tflite_opencl.common.tables import render
from tflite_opencl.compilers.rows import FIGURES, Comparison, Row

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
    names = [
        name if row.is_built else f"{name}\n  NOT BUILT: {row.built}"
        for row, name in zip(rows, _names(rows), strict=True)
    ]
    columns = {"runs": [str(r.launches) for r in rows], "first": [str(r.expected) for r in rows]}
    for figure, (heading, _) in FIGURES.items():
        columns[heading] = [_text(getattr(row, figure)) for row in rows]
    columns["spills"] = ["" if r.spills is None else f"{r.spills}:{r.fills}" for r in rows]
    columns["s"] = ["" if row.seconds is None else f"{row.seconds:.2f}" for row in rows]
    # A column that is empty in every row is left out, and fills have none of their own.
    kept = {heading: cells for heading, cells in columns.items() if heading and any(cells)}
    for heading in kept:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in zip(names, *kept.values(), strict=True):
        table.add_row(*row)
    return render(width, table, _LEGEND, _total(rows))


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
    changes = found.changes
    for old, new, better, worse in changes:
        for words, names in (("better", better), ("WORSE", worse)):
            figures = (f"{n} {_text(getattr(old, n))} -> {_text(getattr(new, n))}" for n in names)
            if names:
                lines.append(f"{words}: {new.name} [{new.macros}]: {', '.join(figures)}")
    for words, rows in (("new", found.added), ("gone", found.gone)):
        lines += [f"{words}: {row.name} [{row.macros}]" for row in rows]
    lines.append(
        f"kernels: {sum(bool(better) for _, _, better, _ in changes)} better, "
        f"{sum(bool(worse) for *_, worse in changes)} worse, {len(found.added)} new, "
        f"{len(found.gone)} gone"
    )
    for column, before, now in found.totals:
        if before != now:
            share = f" ({(now - before) / before:+.1%})" if before else ""
            lines.append(f"total {column}: {_text(before)} -> {_text(now)}{share}")
    lines += [f"BROKEN: {row.name}: {_why(row)}" for row in found.broken]
    return "\n".join(lines)


def _why(row: Row) -> str:
    return f"{row.spills} spills, {row.fills} fills" if row.is_built else row.built


def _text(value: float | str | None) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
