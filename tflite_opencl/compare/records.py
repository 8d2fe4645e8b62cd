# SPDX-License-Identifier: Apache-2.0
"""The paths that --paths names, and what was found of them; it crosses to files and back."""

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
# A path's word -> the CPU kernels of TFLite that run what no delegate takes.
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

    text: str  # as --paths has it
    kind: str  # a word of KERNELS
    device: str | None = None  # opencl's; None: the first that works
    library: str = ""  # external's, or that which chooses nodes before OpenCL in a chain
    options: Mapping[str, str] = field(default_factory=dict)  # the library's

    @property
    def has_delegate(self) -> bool:
        """Whether a delegate that is asked for by name runs nodes of the model."""
        return self.has_opencl or self.kind in (COMPILED_MODEL, EXTERNAL)

    @property
    def has_opencl(self) -> bool:
        """Whether our delegate is in TFLite's interpreter."""
        return self.kind in (OPENCL, CHAIN)


def paths_of(text: str) -> list[RunPath]:
    """Return the paths of a list with commas.

    Raises: argparse.ArgumentTypeError: a word is no path, or stands there twice.
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
    """The timed runs of one path, by the wall clock."""

    runs: int
    average_ms: float
    min_ms: float
    median_ms: float
    p90_ms: float  # nine of ten runs took no longer
    p95_ms: float
    p99_ms: float
    max_ms: float
    quartiles_ms: tuple[float, float]
    deviation_ms: float  # standard deviation of a run
    cpu_load: float  # CPU time of all threads of the process over wall time: 1.98 cores
    gpu_load: float | None = None  # busy time of GPUs' engines over wall time; None: not told

    @property
    def spread(self) -> float:
        """Return how far the middle half of the runs lies apart, as a part of the median."""
        low, high = self.quartiles_ms
        return (high - low) / self.median_ms if self.median_ms else 0.0


def timing_of(runs_ms: Sequence[float], cpu_load: float, gpu_load: float | None = None) -> Timing:
    """Return what is told of these runs, of which there is at least one."""
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
    """What one path gave for one model."""

    path: str  # as --paths has it
    device: str = ""  # what ran it
    failure: str = ""  # why there is no result; "" = there is one
    load_ms: float | None = None  # from the file to allocated tensors, kernels built
    first_ms: float | None = None  # the first run
    timing: Timing | None = None
    peak_bytes: int | None = None  # of the process
    joules: float | None = None  # of the whole machine, a run; None: it does not tell
    taken: int | None = None  # nodes that delegates run; None: the path has none
    shares: Mapping[str, int] = field(default_factory=dict)  # a chain's: a delegate -> its nodes
    # The same delegates' greatest differences from the reference on what reached their nodes.
    share_quanta: Mapping[str, int] = field(default_factory=dict)
    share_differences: Mapping[str, float] = field(default_factory=dict)
    nodes: int = 0  # of the model
    partitions: int | None = None
    refusals: Mapping[str, int] = field(default_factory=dict)  # why -> nodes
    top: str = ""  # the best class of the first output
    quanta: int | None = None  # greatest difference from the reference of outputs of integers
    difference: float | None = None  # of outputs of floats
    no_difference: str = ""  # why neither is known

    @property
    def is_idle(self) -> bool:
        """Whether there is a delegate and it runs nothing: the times are the CPU's."""
        return self.taken == 0

    @property
    def is_no_result(self) -> bool:
        """Whether the path gave nothing of its own."""
        return bool(self.failure) or self.is_idle


@dataclass(frozen=True, slots=True)
class ModelResult:
    """All paths of one model."""

    model: str  # its file's name
    digest: str  # SHA-256 of the file
    input: str  # what it was given
    paths: Sequence[PathResult]
    # Which nodes others than the reference kernels compute in what all are compared with, and why.
    other_kernels: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All that one run of the command found."""

    machine: Mapping[str, str]
    models: Sequence[ModelResult]

    @property
    def is_no_result(self) -> bool:
        """Whether a path gave nothing of its own."""
        return any(path.is_no_result for model in self.models for path in model.paths)


@dataclass(frozen=True, slots=True)
class Fleet:
    """The same on several boards."""

    boards: Mapping[str, Report]  # a board's name -> what it found
    why_not: Mapping[str, str]  # boards that found nothing, and why

    @property
    def is_no_result(self) -> bool:
        """Whether a board gave nothing, or a path of one nothing of its own."""
        return bool(self.why_not) or any(each.is_no_result for each in self.boards.values())


def load(path: str) -> Report:
    """Return a report that --json wrote. Raises: CommandError: it is no such file."""
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
