# SPDX-License-Identifier: Apache-2.0
"""Reports -> tables in Markdown, for the terminal and for the page. Prints nothing itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich import box
from rich.table import Table

from benchmarks import before
from benchmarks.measure import PathTimes
from benchmarks.results import BenchmarkReport, Figure, Layers, RowResult, Sweep
from tflite_opencl.console.tables import render

_WIDE = 500  # columns, so that nothing wraps


def tables(report: BenchmarkReport) -> Iterator[Table | str]:
    """Yield everything measured, as tables and lines of text."""
    measured = [row for row in report.rows if row.paths]
    if measured:
        yield times(measured)
    if any(row.delegation for row in measured):
        yield limits(measured)
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
        yield by_node(layers)
        yield (
            f"Roofline: {layers.peak_multiply_adds / 1e9:.0f} Gmultiply-adds/s and "
            f"{layers.peak_bytes / 1e9:.0f} GB/s, {layers.peak_source}."
        )


def as_table(headings: Sequence[str], rows: Iterable[Sequence[str]], words: Sequence[int]) -> Table:
    """Return a table in Markdown; `words`: the columns that are no numbers."""
    table = Table(box=box.MARKDOWN)
    for number, heading in enumerate(headings):
        is_word = number in words
        table.add_column(heading, justify="left" if is_word else "right", no_wrap=number == 0)
    for row in rows:
        table.add_row(*row)
    return table


def times(rows: Sequence[RowResult]) -> Table:
    """Return what every path took, and our time over it."""
    return as_table(
        ("row", "path", "runs", "minimum, ms", "median, ms", "ours/it, minima", "medians",
         "quartiles"),
        (
            ("" if number else row.row, path, str(spent.runs), f"{spent.min_ms:.3f}",
             f"{spent.median_ms:.3f}", f"{spent.ratio:.2f}", f"{spent.ratio_of_medians:.2f}",
             "{:.2f} to {:.2f}".format(*spent.ratio_quartiles))
            for row in rows
            for number, (path, spent) in enumerate(row.paths.items())
        ),
        words=(0, 1),
    )  # fmt: skip


def limits(rows: Sequence[RowResult]) -> Table:
    """Return before, now and the least time that the machine's own rates allow, of each model."""
    return as_table(
        ("row", "before, ms", "now, ms", "now/before", "limit, ms", "of it multiply-adds",
         "limit/now"),
        (
            (row.row, *_earlier(row), f"{of.limit_ms:.3f}",
             f"{of.limit_of_work_ms / of.limit_ms:.0%}",
             f"{of.limit_ms / own_times(row).min_ms:.2f}")
            for row in rows
            if (of := row.delegation) is not None and of.limit_ms
        ),
        words=(0,),
    )  # fmt: skip


def own_times(row: RowResult) -> PathTimes:
    """Return the times of the delegate."""
    return next(iter(row.paths.values()))


def _earlier(row: RowResult) -> tuple[str, str, str]:
    now, then = own_times(row).min_ms, row.paths.get(before.NAME)
    if then is None:
        return "", f"{now:.3f}", ""
    return f"{then.min_ms:.3f}", f"{now:.3f}", f"{now / then.min_ms:.2f}"


def delegated(rows: Sequence[RowResult]) -> Table:
    """Return what the delegate took of each model, and whether its outputs are right."""
    return as_table(
        ("row", "nodes", "partitions", "launches", "bytes up", "bytes down", "outputs"),
        (
            (row.row, f"{of.delegated} of {of.nodes}", str(of.partitions), str(of.launches),
             str(of.up_bytes), str(of.down_bytes), row.exact)
            for row in rows
            if (of := row.delegation) is not None
        ),
        words=(0, 6),
    )  # fmt: skip


def figures(rows: Sequence[RowResult]) -> Table:
    """Return each figure with its limit and its aim."""
    return as_table(
        ("row", "figure", "measured", "limit", "aim", "verdict"),
        (
            ("" if number else row.row, figure.goal.what, *figure_columns(figure))
            for row in rows
            for number, figure in enumerate(row.figures)
        ),
        words=(0, 1, 5),
    )


