# SPDX-License-Identifier: Apache-2.0
"""The rows of `tflite-opencl kernels`, one per kernel: records, CSV, tables, comparisons."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from rich.table import Table

from delegate import DeviceInfo
from delegate.inspect import KernelUse
from tflite_opencl.compilers.builds import Built
from tflite_opencl.console.errors import CommandError, cannot_read
from tflite_opencl.console.tables import csv_text, render


def _figure(heading: str, is_less_better: bool = True) -> Any:
    return field(default=None, metadata={"figure": (heading, is_less_better)})


@dataclass(frozen=True, slots=True)
class KernelStats:
    """One kernel on one device. None: not reported by the driver."""

    device: str  # its name as reported by the driver
    kernel: str
    variant: str  # the alternatives that use it
    macros: str  # build macros: "NAME=VALUE NAME=VALUE"
    launches: int  # per run, of all nodes that may launch it
    expected: int  # of these, launches of the alternatives expected to be fastest
    built: str  # "yes", or why not
    group_limit: int | None = _figure("group", is_less_better=False)  # work-items per work-group
    private_bytes: int | None = _figure("private")  # per work-item
    local_bytes: int | None = _figure("local")  # per work-group
    registers: int | None = _figure("regs")  # Adreno: of four words; NVIDIA: of one
    instructions: int | None = _figure("instr")
    # Values spilled to memory for lack of registers, in bytes for NVIDIA, and reloaded: displayed
    # together in a table.
    spills: int | None = _figure("spills")
    fills: int | None = _figure("")
    threads: int | None = _figure("threads", is_less_better=False)  # in the driver's own unit
    cycles: float | None = _figure("cycles")  # of the whole kernel, each instruction once
    arithmetic_cycles: float | None = _figure("arith")
    memory_cycles: float | None = _figure("mem")  # of loads and stores
    loop_instructions: float | None = _figure("/mad")  # of the hot loop, per multiply-add
    seconds: float | None = None  # build time

    @property
    def key(self) -> tuple[str, str, str]:
        """The key that identifies the same kernel in another table."""
        return self.device, self.kernel, self.macros

    @property
    def name(self) -> str:
        """The name for people."""
        return f"{self.device} {self.kernel} ({self.variant})"

    @property
    def is_built(self) -> bool:
        """Whether the compiler accepted it."""
        return self.built == "yes"

    @property
    def scratch(self) -> int:
        """Positive if values of a work-item are spilled to memory."""
        return (self.spills or 0) + (self.fills or 0)

    @property
    def flaw(self) -> str:
        """Why it is slow or missing, for people; "": neither."""
        if not self.is_built:
            return f"BROKEN: {self.name}: {self.built}"
        return f"BROKEN: {self.name}: {self.spills} spills, {self.fills} fills" * bool(self.scratch)


# Figure -> its heading in a table, and whether less is better.
FIGURES = {each.name: each.metadata["figure"] for each in fields(KernelStats) if each.metadata}
_TYPES = {
    each.name: float if "float" in str(each.type) else int
    for each in fields(KernelStats)
    if str(each.type) != "str"
}
_NEEDED = {each.name for each in fields(KernelStats) if each.default is MISSING}


def row_of(info: DeviceInfo, use: KernelUse, built: Built) -> KernelStats:
    """Return the row of one kernel."""
    build, told = built.build, dict[str, Any](built.figures)
    if build is not None:
        told |= {name: getattr(build, name) for name in FIGURES if hasattr(build, name)}
    return KernelStats(
        device=info.name,
        kernel=use.kernel,
        variant=" / ".join(use.variants),
        macros=" ".join(use.macros),
        launches=use.launches,
        expected=len(use.expected),
        built="yes" if build is not None else built.failure or "no",
        seconds=None if build is None else round(build.seconds, 3),
        **told,
    )


def csv_of(rows: Sequence[KernelStats]) -> str:
    """Return the rows as CSV with a header line; values not reported by the driver are empty."""
    return csv_text([each.name for each in fields(KernelStats)], map(asdict, rows))


def read_csv(path: str) -> list[KernelStats]:
    """Return the rows of a file written by `csv_of`; columns with a default may be missing.

    Raises:
        CommandError: it cannot be read, or is not such a file.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        table = csv.DictReader(io.StringIO(text), strict=True)
        if absent := _NEEDED - {*(table.fieldnames or ())}:
            raise ValueError(f"it has no column '{min(absent)}'")
        return [_row(entry) for entry in table]
    except OSError as error:
        raise cannot_read(path, error) from error
    except (ValueError, TypeError, csv.Error) as error:
        raise CommandError(f"{path} is no table of this command: {error}") from error


