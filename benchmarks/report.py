# SPDX-License-Identifier: Apache-2.0
"""Reports -> tables in Markdown, for the terminal and for docs. Prints nothing itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.table import Table

from benchmarks.layers import summary
from benchmarks.results import Figure, Layers, Report, RowResult, Series


def tables(report: Report) -> Iterator[Table | str]:
    """Yield everything measured, as tables and lines of text."""
    measured = [row for row in report.rows if row.paths]
    if measured:
        yield times(measured)
    if any(row.delegation for row in measured):
        yield delegated(measured)
    if any(row.figures for row in report.rows):
        yield figures(report.rows)
    yield from remarks(report.rows)
    for series in report.series:
        yield f"{series.title}: {'; '.join(series.notes)}"
        if series.lines:
            yield points(series)
    for layers in report.layers:
        yield f"{layers.model} on {layers.device}"
        yield by_op(layers)
        yield by_launch(layers)
        yield roof(layers)


def _table(*headings: str, left: int = 1) -> Table:
    table = Table(box=box.MARKDOWN)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < left else "right", no_wrap=number == 0)
    return table


def times(rows: Sequence[RowResult]) -> Table:
    """Return what every path took, and our time over it."""
    table = _table(
        "row", "path", "runs", "minimum, ms", "median, ms", "ours/it, minima", "medians",
        "quartiles", left=2,
    )  # fmt: skip
    for row in rows:
        for number, (path, spent) in enumerate(row.paths.items()):
            table.add_row(
                "" if number else row.row,
                path,
                str(spent.runs),
                f"{spent.min_ms:.3f}",
                f"{spent.median_ms:.3f}",
                f"{spent.ratio:.2f}",
                f"{spent.ratio_of_medians:.2f}",
                "{:.2f} to {:.2f}".format(*spent.ratio_quartiles),
            )
    return table


def delegated(rows: Sequence[RowResult]) -> Table:
    """Return what the delegate took of each model, and whether its outputs are right."""
    table = _table("row", "nodes", "partitions", "launches", "bytes up", "bytes down", "outputs")
    table.columns[-1].justify = "left"
    for row in rows:
        if (taken := row.delegation) is not None:
            table.add_row(
                row.row,
                f"{taken.delegated} of {taken.nodes}",
                str(taken.partitions),
                str(taken.launches),
                str(taken.up_bytes),
                str(taken.down_bytes),
                row.exact,
            )
    return table


def figures(rows: Sequence[RowResult]) -> Table:
    """Return each figure with its limit and its aim."""
    table = _table("row", "figure", "measured", "limit", "aim", "verdict", left=2)
    table.columns[-1].justify = "left"
    for row in rows:
        for number, figure in enumerate(row.figures):
            table.add_row("" if number else row.row, figure.goal.what, *_judged(figure))
    return table


def _judged(figure: Figure) -> Iterator[str]:
    goal = figure.goal
    unit = f" {goal.unit}" if goal.unit else ""
    sign = "at least " if goal.is_least else ""
    yield figure.text
    yield f"{sign}{goal.limit:,g}{unit}"
    yield "" if goal.aim is None else f"{goal.aim:,g}{unit}"
    yield f"{figure.verdict}: {figure.not_judged}" if figure.not_judged else figure.verdict


def remarks(rows: Sequence[RowResult]) -> Iterator[str]:
    """Yield a line for each row that was not measured, each note and each peer that is missing."""
    devices: dict[str, list[str]] = {}
    for row in rows:
        if row.device:
            devices.setdefault(row.device, []).append(row.row)
    for device, names in devices.items():
        yield f"on {device}: {', '.join(names)}"
    for row in rows:
        if row.skipped:
            yield f"{row.row}: skipped: {row.skipped}"
        if row.failed:
            yield f"{row.row}: FAILED: {row.failed}"
        if row.exact and row.delegation is None:
            yield f"{row.row}: outputs {row.exact}"
        for note in row.notes:
            yield f"{row.row}: {note}"
    missing: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for peer, reason in row.missing.items():
            missing.setdefault((peer, reason), []).append(row.row)
    for (peer, reason), names in missing.items():
        yield f"without {peer}: {reason} ({', '.join(names)})"


def points(series: Series) -> Table:
    """Return a series, a line of it in each row."""
    places = sorted({x for line in series.lines.values() for x, _ in line})
    heading = f"{series.y_label}, by {series.x_label}"
    table = _table(heading, *(f"{place:g}" for place in places))
    for name, line in series.lines.items():
        values = dict(line)
        table.add_row(name, *(f"{values[x]:.3f}" if x in values else "" for x in places))
    return table


def by_launch(layers: Layers) -> Table:
    """Return every launch with its share of the time and its place under the roofline."""
    table = _table(
        "node", "op", "output", "kernel", "us", "share", "Gmultiply-adds/s", "GB/s", "of roofline",
    )  # fmt: skip
    for column in table.columns[1:4]:
        column.justify = "left"
    for layer in layers.layers:
        table.add_row(
            str(layer.node),
            layer.op,
            layer.shape,
            layer.alternative,
            f"{layer.microseconds:.1f}",
            f"{layer.microseconds / layers.total_us:.1%}",
            *_rates(layer.microseconds, layer.multiply_adds, layer.bytes_moved),
            f"{layers.roofline_fraction(layer):.0%}",
        )
    return table


def by_op(layers: Layers) -> Table:
    """Return the sums of each op's launches."""
    table = _table("op", "us", "share", "Gmultiply-adds/s", "GB/s")
    for op, microseconds, work, moved in summary(layers):
        table.add_row(
            op,
            f"{microseconds:.1f}",
            f"{microseconds / layers.total_us:.1%}",
            *_rates(microseconds, work, moved),
        )
    table.add_row("all", f"{layers.total_us:.1f}", "100%", "", "")
    return table


def roof(layers: Layers) -> str:
    """Return the two peaks in words."""
    return (
        f"Roofline: {layers.peak_multiply_adds / 1e9:.0f} Gmultiply-adds/s and "
        f"{layers.peak_bytes / 1e9:.0f} GB/s, {layers.peak_source}."
    )


def _rates(microseconds: float, work: int, moved: int) -> tuple[str, str]:
    return (
        f"{work / microseconds / 1e3:.0f}" if work else "",
        f"{moved / microseconds / 1e3:.1f}",
    )
