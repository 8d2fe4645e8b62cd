# SPDX-License-Identifier: Apache-2.0
"""Reports -> tables in Markdown for the terminal, and the measured part of docs/performance.md.

The page has the rows. Series and layers are on the terminal and in --json. Prints nothing itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from rich import box
from rich.table import Table

from benchmarks import before, chart
from benchmarks.measure import PathTimes
from benchmarks.results import Figure, Layers, Report, RowResult, Series
from tflite_opencl.common.tables import render

T = TypeVar("T")
_BEGIN, _END = "<!-- measured: begin -->", "<!-- measured: end -->"
_PART = re.compile(f"{re.escape(_BEGIN)}\n.*?{re.escape(_END)}", re.DOTALL)
_WIDE = 500  # columns, so that nothing wraps


def tables(report: Report) -> Iterator[Table | str]:
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


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], words: Sequence[int]) -> Table:
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
    return _table(
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
    return _table(
        ("row", "before, ms", "now, ms", "now/before", "limit, ms", "of it multiply-adds",
         "limit/now"),
        (
            (row.row, *_earlier(row), f"{of.limit_ms:.3f}",
             f"{of.limit_of_work_ms / of.limit_ms:.0%}", f"{of.limit_ms / _own(row).min_ms:.2f}")
            for row in rows
            if (of := row.delegation) is not None and of.limit_ms
        ),
        words=(0,),
    )  # fmt: skip


def _own(row: RowResult) -> PathTimes:
    return next(iter(row.paths.values()))


def _earlier(row: RowResult) -> tuple[str, str, str]:
    now, then = _own(row).min_ms, row.paths.get(before.NAME)
    if then is None:
        return "", f"{now:.3f}", ""
    return f"{then.min_ms:.3f}", f"{now:.3f}", f"{now / then.min_ms:.2f}"


def delegated(rows: Sequence[RowResult]) -> Table:
    """Return what the delegate took of each model, and whether its outputs are right."""
    return _table(
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
    return _table(
        ("row", "figure", "measured", "limit", "aim", "verdict"),
        (
            ("" if number else row.row, figure.goal.what, *_judged(figure))
            for row in rows
            for number, figure in enumerate(row.figures)
        ),
        words=(0, 1, 5),
    )


def _judged(figure: Figure) -> Iterator[str]:
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
        if row.skipped:
            yield f"{row.row}: skipped: {row.skipped}"
        if row.failed:
            yield f"{row.row}: FAILED: {row.failed}"
        if row.exact and row.delegation is None:
            yield f"{row.row}: outputs {row.exact}"
        for note in row.notes:
            yield f"{row.row}: {note}"
    for peer, names in missing.items():
        yield f"without {peer} ({', '.join(names)})"


def points(series: Series) -> Table:
    """Return a series, a line of it in each row."""
    places = sorted({x for line in series.lines.values() for x, _ in line})
    lines = {name: dict(line) for name, line in series.lines.items()}
    return _table(
        (f"{series.y_label}, by {series.x_label}", *(f"{place:g}" for place in places)),
        (
            (name, *(f"{line[x]:.3f}" if x in line else "" for x in places))
            for name, line in lines.items()
        ),
        words=(0,),
    )


def by_node(layers: Layers) -> Table:
    """Return every node with its share of the time and its place under the roofline."""
    return _table(
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
    return _table(("op", *_SPENT), [*rows, total], words=(0,))


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


def write(reports: Sequence[Report], folder: Path) -> list[Path]:
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


def _sections(each: Report, stem: Path, pictures: list[Path]) -> Iterator[str]:
    """Yield the parts of a report's section; its pictures are drawn."""

    def picture(title: str, name: str, draw: Callable[[T, Path], None], of: T) -> str:
        pictures.append(path := stem.with_name(f"{stem.name}_{name}.svg"))
        draw(of, path)
        return f"![{title}]({path.name})\n"

    names = [each.machine[part] for part in ("GPU", "CPU") if part in each.machine]
    yield f"### {' and '.join(names)}\n"
    yield "".join(f"- {name}: {value}\n" for name, value in each.machine.items())
    measured = [row for row in each.rows if row.paths]
    if any(row.figures for row in each.rows):
        yield markdown(figures(each.rows))
        yield picture("Figures over their limits", "figures", chart.write_figures, each)
    if measured:
        yield markdown(times(measured))
        if any(row.has_model for row in measured):
            yield picture("Times of every path", "times", chart.write_times, measured)
        if any(row.delegation for row in measured):
            yield markdown(limits(measured))
            yield markdown(delegated(measured))
    yield "".join(f"- {line}\n" for line in remarks(each.rows))


def markdown(table: Table) -> str:
    """Return a table as Markdown."""
    return render(_WIDE, table).strip() + "\n"  # rich 15 puts lines of blanks around it