def _row(entry: dict[str, str]) -> KernelStats:
    values: dict[str, Any] = {
        name: _TYPES[name](value) if name in _TYPES else value
        for name, value in entry.items()
        if value != "" or name not in _TYPES
    }
    return KernelStats(**values)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two tables; kernels of devices missing in the new one are excluded."""

    pairs: tuple[tuple[KernelStats, KernelStats], ...]  # a kernel in both, before and now
    added: tuple[KernelStats, ...]
    gone: tuple[KernelStats, ...]

    @property
    def changes(self) -> list[tuple[KernelStats, KernelStats, list[str], list[str]]]:
        """Kernels in both with different figures, with the improved and the degraded ones."""
        found = [(old, new, *_changes(old, new)) for old, new in self.pairs]
        return [each for each in found if each[2] or each[3]]

    @property
    def broken(self) -> list[KernelStats]:
        """Kernels that no longer build, or that started to spill."""
        stopped = [
            new
            for old, new in self.pairs
            if (old.is_built and not new.is_built) or old.scratch == 0 < new.scratch
        ]
        return stopped + [row for row in self.added if row.flaw]

    @property
    def totals(self) -> list[tuple[str, float, float]]:
        """Each figure's sum, before and now, over the kernels that have it in both."""
        found = []
        for name in FIGURES:
            figures = [(getattr(old, name), getattr(new, name)) for old, new in self.pairs]
            known = [pair for pair in figures if None not in pair]
            found.append((name, sum(old for old, _ in known), sum(new for _, new in known)))
        return found


def compared(old: Sequence[KernelStats], new: Sequence[KernelStats]) -> Comparison:
    """Compare two tables."""
    devices = {row.device for row in new}
    before = {row.key: row for row in old if row.device in devices}
    after = {row.key: row for row in new}
    return Comparison(
        tuple((before[key], row) for key, row in after.items() if key in before),
        tuple(row for key, row in after.items() if key not in before),
        tuple(row for key, row in before.items() if key not in after),
    )


def _changes(old: KernelStats, new: KernelStats) -> tuple[list[str], list[str]]:
    """Return the improved and the degraded columns; "built" is one of them."""
    better = ["built"] if new.is_built and not old.is_built else []
    worse = ["built"] if old.is_built and not new.is_built else []
    for name, (_, is_less_better) in FIGURES.items():
        was, now = getattr(old, name), getattr(new, name)
        if was is not None and now is not None and was != now:
            (better if (now < was) == is_less_better else worse).append(name)
    return better, worse


_LEGEND = (
    "runs: launches a run, where every node that may launch the kernel does; first: those that are "
    "expected to be the fastest. group: work-items a work-group may have; private, local: bytes. "
    "spills: stores and loads of values that found no register. /mad: instructions of the hot loop "
    "a multiply-add. specialised: one layer's numbers are literals, which later starts may take."
)


def table_text(rows: Sequence[KernelStats], width: int) -> str:
    """Return the rows as a table with a legend and a total."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("kernel (variant)", overflow="fold")
    names = [
        name if row.is_built else f"{name}\n  NOT BUILT: {row.built}"
        for row, name in zip(rows, _names(rows), strict=True)
    ]
    columns = {"runs": [str(r.launches) for r in rows], "first": [str(r.expected) for r in rows]}
    for figure, (heading, _) in FIGURES.items():
        columns[heading] = [_text(getattr(row, figure)) for row in rows]
    columns["spills"] = ["" if r.spills is None else f"{r.spills}:{r.fills}" for r in rows]
    columns["s"] = ["" if row.seconds is None else f"{row.seconds:.2f}" for row in rows]
    # Columns without values are omitted; fills are in the spills' column.
    kept = {heading: cells for heading, cells in columns.items() if heading and any(cells)}
    for heading in kept:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in zip(names, *kept.values(), strict=True):
        table.add_row(*row)
    return render(width, table, _LEGEND, _total(rows))


def _names(rows: Sequence[KernelStats]) -> list[str]:
    """Return the kernels' names, with the macros that distinguish equal names."""
    same: dict[tuple[str, str], list[set[str]]] = {}
    for row in rows:
        same.setdefault((row.kernel, row.variant), []).append({*row.macros.split()})
    names = []
    for row in rows:
        sets = same[row.kernel, row.variant]
        common = set.intersection(*sets)
        own = [macro for macro in row.macros.split() if macro not in common]
        names.append(f"{row.kernel} ({', '.join((row.variant, *own))})")
    return names


def _total(rows: Sequence[KernelStats]) -> str:
    built = sum(row.is_built for row in rows)
    text = f"{len(rows)} kernels, {built} built"
    if any(row.spills is not None for row in rows):
        spilling = [row for row in rows if row.scratch]
        text += (
            f"; {len(spilling)} keep values in memory, and {sum(r.expected for r in spilling)} of "
            f"the {sum(row.expected for row in rows)} launches expected run one of these"
        )
    return f"{text}."


def comparison_text(found: Comparison) -> str:
    """Return improvements and regressions by kernel, and the totals."""
    lines = []
    changes = found.changes
    for old, new, better, worse in changes:
        for words, names in (("better", better), ("WORSE", worse)):
            figures = (f"{n} {_text(getattr(old, n))} -> {_text(getattr(new, n))}" for n in names)
            if names:
                lines.append(f"{words}: {new.name} [{new.macros}]: {', '.join(figures)}")
    for words, rows in (("new", found.added), ("gone", found.gone)):
        lines += [f"{words}: {row.name} [{row.macros}]" for row in rows]
    lines.append(
        f"kernels: {sum(bool(better) for _, _, better, _ in changes)} better, "
        f"{sum(bool(worse) for *_, worse in changes)} worse, {len(found.added)} new, "
        f"{len(found.gone)} gone"
    )
    for column, before, now in found.totals:
        if before != now:
            share = f" ({(now - before) / before:+.1%})" if before else ""
            lines.append(f"total {column}: {_text(before)} -> {_text(now)}{share}")
    return "\n".join([*lines, *(row.flaw for row in found.broken)])


def _text(value: float | str | None) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
