# SPDX-License-Identifier: Apache-2.0
"""Formats a profile: one row per node, totals by op, and the breakdown of the run's time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.table import Table

from tflite_opencl.console.tables import columns, render
from tflite_opencl.timing.profile import RUNS, NodeTime, Profile

_WIDE = 140  # columns needed for all facts
_MOST_KERNELS = 8  # of a node, listed by name
_IF_WIDE = ("shapes", "work-items", "gap, us", "GB/s")


def profile_text(profile: Profile, width: int, by_time: bool = False) -> str:
    """Return the profile as tables; `by_time`: slowest node first, else in graph order.

    A narrow table omits columns, and says so.
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
    found = [
        {
            "node": f"{row.node:>4}",
            "op": row.op,
            "shapes": row.shape,
            "kernel (variant)": f"{_counted(row.kernels)} ({row.alternative})",
            "work-items": row.sizes,
            "us": f"{row.microseconds:.1f}",
            "gap, us": "" if row.gap is None else f"{row.gap:.1f}",
            "GMAC/s": _rate(row.multiply_adds, row.microseconds),
            "GB/s": rate_words(row.bytes, row.microseconds),
            "share": _share(row.microseconds, profile.kernels),
        }
        for row in rows
    ]
    shown = [name for name in found[0] if is_wide or name not in _IF_WIDE]
    left = shown.index("kernel (variant)") + 1
    return columns(shown, ([row[name] for name in shown] for row in found), left)


def _counted(kernels: str) -> str:
    """Return the names of kernels; long lists, as of a loop, as names with counts."""
    names = kernels.split(", ")
    if len(names) <= _MOST_KERNELS:
        return kernels
    return ", ".join(f"{count} x {name}" for name, count in Counter(names).items())


def _ops(profile: Profile) -> Table:
    of_op: dict[str, list[NodeTime]] = {}
    for row in profile.rows:
        of_op.setdefault(row.op, []).append(row)
    sums = [
        (op, len(rows), sum(r.microseconds for r in rows), sum(r.multiply_adds or 0 for r in rows))
        for op, rows in of_op.items()
    ]
    shown = [
        (op, str(count), f"{us:.1f}", _rate(products, us), _share(us, profile.kernels))
        for op, count, us, products in sorted(sums, key=lambda each: -each[2])
    ]
    return columns(("op", "nodes", "us", "GMAC/s", "share"), shown, left=1)


def _whole(profile: Profile) -> Table:
    sizes = {"upload": profile.up_bytes, "download": profile.down_bytes}
    rows = [
        (f"{name}, {sizes[name]} bytes" if name in sizes else name, spent)
        for name, spent in (*profile.parts, ("all of it", profile.wall))
    ]
    shown = [(name, f"{spent:.1f}", _share(spent, profile.wall)) for name, spent in rows]
    words = f"{profile.launches} launches are put into the queue within"
    shown.append((words, f"{profile.in_queue:.1f}", ""))
    of = f"the shortest of {RUNS} runs, its parts one after the other"
    return columns((of, "us", "share"), shown, left=1)


def _rate(count: int | None, microseconds: float) -> str:
    return rate_words(count, microseconds) if count else ""


def rate_words(count: int, microseconds: float) -> str:
    """Return giga-units per second with three digits, without exponents; "" if the time is 0."""
    if microseconds <= 0:
        return ""
    rate = count / microseconds / 1e3
    return f"{rate:.3g}" if rate < 999.5 else f"{rate:.0f}"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole > 0 else ""
