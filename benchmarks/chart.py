# SPDX-License-Identifier: Apache-2.0
"""Reports -> pictures: legible on light and on dark paper, so the background is left out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import imported
from benchmarks.results import BenchmarkReport, RowResult

_INK = "#808080"  # of equal contrast on white and on near-black
_COLOURS = (
    "#3b82c4", "#d9772b", "#3a9d62", "#b15fb8", "#c4a000", "#8a8a8a", "#c94f4f", "#4fb0b0",
    "#8c6d46", "#e38fb4", "#6a6fd0", "#9bbf4a",
)  # fmt: skip
_VERDICTS = {
    "aim reached": "#3a9d62", "reached": "#3b82c4", "missed": "#c94f4f", "not judged": "#8a8a8a",
}  # fmt: skip
_WIDEST = 2.0  # of a figure over its limit; beyond, the bar is cut
_STYLE = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor"), _INK),
    **dict.fromkeys(("xtick.color", "ytick.color", "grid.color"), _INK),
    "grid.alpha": 0.3,
    "font.size": 9,
    "svg.hashsalt": "tflite-opencl",  # equal figures give equal files
}


def write_report(report: BenchmarkReport, path: str | Path) -> None:
    """Draw the figures against their limits, or the times where no row has a figure.

    Raises: Skipped: matplotlib is not there. OSError, ValueError: the file cannot be written.
    """
    if any(row.figures for row in report.rows):
        write_figures(report, path)
    else:
        write_times(report.rows, path)


def write_figures(report: BenchmarkReport, path: str | Path) -> None:
    """Draw each figure over its limit: up to 1 it is reached. Raises: as write_report."""
    entries = [(row, figure) for row in report.rows for figure in row.figures]
    with _page(path, len(entries) * 0.34 + 1.3) as axes:
        labels = []
        for place, (row, figure) in enumerate(entries):
            goal = figure.goal
            share, aim = figure.value / goal.limit, (goal.aim or goal.limit) / goal.limit
            if goal.is_least:
                share, aim = 1 / share if share else 0.0, 1 / aim
            axes.barh(place, max(share, 0.0), 0.6, color=_VERDICTS[figure.verdict])
            if goal.aim is not None:
                axes.plot([aim, aim], [place - 0.42, place + 0.42], color=_INK, linewidth=2)
            beside = {"va": "center", "transform": axes.get_yaxis_transform()}
            axes.text(1.01, place, figure.text, fontsize=8, **beside)
            labels.append(f"{row.row}\n{goal.what}")
        axes.axvline(1, color=_INK, linewidth=1.4, linestyle="--")
        axes.set_yticks(range(len(labels)), labels, fontsize=7)
        axes.set_xlim(0, _WIDEST)
        axes.set_xlabel("figure over its limit (dashed); tick: the aim; at the right: the figure")
        axes.invert_yaxis()
        _legend(axes, _VERDICTS)


def write_times(rows: Sequence[RowResult], path: str | Path) -> None:
    """Draw the minimum of every path of a model, and its median as a whisker.

    Raises: as write_report.
    """
    rows = [row for row in rows if row.has_model]
    names = dict.fromkeys(name for row in rows for name in row.paths)
    colours = dict(zip(names, itertools.cycle(_COLOURS), strict=False))
    height = sum(len(row.paths) for row in rows) * 0.22 + len(rows) * 0.2 + 1
    with _page(path, height) as axes:
        place, ticks, labels = 0.0, [], []
        for row in rows:
            first = place
            for name, times in row.paths.items():
                whisker = [[0], [max(0.0, times.median_ms - times.min_ms)]]
                bar = {"color": colours[name], "xerr": whisker, "ecolor": _INK}
                axes.barh(place, times.min_ms, 0.8, **bar)
                axes.text(times.median_ms * 1.05, place, f"{times.min_ms:.3g}", va="center",
                          fontsize=7)  # fmt: skip
                place += 1
            ticks.append((first + place - 1) / 2)
            labels.append(row.row)
            place += 0.8
        axes.set_xscale("log")
        axes.margins(x=0.08, y=0.01)
        ticker = imported("matplotlib.ticker", "matplotlib")
        axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 3)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_locator(ticker.NullLocator())
        axes.set_yticks(ticks, labels)
        axes.set_xlabel("minimum, ms; whisker: median")
        axes.invert_yaxis()
        _legend(axes, colours)


def _legend(axes: Any, colours: Mapping[str, str]) -> None:
    patch = imported("matplotlib.patches").Patch
    handles = [patch(color=colour, label=name) for name, colour in colours.items()]
    place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": min(4, len(handles))}
    axes.legend(handles=handles, frameon=False, fontsize=8, **place)


@contextmanager
def _page(path: str | Path, height: float) -> Iterator[Any]:
    """Give axes to draw on; the file is written at the end, unless something was raised."""
    matplotlib, figures = imported("matplotlib"), imported("matplotlib.figure", "matplotlib")
    with matplotlib.rc_context(_STYLE):
        figure = figures.Figure(figsize=(7.5, height), layout="constrained")
        axes = figure.add_subplot()
        axes.set_facecolor("none")
        axes.spines[["top", "right"]].set_visible(False)
        yield axes
        # A date would make files differ between runs.
        metadata = {"Date": None} if Path(path).suffix == ".svg" else None
        figure.savefig(path, dpi=110, transparent=True, metadata=metadata)
