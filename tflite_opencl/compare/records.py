# SPDX-License-Identifier: Apache-2.0
"""The paths of --paths and their results, as records that can be written to files and read back."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tflite_opencl.cli.flag_values import delegate_options
from tflite_opencl.cli.messages import JSON_SCHEMA
from tflite_opencl.console.errors import CommandError, cannot_read
from tflite_opencl.console.records import from_json

CPU, BUILTIN, REFERENCE, OPENCL, EXTERNAL = "cpu", "builtin", "reference", "opencl", "external"
COMPILED_MODEL, CHAIN = "compiledmodel", "chain"
# A path's word -> the TFLite kernels that run nodes no delegate takes.
KERNELS = {
    CPU: "auto",
    BUILTIN: "builtin",
    REFERENCE: "reference",
    OPENCL: "auto",
    COMPILED_MODEL: "auto",
    EXTERNAL: "auto",
    CHAIN: "auto",
}
_EXTERNAL = re.compile(r"(?P<library>.+?\.so(?:\.\d+)*)(?::(?P<options>.+))?")


@dataclass(frozen=True, slots=True)
class RunPath:
    """One way to run a model."""

    text: str  # as given to --paths
    kind: str  # a word of KERNELS
    device: str | None = None  # opencl's; None: the first that works
    library: str = ""  # of external, or the delegate that precedes OpenCL in a chain
    options: Mapping[str, str] = field(default_factory=dict)  # the library's

    @property
    def has_delegate(self) -> bool:
        """Whether an explicitly requested delegate runs nodes of the model."""
        return self.has_opencl or self.kind in (COMPILED_MODEL, EXTERNAL)

    @property
    def has_opencl(self) -> bool:
        """Whether our delegate is in TFLite's interpreter."""
        return self.kind in (OPENCL, CHAIN)


def paths_of(text: str) -> list[RunPath]:
    """Parse a comma-separated list of paths.

    Raises: argparse.ArgumentTypeError: a word is no path, or is repeated.
    """
    found = [_path(word.strip()) for word in text.split(",") if word.strip()]
    if not found:
        raise argparse.ArgumentTypeError("no path is named")
    words = [path.text for path in found]
    for word in words:
        if words.count(word) > 1:
            raise argparse.ArgumentTypeError(f"'{word}' is named twice")
    return found


def _path(word: str) -> RunPath:
    kind, colon, rest = word.partition(":")
    if kind in (OPENCL, COMPILED_MODEL) and (rest or not colon):
        return RunPath(word, kind, device=rest or None)
    if kind in (EXTERNAL, CHAIN):
        if (match := _EXTERNAL.fullmatch(rest)) is None:
            raise argparse.ArgumentTypeError(f"'{word}' is not {kind}:PATH.so or PATH.so:K:V;K:V")
        options = delegate_options(match["options"] or "")
        return RunPath(word, kind, library=match["library"], options=options)
    if word not in KERNELS:
        raise argparse.ArgumentTypeError(
            f"'{word}' is no path: there are {CPU}, {BUILTIN}, {REFERENCE}, {OPENCL}, "
            f"{OPENCL}:DEVICE, {COMPILED_MODEL}, {COMPILED_MODEL}:DEVICE, "
            f"{EXTERNAL}:PATH.so:OPTIONS and {CHAIN}:PATH.so:OPTIONS"
        )
    return RunPath(word, kind)


@dataclass(frozen=True, slots=True)
class Timing:
    """Statistics of one path's timed runs, by the wall clock."""

    runs: int
    average_ms: float
    min_ms: float
    median_ms: float
    p90_ms: float  # 90th percentile
    p95_ms: float
    p99_ms: float
    max_ms: float
    quartiles_ms: tuple[float, float]
    deviation_ms: float  # standard deviation of a run
    cpu_load: float  # CPU time of all threads of the process over wall time: 1.98 cores
    gpu_load: float | None = None  # busy time of GPU engines over wall time; None: unknown

    @property
    def spread(self) -> float:
        """Return the interquartile range of the runs over the median."""
        low, high = self.quartiles_ms
        return (high - low) / self.median_ms if self.median_ms else 0.0


