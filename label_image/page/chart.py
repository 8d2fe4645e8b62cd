# SPDX-License-Identifier: Apache-2.0
"""Times of nodes as the bars of one chart; widths are shares of the chart's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from label_image.page.facts import NodeRow, NodeTimes

MOST_ROWS = 80  # nodes of a chart; the table has all
_WIDEST = 76.0  # percent, which leaves room for a time
_LABEL, _BAR, _GAP = 15, 11, 7  # pixels


@dataclass(frozen=True, slots=True)
class Bar:
    """One time."""

    css: str  # "device" or "cpu"
    y: int
    percent: float
    text: str


@dataclass(frozen=True, slots=True)
class Group:
    """A node and its bars, a drawing of its own: pages may break between two."""

    label: str
    y: int  # of the label's base line
    height: int
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True)
class Chart:
    """All bars; sizes in pixels."""

    groups: Sequence[Group]
    bar: int  # a bar's height
    left_out: int  # nodes that are too short for the chart


def chart_of(times: NodeTimes) -> Chart | None:
    """Return the chart, nodes in order; None: no node has a time."""
    shown = [row for row in times.rows if row.device is not None or row.cpu is not None]
    longest = sorted(shown, key=_longest, reverse=True)[:MOST_ROWS]
    if not longest:
        return None
    widest = _longest(longest[0]) or 1.0
    groups = []
    for row in sorted(longest, key=lambda row: row.index):
        bars: list[Bar] = []
        for css, spent in (("device", row.device), ("cpu", row.cpu)):
            if spent is not None:
                top = _LABEL + len(bars) * _BAR
                bars.append(Bar(css, top, round(_WIDEST * spent / widest, 2), time_text(spent)))
        label = f"{row.index} {row.op} {row.shape}".rstrip()
        label += "" if row.home is None else f" (OpenCL: in {row.home})"
        groups.append(Group(label, _LABEL - 4, _LABEL + len(bars) * _BAR + _GAP, bars))
    return Chart(groups, _BAR - 1, len(shown) - len(longest))


def time_text(microseconds: float) -> str:
    """Return "1.24 ms" or "56.3 us"."""
    if microseconds >= 1000:
        return f"{microseconds / 1000:.2f} ms"
    return f"{microseconds:.1f} us"


def _longest(row: NodeRow) -> float:
    return max(row.device or 0.0, row.cpu or 0.0)
