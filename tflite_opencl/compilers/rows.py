# SPDX-License-Identifier: Apache-2.0
"""The rows of `tflite-opencl kernels`: one kernel each, as records, CSV and a comparison of two."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from delegate import DeviceInfo
from delegate.inspect import KernelUse
from tflite_opencl.common.errors import CommandError
from tflite_opencl.common.tables import csv_text
from tflite_opencl.compilers.builds import Built


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel on one device. None: the driver does not tell."""

    device: str  # its name, as the driver says it
    kernel: str
    variant: str  # the alternatives that launch it
    macros: str  # what it is built with: "NAME=VALUE NAME=VALUE"
    launches: int  # a run, where every node that may launch it does
    expected: int  # of these, those of the alternatives expected to be the fastest
    built: str  # "yes", or why not
    group_limit: int | None = None  # work-items a work-group
    private_bytes: int | None = None  # a work-item
    local_bytes: int | None = None  # a work-group
    registers: int | None = None
    instructions: int | None = None
    spills: int | None = None  # values put into memory for lack of registers
    fills: int | None = None  # and read again
    threads: int | None = None  # in the driver's own count; more hide more waiting
    cycles: float | None = None  # of the whole shader, each instruction once: the driver's model
    arithmetic_cycles: float | None = None
    memory_cycles: float | None = None  # of loads and stores
    loop_instructions: float | None = None  # of the hot loop, a multiply-add
    seconds: float | None = None  # it took to build

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes it the same kernel in another table."""
        return self.device, self.kernel, self.macros

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.device} {self.kernel} ({self.variant})"

    @property
    def is_built(self) -> bool:
        """Whether the compiler took it."""
        return self.built == "yes"

    @property
    def scratch(self) -> int:
        """What is above 0 where a work-item's values are kept in memory."""
        return (self.spills or 0) + (self.fills or 0)


# Figure -> its heading in a table, and whether less is better. Fills stand beside spills.
FIGURES = {
    "group_limit": ("group", False),
    "private_bytes": ("private", True),
    "local_bytes": ("local", True),
    "registers": ("regs", True),
    "instructions": ("instr", True),
    "spills": ("spills", True),
    "fills": ("", True),
    "threads": ("threads", False),
    "cycles": ("cycles", True),
    "arithmetic_cycles": ("arith", True),
    "memory_cycles": ("mem", True),
    "loop_instructions": ("/mad", True),
}
_TYPES = {
    field.name: float if "float" in str(field.type) else int
    for field in fields(Row)
    if str(field.type) != "str"
}
_NEEDED = {field.name for field in fields(Row) if field.default is MISSING}


def row_of(info: DeviceInfo, use: KernelUse, built: Built) -> Row:
    """Return the row of one kernel."""
    build, of = built.build, (built.statistics, built.build)
    told = {name: getattr(each, name) for name in FIGURES for each in of if hasattr(each, name)}
    return Row(
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


def csv_of(rows: Sequence[Row]) -> str:
    """Return the rows as CSV, a head line first; what the driver does not tell is empty."""
    return csv_text([field.name for field in fields(Row)], map(asdict, rows))


def read_csv(path: str) -> list[Row]:
    """Return the rows of a file that `csv_of` made; columns may be missing that have a default.

    Raises:
        CommandError: it cannot be read, or is no such file.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        table = csv.DictReader(io.StringIO(text), strict=True)
        if absent := _NEEDED - {*(table.fieldnames or ())}:
            raise ValueError(f"it has no column '{min(absent)}'")
        return [_row(entry) for entry in table]
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, TypeError, csv.Error) as error:
        raise CommandError(f"{path} is no table of this command: {error}") from error


def _row(entry: dict[str, str]) -> Row:
    values: dict[str, Any] = {
        name: _TYPES[name](value) if name in _TYPES else value
        for name, value in entry.items()
        if value != "" or name not in _TYPES
    }
    return Row(**values)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two tables; kernels of devices that the new one has not are left out."""

    pairs: tuple[tuple[Row, Row], ...]  # a kernel of both, before and now
    added: tuple[Row, ...]
    gone: tuple[Row, ...]

    @property
    def changes(self) -> list[tuple[Row, Row, list[str], list[str]]]:
        """Those of both whose figures differ, each with what got better and what got worse."""
        found = [(old, new, *_changes(old, new)) for old, new in self.pairs]
        return [each for each in found if each[2] or each[3]]

    @property
    def broken(self) -> list[Row]:
        """The kernels that stopped being built or began to keep values in memory."""
        stopped = [
            new
            for old, new in self.pairs
            if (old.is_built and not new.is_built) or old.scratch == 0 < new.scratch
        ]
        return stopped + [row for row in self.added if row.scratch or not row.is_built]

    @property
    def totals(self) -> list[tuple[str, float, float]]:
        """Each figure's sum, before and now, of the kernels that it is known of both times."""
        found = []
        for name in FIGURES:
            figures = [(getattr(old, name), getattr(new, name)) for old, new in self.pairs]
            known = [pair for pair in figures if None not in pair]
            found.append((name, sum(old for old, _ in known), sum(new for _, new in known)))
        return found


def compared(old: Sequence[Row], new: Sequence[Row]) -> Comparison:
    """Compare two tables."""
    devices = {row.device for row in new}
    before = {row.key: row for row in old if row.device in devices}
    after = {row.key: row for row in new}
    return Comparison(
        tuple((before[key], row) for key, row in after.items() if key in before),
        tuple(row for key, row in after.items() if key not in before),
        tuple(row for key, row in before.items() if key not in after),
    )


def _changes(old: Row, new: Row) -> tuple[list[str], list[str]]:
    """Return the columns that are better, and those that are worse; "built" is one of them."""
    better = ["built"] if new.is_built and not old.is_built else []
    worse = ["built"] if old.is_built and not new.is_built else []
    for name, (_, is_less_better) in FIGURES.items():
        was, now = getattr(old, name), getattr(new, name)
        if was is not None and now is not None and was != now:
            (better if (now < was) == is_less_better else worse).append(name)
    return better, worse
