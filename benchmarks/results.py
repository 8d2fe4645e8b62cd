# SPDX-License-Identifier: Apache-2.0
"""The records of a benchmark: measurements, goals and verdicts.

They round-trip through JSON; nothing is measured or printed here.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import PathTimes
from tflite_opencl.console.files import write_file
from tflite_opencl.console.records import from_json

OPENCL = "OpenCL"  # how the names of our own paths begin


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure to reach."""

    what: str  # "of XNNPACK's time"
    limit: float
    aim: float | None = None
    unit: str = ""  # "" is a ratio
    is_least: bool = False  # the figure must be at least the limit, not at most
    against: tuple[str, ...] = ()  # a ratio's paths: the fastest of these


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure and its goal."""

    goal: Goal
    value: float
    not_judged: str = ""  # why the goal does not hold for this run

    @property
    def verdict(self) -> str:
        """Return "aim reached", "reached", "missed" or "not judged"."""
        if self.not_judged:
            return "not judged"
        sign = -1 if self.goal.is_least else 1
        if self.goal.aim is not None and sign * self.value <= sign * self.goal.aim:
            return "aim reached"
        return "reached" if sign * self.value <= sign * self.goal.limit else "missed"

    @property
    def text(self) -> str:
        """Return the value with its unit."""
        places = 0 if self.value >= 1000 else 3 if self.goal.unit == "ms" else 2
        return f"{self.value:,.{places}f} {self.goal.unit}".strip()


@dataclass(frozen=True, slots=True)
class DelegationStats:
    """The claimed part of a model, and the cost of a run."""

    nodes: int
    delegated: int
    partitions: int
    launches: int  # a run
    up_bytes: int  # a run, to the device
    down_bytes: int
    # The least time of a run that the device's rates allow, and the part of it in which they are
    # those of multiply-adds; in the rest they are those of bytes.
    limit_ms: float = 0.0
    limit_of_work_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class RowResult:
    """One row of the table; the measuring function leaves name and case empty."""

    row: str = ""
    case: str = ""
    device: str = ""
    skipped: str = ""  # why it was not run here
    failed: str = ""  # what broke
    paths: Mapping[str, PathTimes] = field(default_factory=dict)  # the first is ours
    figures: Sequence[Figure] = ()
    delegation: DelegationStats | None = None
    exact: str = ""  # how the outputs compare with the reference kernels'
    missing: Mapping[str, str] = field(default_factory=dict)  # peers that are not here
    notes: Sequence[str] = ()

    @property
    def has_model(self) -> bool:
        """Return whether its paths are ways to run one model."""
        return any(name.startswith(OPENCL) for name in self.paths)

    @property
    def misses(self) -> list[str]:
        """Return the problems of this row, a line each."""
        lines = [self.exact] if self.exact.startswith("NOT") else []
        for figure in self.figures:
            if figure.verdict == "missed":
                goal = figure.goal
                bound = "at least" if goal.is_least else "at most"
                lines.append(f"{goal.what}: {figure.text}, not {bound} {goal.limit:,g}")
        return lines


@dataclass(frozen=True, slots=True)
class Sweep:
    """A cost against one quantity: lines of (x, y), y in the unit of the axis."""

    name: str  # "threads"
    title: str
    x_label: str
    y_label: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class LayerProfile:
    """One node on the device, in a profiled run."""

    node: int
    op: str
    shape: str  # of its output
    alternative: str
    microseconds: float
    multiply_adds: int
    bytes_moved: int  # inputs, constants and outputs, each once


@dataclass(frozen=True, slots=True)
class Layers:
    """A model node by node, and the device's measured peaks."""

    model: str
    device: str
    peak_multiply_adds: float  # a second
    peak_bytes: float  # a second
    peak_source: str  # where those two come from
    layers: Sequence[LayerProfile]

    @property
    def total_us(self) -> float:
        """Return the sum of all nodes."""
        return sum(layer.microseconds for layer in self.layers)

    def limit_us(self, layer: LayerProfile) -> tuple[float, bool]:
        """Return the shortest time that the two peaks allow, and whether multiply-adds bind it."""
        work_s = layer.multiply_adds / self.peak_multiply_adds
        bytes_s = layer.bytes_moved / self.peak_bytes
        return max(work_s, bytes_s) * 1e6, work_s > bytes_s

    def roofline_fraction(self, layer: LayerProfile) -> float:
        """Return the shortest time that the two peaks allow, divided by the measured time."""
        return self.limit_us(layer)[0] / layer.microseconds


@dataclass(frozen=True, slots=True)
class BenchmarkReport:
    """All that one run of the command measured."""

    machine: Mapping[str, str]
    rows: Sequence[RowResult] = ()
    series: Sequence[Sweep] = ()
    layers: Sequence[Layers] = ()


def save(report: BenchmarkReport, path: str | Path) -> None:
    """Write a report as JSON; "-" is stdout. Raises: OSError."""
    document = dataclasses.asdict(report)
    for row, source in zip(document["rows"], report.rows, strict=True):
        for entry, figure in zip(row["figures"], source.figures, strict=True):
            entry["verdict"] = figure.verdict
    text = json.dumps(document, indent=2) + "\n"
    if path == "-":
        sys.stdout.write(text)
    else:
        write_file(str(path), text)


def load(path: str | Path) -> BenchmarkReport:
    """Return a report that `save` wrote. Raises: OSError; ValueError: it is no such file."""
    try:
        document = json.loads(Path(path).read_text())
        for figure in (each for row in document["rows"] for each in row["figures"]):
            del figure["verdict"]
        report: BenchmarkReport = from_json(BenchmarkReport, document)
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not what --json writes: {error!r}") from error
    return report