def timing_of(runs_ms: Sequence[float], cpu_load: float, gpu_load: float | None = None) -> Timing:
    """Return the statistics of these runs, at least one."""
    percents = (25, 50, 75, 90, 95, 99)
    low, median, high, p90, p95, p99 = map(float, np.percentile(np.asarray(runs_ms), percents))
    return Timing(
        runs=len(runs_ms), average_ms=float(np.mean(runs_ms)), min_ms=min(runs_ms),
        median_ms=median, p90_ms=p90, p95_ms=p95, p99_ms=p99, max_ms=max(runs_ms),
        quartiles_ms=(low, high), deviation_ms=float(np.std(runs_ms)), cpu_load=cpu_load,
        gpu_load=gpu_load,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PathResult:
    """The result of one path for one model."""

    path: str  # as given to --paths
    device: str = ""  # what ran it
    failure: str = ""  # why there is no result; "" = there is one
    load_ms: float | None = None  # from the file to allocated tensors, kernels built
    first_ms: float | None = None  # the first run
    timing: Timing | None = None
    peak_bytes: int | None = None  # of the process
    joules: float | None = None  # of the whole machine, per run; None: unknown
    taken: int | None = None  # nodes that delegates run; None: the path has none
    shares: Mapping[str, int] = field(default_factory=dict)  # of a chain: a delegate -> its nodes
    # The same delegates' largest differences from the reference, given their actual inputs.
    share_quanta: Mapping[str, int] = field(default_factory=dict)
    share_differences: Mapping[str, float] = field(default_factory=dict)
    nodes: int = 0  # of the model
    partitions: int | None = None
    refusals: Mapping[str, int] = field(default_factory=dict)  # why -> nodes
    top: str = ""  # the first output's best class
    quanta: int | None = None  # largest difference of integer outputs from the reference
    difference: float | None = None  # of float outputs
    no_difference: str = ""  # why neither is available

    @property
    def is_idle(self) -> bool:
        """Whether there is a delegate without nodes: the times are the CPU's."""
        return self.taken == 0

    @property
    def is_no_result(self) -> bool:
        """Whether the path has no result of its own."""
        return bool(self.failure) or self.is_idle


@dataclass(frozen=True, slots=True)
class ModelResult:
    """All paths of one model."""

    model: str  # its file's name
    digest: str  # SHA-256 of the file
    input: str  # its input data
    paths: Sequence[PathResult]
    # Nodes on other kernels than the reference ones in the reference, and why.
    other_kernels: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The results of one run of the command."""

    machine: Mapping[str, str]
    models: Sequence[ModelResult]

    @property
    def is_no_result(self) -> bool:
        """Whether a path has no result of its own."""
        return any(path.is_no_result for model in self.models for path in model.paths)


@dataclass(frozen=True, slots=True)
class FleetReport:
    """The reports of several boards."""

    boards: Mapping[str, Report]  # a board's name -> its report
    why_not: Mapping[str, str]  # boards without a report, and why

    @property
    def is_no_result(self) -> bool:
        """Whether a board has no report, or one of its paths no result of its own."""
        return bool(self.why_not) or any(each.is_no_result for each in self.boards.values())


def load(path: str) -> Report:
    """Read a report written by --json. Raises: CommandError: it is no such file."""
    try:
        found = json.loads(Path(path).read_text())
        if found["schema"] != JSON_SCHEMA:
            raise CommandError(f"{path} has schema {found['schema']}; this is {JSON_SCHEMA}")
        report: Report = from_json(Report, {name: found[name] for name in ("machine", "models")})
    except OSError as error:
        raise cannot_read(path, error) from error
    except (KeyError, TypeError, ValueError) as error:
        raise CommandError(f"{path} is not what compare --json writes") from error
    return report