def figure_columns(figure: Figure) -> Iterator[str]:
    """Yield a figure, its limit, its aim and its verdict."""
    goal = figure.goal
    unit = f" {goal.unit}" if goal.unit else ""
    yield figure.text
    yield f"{'at least ' if goal.is_least else ''}{goal.limit:,g}{unit}"
    yield "" if goal.aim is None else f"{goal.aim:,g}{unit}"
    yield f"{figure.verdict}: {figure.not_judged}" if figure.not_judged else figure.verdict


def remarks(rows: Sequence[RowResult]) -> Iterator[str]:
    """Yield a line for each row that was not measured, each note and each peer that is missing."""
    devices: dict[str, list[str]] = {}
    missing: dict[str, list[str]] = {}
    for row in rows:
        if row.device:
            devices.setdefault(row.device, []).append(row.row)
        for peer, reason in row.missing.items():
            missing.setdefault(f"{peer}: {reason}", []).append(row.row)
    for device, names in devices.items():
        yield f"on {device}: {', '.join(names)}"
    for row in rows:
        if row.exact and row.delegation is None:
            yield f"{row.row}: outputs {row.exact}"
        yield from row_notes(row)
    for peer, names in missing.items():
        yield f"without {peer} ({', '.join(names)})"


def row_notes(row: RowResult) -> Iterator[str]:
    """Yield why a row was not measured, and its notes."""
    if row.skipped:
        yield f"{row.row}: skipped: {row.skipped}"
    if row.failed:
        yield f"{row.row}: FAILED: {row.failed}"
    for note in row.notes:
        yield f"{row.row}: {note}"


def points(series: Sweep) -> Table:
    """Return a series, a line of it in each row."""
    places = sorted({x for line in series.lines.values() for x, _ in line})
    lines = {name: dict(line) for name, line in series.lines.items()}
    return as_table(
        (f"{series.y_label}, by {series.x_label}", *(f"{place:g}" for place in places)),
        (
            (name, *(f"{line[x]:.3f}" if x in line else "" for x in places))
            for name, line in lines.items()
        ),
        words=(0,),
    )


def by_node(layers: Layers) -> Table:
    """Return every node with its share of the time and its place under the roofline."""
    return as_table(
        ("node", "op", "output", "kernel", *_SPENT, "of roofline"),
        (
            (str(layer.node), layer.op, layer.shape, layer.alternative,
             *_spent(layers, layer.microseconds, layer.multiply_adds, layer.bytes_moved),
             f"{layers.roofline_fraction(layer):.0%}")
            for layer in layers.layers
        ),
        words=(0, 1, 2, 3),
    )  # fmt: skip


def by_op(layers: Layers) -> Table:
    """Return the sums of each op's nodes."""
    rows = [(op, *_spent(layers, *sums)) for op, sums in summary(layers).items()]
    total = ("all", f"{layers.total_us:.1f}", "100%", "", "")
    return as_table(("op", *_SPENT), [*rows, total], words=(0,))


def summary(layers: Layers) -> Mapping[str, tuple[float, int, int]]:
    """Return microseconds, multiply-adds and bytes of each op, the longest first."""
    ops: dict[str, tuple[float, int, int]] = {}
    for layer in layers.layers:
        time, work, moved = ops.get(layer.op, (0.0, 0, 0))
        ops[layer.op] = (
            time + layer.microseconds, work + layer.multiply_adds, moved + layer.bytes_moved
        )  # fmt: skip
    return dict(sorted(ops.items(), key=lambda entry: -entry[1][0]))


_SPENT = ("us", "share", "Gmultiply-adds/s", "GB/s")


def _spent(layers: Layers, microseconds: float, work: int, moved: int) -> Sequence[str]:
    return (
        f"{microseconds:.1f}",
        f"{microseconds / layers.total_us:.1%}",
        f"{work / microseconds / 1e3:.0f}" if work else "",
        f"{moved / microseconds / 1e3:.1f}",
    )


def markdown(table: Table) -> str:
    """Return a table as Markdown."""
    return render(_WIDE, table).strip() + "\n"  # rich 15 puts lines of blanks around it
