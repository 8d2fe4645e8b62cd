# SPDX-License-Identifier: Apache-2.0
"""Two comparisons of the same paths -> what changed, and whether that can be told."""

from __future__ import annotations

from collections.abc import Iterator

from tflite_opencl.common.tables import columns, render
from tflite_opencl.compare.records import ModelResult, PathResult, Report

_HEADINGS = ("model", "path", "before, ms", "now, ms", "change", "spread")


def changes_text(old: Report, new: Report, width: int) -> str:
    """Return a table of medians, and a line for whatever else is different."""
    rows: list[tuple[str, ...]] = []
    lines: list[str] = []
    for before, now, was, is_ in _pairs(old, new):
        where = f"{now.model}, {is_.path}"
        lines += [*_other_changes(where, before, now, was, is_)]
        if was.timing is None or is_.timing is None or not was.timing.median_ms:
            continue
        old_ms, new_ms = was.timing.median_ms, is_.timing.median_ms
        part, spread = new_ms / old_ms - 1, max(was.timing.spread, is_.timing.spread)
        figures = (f"{old_ms:.4g}", f"{new_ms:.4g}", f"{part:+.1%}", f"{spread:.1%}")
        rows.append((now.model, is_.path, *figures))
        if abs(part) <= spread:
            lines.append(
                f"WARNING: {where}: the spread of the runs is larger than the change: nothing can "
                "be told"
            )
    for name in sorted({*old.machine, *new.machine}):
        if old.machine.get(name) != new.machine.get(name):
            lines.append(f"{name}: {old.machine.get(name)} before, {new.machine.get(name)} now")
    if not rows:
        return "\n".join(["WARNING: no path was timed both before and now", *lines])
    return "\n".join([render(width, columns(_HEADINGS, rows, left=2)), *lines])


def _pairs(
    old: Report, new: Report
) -> Iterator[tuple[ModelResult, ModelResult, PathResult, PathResult]]:
    for now in new.models:
        for before in (each for each in old.models if each.model == now.model):
            known = {result.path: result for result in before.paths}
            for result in now.paths:
                if result.path in known:
                    yield before, now, known[result.path], result


def _other_changes(
    where: str, before: ModelResult, now: ModelResult, old: PathResult, new: PathResult
) -> Iterator[str]:
    if before.digest != now.digest:
        yield f"WARNING: {where}: the model's file is another one"
    if before.input != now.input:
        yield f"WARNING: {where}: the input was {before.input}, and is {now.input}"
    for name, was, is_ in (
        ("the result", old.failure or "there", new.failure or "there"),
        ("the device", old.device, new.device),
        ("nodes taken", old.taken, new.taken),
        ("top result", old.top, new.top),
        ("quanta off the reference", old.quanta, new.quanta),
    ):
        if was != is_:
            yield f"{where}: {name}: {was} before, {is_} now"
