# SPDX-License-Identifier: Apache-2.0
"""Formats a comparison as terminal tables, Markdown and CSV, and changes since an earlier one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tflite_opencl.compare.records import ModelResult, PathResult, Report, Timing
from tflite_opencl.console.tables import NONE, columns, csv_text, markdown_table, render, table_text

_MIB = 2**20


def milliseconds(value: float | None) -> str:
    """Return a time with four digits; "-" if there is none."""
    return NONE if value is None else f"{value:.4g}" if value < 1000 else f"{value:.0f}"


def load(value: float | None) -> str:
    """Return the number of busy cores or engines; "-" if unknown."""
    return NONE if value is None else f"{value:.2f}"


def timed(of: Callable[[Timing], str]) -> Callable[[PathResult], str]:
    """Return a function of a path's result, given a function of its timing."""
    return lambda result: of(result.timing) if result.timing else NONE


def _nodes(result: PathResult) -> str:
    if result.taken is None:
        return NONE
    parts = f", {result.partitions} parts" if result.partitions and result.partitions > 1 else ""
    shares = ", ".join(f"{count} by {name}" for name, count in result.shares.items())
    return f"{result.taken} of {result.nodes}{f': {shares}' if shares else parts}"


def _off(result: PathResult) -> str:
    if result.quanta is not None:
        return f"{result.quanta}"
    if result.difference is not None:
        return f"{result.difference:.2g} (float)"
    return NONE


CSV = (
    "model", "path", "device", "load_ms", "first_ms", "runs", "average_ms", "min_ms", "median_ms",
    "p90_ms", "deviation_ms", "cpu_load", "gpu_load", "peak_bytes", "joules", "taken", "nodes",
    "top", "quanta", "difference", "failure",
)  # fmt: skip
ROWS: Sequence[tuple[str, Callable[[PathResult], str]]] = (
    ("device", lambda result: result.device or NONE),
    ("load, ms", lambda result: milliseconds(result.load_ms)),
    ("first run, ms", lambda result: milliseconds(result.first_ms)),
    ("average, ms", timed(lambda timing: milliseconds(timing.average_ms))),
    ("minimum, ms", timed(lambda timing: milliseconds(timing.min_ms))),
    ("median, ms", timed(lambda timing: milliseconds(timing.median_ms))),
    ("90th percentile, ms", timed(lambda timing: milliseconds(timing.p90_ms))),
    ("CPU load, cores", timed(lambda timing: load(timing.cpu_load))),
    ("GPU load, engines", timed(lambda timing: load(timing.gpu_load))),
    ("peak memory, MiB", lambda r: f"{r.peak_bytes / _MIB:.0f}" if r.peak_bytes else NONE),
    ("energy a run, J", lambda r: NONE if r.joules is None else f"{r.joules:.3g}"),
    ("nodes taken", _nodes),
    ("top result", lambda result: result.top or NONE),
    ("off the reference, quanta", _off),
)


def text_of(report: Report, width: int) -> str:
    """Return all tables for a terminal: one column per path, then remarks."""
    parts: list[str] = []
    for model in report.models:
        paths = [result.path for result in model.paths]
        rows = ((name, [of(result) for result in model.paths]) for name, of in ROWS)
        head = f"{model.model}, {model.input}"
        parts.append("\n".join([head, table_text(width, "", paths, rows), *notes(model)]))
    if len(report.models) > 1:
        paths = [result.path for result in report.models[0].paths]
        rows = ((model.model, [_cell(result) for result in model.paths]) for model in report.models)
        parts.append(f"median of a run, ms\n{table_text(width, '', paths, rows)}")
    return "\n\n".join([*parts, machine_text(report.machine)])


def machine_text(machine: Mapping[str, str]) -> str:
    """Return the machine facts relevant to timings."""
    return "\n".join(f"{name}: {fact}" for name, fact in machine.items())


def notes(model: ModelResult) -> list[str]:
    """Return a line for each path that did not run, or ran something other than its name says."""
    lines = []
    for result in model.paths:
        if result.failure:
            lines.append(f"{result.path}: no result: {result.failure}")
        elif result.is_idle:
            lines.append(
                f"{result.path}: the delegate takes no node: these are times of the CPU's kernels"
            )
        for reason, count in sorted(result.refusals.items(), key=lambda item: -item[1]):
            lines.append(f"{result.path}: {count} x {reason}")
        library, others = next(iter(result.shares.items()), ("", 0))
        apart = {name: _apart(result, name) for name in result.shares}
        if any(apart.values()):
            lines += [
                f"{result.path}: {name}'s nodes, on what reached them: {words}"
                for name, words in apart.items()
                if words
            ]
        elif others and (result.quanta or result.difference):
            too = "" if result.taken == result.nodes else " and those on the CPU"
            lines.append(
                f"{result.path}: the difference may come from {library}'s {others} nodes{too}"
            )
        if result.no_difference and not result.failure:
            lines.append(f"{result.path}: not compared: {result.no_difference}")
    if model.other_kernels:
        lines.append(f"the reference: {model.other_kernels}")
    return lines


def _apart(result: PathResult, delegate: str) -> str:
    """Return the difference of a chain's delegate from the reference; "" = not compared."""
    words = []
    if (quanta := result.share_quanta.get(delegate)) is not None:
        words.append(f"{quanta} quanta off the reference")
    if (floats := result.share_differences.get(delegate)) is not None:
        words.append(f"floats {floats:.2g} off the reference")
    return ", ".join(words)


def _cell(result: PathResult) -> str:
    if result.timing is None:
        return "no result"
    median = milliseconds(result.timing.median_ms)
    return median if result.taken is None else f"{median} ({result.taken} of {result.nodes})"


def markdown_of(report: Report) -> str:
    """Return one Markdown table, with one row per path, and the remarks as a list."""
    names = ["model", "path", *(name for name, _ in ROWS)]
    rows = (
        [model.model, result.path, *(of(result) for _, of in ROWS)]
        for model in report.models
        for result in model.paths
    )
    told = [f"- {model.model}: {line}" for model in report.models for line in notes(model)]
    facts = [f"- {name}: {fact}" for name, fact in report.machine.items()]
    return "\n".join([markdown_table(names, rows), "", *told, *facts])


def csv_of(report: Report) -> str:
    """Return one row per path; numbers are unrounded, unknown values empty."""
    return csv_text(CSV, csv_rows(report))


def csv_rows(report: Report) -> Iterator[Mapping[str, Any]]:
    """Yield each path's values, those of CSV and more."""
    for model in report.models:
        for path in model.paths:
            times = asdict(path.timing) if path.timing else {}
            yield {"model": model.model, **asdict(path), **times}


_HEADINGS = ("model", "path", "before, ms", "now, ms", "change", "spread")


def changes_text(old: Report, new: Report, width: int) -> str:
    """Return a table of medians, and a line for each other change."""
    known = {
        (model.model, path.path): (model, path) for model in old.models for path in model.paths
    }
    rows: list[tuple[str, ...]] = []
    lines: list[str] = []
    for now, is_ in ((model, path) for model in new.models for path in model.paths):
        if (now.model, is_.path) not in known:
            continue
        (before, was), where = known[now.model, is_.path], f"{now.model}, {is_.path}"
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
