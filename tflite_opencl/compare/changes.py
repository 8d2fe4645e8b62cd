# SPDX-License-Identifier: Apache-2.0
"""Two comparisons of the same paths -> what changed, and whether that can be told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich import box
from rich.table import Table

from tflite_opencl.common.tables import render
from tflite_opencl.compare.records import ModelResult, PathResult, Report


@dataclass(frozen=True, slots=True)
class Change:
    """One path of one model, before and now."""

    model: str
    path: str
    old_ms: float  # medians
    new_ms: float
    spread: float  # the larger of the two, as a part of the median

    @property
    def part(self) -> float:
        """Return the change as a part of the old median: -0.2 is a fifth less."""
        return self.new_ms / self.old_ms - 1

    @property
    def is_told(self) -> bool:
        """Whether the change is larger than the spread."""
        return abs(self.part) > self.spread


def changes_text(old: Report, new: Report, width: int) -> str:
    """Return a table of medians, and a line for whatever else is different."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("model", "path"):
        table.add_column(name, overflow="fold")
    for name in ("before, ms", "now, ms", "change", "spread"):
        table.add_column(name, justify="right")
    lines: list[str] = []
    for before, now, path_before, path_now in _pairs(old, new):
        lines += _other_changes(before, now, path_before, path_now)
        change = change_of(now.model, path_before, path_now)
        if change is None:
            continue
        table.add_row(
            change.model, change.path, f"{change.old_ms:.4g}", f"{change.new_ms:.4g}",
            f"{change.part:+.1%}", f"{change.spread:.1%}",
        )  # fmt: skip
        if not change.is_told:
            lines.append(
                f"WARNING: {change.model}, {change.path}: the spread of the runs is larger than "
                "the change: nothing can be told"
            )
    for name in sorted({*old.machine, *new.machine}):
        if old.machine.get(name) != new.machine.get(name):
            lines.append(f"{name}: {old.machine.get(name)} before, {new.machine.get(name)} now")
    if not table.rows:
        lines.insert(0, "WARNING: no path was timed both before and now")
        return "\n".join(lines)
    return "\n".join([render(width, table), *lines])


def change_of(model: str, before: PathResult, now: PathResult) -> Change | None:
    """Return the change of a path; None: it was not timed both times."""
    old, new = before.timing, now.timing
    if old is None or new is None or not old.median_ms:
        return None
    spread = max(old.spread, new.spread)
    return Change(model, now.path, old.median_ms, new.median_ms, spread)


def _pairs(
    old: Report, new: Report
) -> Iterator[tuple[ModelResult, ModelResult, PathResult, PathResult]]:
    for now in new.models:
        for before in old.models:
            if before.model != now.model:
                continue
            known = {result.path: result for result in before.paths}
            for result in now.paths:
                if result.path in known:
                    yield before, now, known[result.path], result


def _other_changes(
    before: ModelResult, now: ModelResult, old: PathResult, new: PathResult
) -> list[str]:
    where = f"{now.model}, {new.path}"
    lines = []
    if before.digest != now.digest:
        lines.append(f"WARNING: {where}: the model's file is another one")
    if before.input != now.input:
        lines.append(f"WARNING: {where}: the input was {before.input}, and is {now.input}")
    for name, was, is_ in (
        ("the result", old.failure or "there", new.failure or "there"),
        ("the device", old.device, new.device),
        ("nodes taken", old.taken, new.taken),
        ("top result", old.top, new.top),
        ("quanta off the reference", old.quanta, new.quanta),
    ):
        if was != is_:
            lines.append(f"{where}: {name}: {was} before, {is_} now")
    return lines
