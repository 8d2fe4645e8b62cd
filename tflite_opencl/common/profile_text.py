# SPDX-License-Identifier: Apache-2.0
"""A profile for people: a row a node, totals by op, and what the run's time is made of."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from rich import box
from rich.table import Table

from tflite_opencl.common.profile import RUNS, NodeTime, Profile
from tflite_opencl.common.tables import render

_WIDE = 140  # columns that all facts need


def profile_text(profile: Profile, width: int, by_time: bool = False) -> str:
    """Return the profile as tables; `by_time`: the longest node first, else in order.

    A narrow one leaves columns out, and says so.
    """
    rows = list(profile.rows)
    if by_time:
        rows.sort(key=lambda row: -row.microseconds)
    is_wide = width >= _WIDE
    parts = [_nodes(rows, profile, is_wide), _ops(profile), _whole(profile)]
    notes = []
    if not is_wide:
        notes.append(
            f"A terminal of {_WIDE} columns or a file gets shapes, sizes, gaps and bytes, too."
        )
    if not profile.has_timers:
        notes.append(
            "The device's timers do not count the work. So each launch ran by itself,\n"
            "and its time is the host's: its call and the wait are in it."
        )
    return "\n".join(["", render(width, *parts).strip("\n"), *notes])


def _nodes(rows: Sequence[NodeTime], profile: Profile, is_wide: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("node", justify="right", no_wrap=True)
    table.add_column("op", overflow="fold")
    if is_wide:
        table.add_column("shapes", overflow="fold")
    table.add_column("kernel (variant)", overflow="fold")
    wide = ("work-items", "us", "gap, us", "GMAC/s", "GB/s", "share")
    for heading in wide if is_wide else ("us", "GMAC/s", "share"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        products = (
            "" if row.multiply_adds is None else rate_words(row.multiply_adds, row.microseconds)
        )
        spent, share = f"{row.microseconds:.1f}", _share(row.microseconds, profile.kernels)
        name = f"{row.kernels} ({row.alternative})"
        if is_wide:
            gap = "" if row.gap is None else f"{row.gap:.1f}"
            rate = rate_words(row.bytes, row.microseconds)
            more = (row.shape, name, row.sizes, spent, gap, products, rate, share)
            table.add_row(str(row.node), row.op, *more)
        else:
            table.add_row(str(row.node), row.op, name, spent, products, share)
    return table


def _ops(profile: Profile) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("op")
    for heading in ("nodes", "us", "GMAC/s", "share"):
        table.add_column(heading, justify="right")
    spent: dict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()
    products: Counter[str] = Counter()
    for row in profile.rows:
        spent[row.op] += row.microseconds
        counts[row.op] += 1
        products[row.op] += row.multiply_adds or 0
    for op, microseconds in sorted(spent.items(), key=lambda item: -item[1]):
        table.add_row(
            op,
            str(counts[op]),
            f"{microseconds:.1f}",
            rate_words(products[op], microseconds) if products[op] else "",
            _share(microseconds, profile.kernels),
        )
    return table


def _whole(profile: Profile) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(f"the shortest of {RUNS} runs, its parts one after the other")
    for heading in ("us", "share"):
        table.add_column(heading, justify="right")
    sizes = {
        "upload": f", {profile.up_bytes} bytes",
        "download": f", {profile.down_bytes} bytes",
    }
    for name, microseconds in profile.parts:
        words = f"{name}{sizes.get(name, '')}"
        table.add_row(words, f"{microseconds:.1f}", _share(microseconds, profile.wall))
    table.add_row("all of it", f"{profile.wall:.1f}", _share(profile.wall, profile.wall))
    words = f"{profile.launches} launches are put into the queue within"
    table.add_row(words, f"{profile.in_queue:.1f}", "")
    return table


def rate_words(count: int, microseconds: float) -> str:
    """Return thousands of millions a second to three digits, in no powers of ten; "" of no time."""
    if microseconds <= 0:
        return ""
    rate = count / microseconds / 1e3
    return f"{rate:.3g}" if rate < 999.5 else f"{rate:.0f}"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole > 0 else ""
