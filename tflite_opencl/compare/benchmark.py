# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl benchmark`: TFLite's benchmark_model, for any path and several models.

Like compare with a single path, but with benchmark_model's stopping rules.
Source: tflite/tools/benchmark/benchmark_model.cc
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from delegate import Options
from delegate.inspect import usable_processors
from tflite_opencl.cli.flag_values import OutputPath, positive, seconds
from tflite_opencl.cli.flags import add_flag, add_flags, add_models, models_of
from tflite_opencl.cli.outputs import as_json, shown
from tflite_opencl.compare.records import (
    EXTERNAL,
    OPENCL,
    ModelResult,
    PathResult,
    RunPath,
    Timing,
    paths_of,
)
from tflite_opencl.compare.report import each_model, given_of
from tflite_opencl.compare.runs import CompareSettings, Given, Running, run_all
from tflite_opencl.compare.text import ROWS, machine_text, milliseconds, notes, timed
from tflite_opencl.console.errors import CommandError, write
from tflite_opencl.console.exit_codes import NOT_SO, USAGE
from tflite_opencl.console.tables import csv_text, table_text, terminal_width
from tflite_opencl.timing.profile import NodeTime

HELP = "time models as TFLite's benchmark_model does, with random input"
EXAMPLES = (
    ("tflite-opencl benchmark model.tflite", "on OpenCL, 50 runs or one second at least"),
    ("tflite-opencl benchmark --path cpu --num_threads 2 a.tflite b.tflite", "two models, CPU"),
    ("tflite-opencl benchmark model.tflite --profiling_output_csv_file nodes.csv", "by nodes"),
)
_BLOCK_S = 0.25  # duration of a block of runs
_LEFT_OUT = ("top result", "off the reference, quanta")  # excluded from a comparison's rows
# A flag of benchmark_model: its converter, its default there, and its help.
_FLAGS: Mapping[str, tuple[Callable[[str], float], float, str]] = {
    "num_runs": (positive, 50, "at least"),
    "min_secs": (seconds, 1.0, "at least"),
    "max_secs": (seconds, 150.0, "end after this, however few runs there were"),
    "run_delay": (seconds, 0.0, "between two runs"),
    "warmup_min_secs": (seconds, 0.5, "at least"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's arguments; most are benchmark_model's, with its defaults."""
    add = parser.add_argument
    add_models(parser)
    add_flag(parser, "signature")
    add("--graph", dest="tflite_model", action="append", metavar="FILE", help="as MODEL")
    add("--path", type=_path, default=OPENCL, metavar="PATH",
        help="what runs it, as in compare --paths (default: opencl)")  # fmt: skip
    add_flags(parser, "external_delegate_path", external_delegate_options={})
    for name, (kind, default, text) in _FLAGS.items():
        metavar, text = "N" if kind is positive else "S", f"{text} (default: {default:g})"
        add(f"--{name}", type=kind, default=default, metavar=metavar, help=text)
    add_flag(parser, "warmup_runs", 1, ", at least")
    add_flag(parser, "num_threads", more=" (default: as many as cores)")
    add_flags(parser, tune="quick")
    add("--profiling_output_csv_file", type=OutputPath, metavar="FILE.csv",
        help="write the time of each node on OpenCL")  # fmt: skip
    add_flag(parser, "json")


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop; the names are benchmark_model's."""

    num_runs: int
    min_secs: float
    max_secs: float
    run_delay: float  # seconds between two runs; 0: none
    warmup_runs: int
    warmup_min_secs: float


@dataclass(frozen=True, slots=True)
class Benchmarked:
    """The measurements of a model."""

    model: str
    result: PathResult
    warmup: Timing | None = None
    nodes: Sequence[Mapping[str, Any]] = ()  # with their times, if requested


def run(options: argparse.Namespace) -> str:
    """Return the text to print.

    Raises: CommandError: a model cannot be read, or the CSV file cannot be written; or a model did
        run, or not on the delegate, in which case the text is the result.
    """
    nodes_file = options.profiling_output_csv_file
    limits = Limits(**{each.name: getattr(options, each.name) for each in fields(Limits)})
    path, patience_s = _chosen(options), 600 + limits.max_secs  # for one answer
    threads = options.num_threads or usable_processors()
    settings = CompareSettings(
        limits.num_runs, 0, threads, Options(tune=options.tune), patience_s,
        signature=options.signature,
    )  # fmt: skip
    measure = partial(benchmarked, path, settings, limits, nodes_file is not None)
    models = [given_of(name, None, options.signature) for name in models_of(options)]
    machine, found = each_model(models, threads, measure)
    if nodes_file is not None:
        names = ["model", *(each.name for each in fields(NodeTime))]
        rows = ({"model": each.model, **row} for each in found for row in each.nodes)
        write(nodes_file, csv_text(names, rows) + "\n")
    document = {"machine": machine, "models": [asdict(each) for each in found]}
    text = f"{_table(found, terminal_width())}\n\n{machine_text(machine)}"
    text = shown(options, text, json=lambda: as_json(document))
    if any(each.result.is_no_result for each in found):
        raise CommandError(text, NOT_SO)
    return text


def _chosen(options: argparse.Namespace) -> RunPath:
    library, own = options.external_delegate_path, options.external_delegate_options
    if library:
        return RunPath(f"{EXTERNAL}:{library}", EXTERNAL, library=library, options=own)
    if own:
        raise CommandError(
            "--external_delegate_options does nothing without --external_delegate_path", USAGE
        )
    return options.path if isinstance(options.path, RunPath) else _path(options.path)


def _path(text: str) -> RunPath:
    (first, *others) = paths_of(text)
    if others:
        raise argparse.ArgumentTypeError(f"'{text}' is more than one path: compare takes several")
    return first


def benchmarked(
    path: RunPath,
    settings: CompareSettings,
    limits: Limits,
    profiling: bool,
    given: Given,
    tell: Callable[[str], None],
) -> Benchmarked:
    """Return a model's times; a failure is in the result.

    `profiling`: time OpenCL nodes, too, in another process: profiling splits launches.
    """
    each = given.on(path, settings, "outputs")
    warmup: Timing | None = None
    nodes: Sequence[Mapping[str, Any]] = ()

    def measure() -> None:
        nonlocal warmup
        if each.process is None:
            return
        with each.step():
            if limits.warmup_runs or limits.warmup_min_secs:
                run_until(each, limits.warmup_runs, limits.warmup_min_secs, limits)
                warmup = each.timing()
                each.forget()
            run_until(each, limits.num_runs, limits.min_secs, limits)

    run_all(given, [each], measure, tell)
    if profiling and path.has_opencl and not each.result.failure:
        with each.step(), each.opened(profiling):
            nodes = each.ask(profile=True)["rows"]
    return Benchmarked(Path(given.model).name, each.result, warmup, nodes)


def run_until(each: Running, least_runs: int, least_s: float, limits: Limits) -> None:
    """Run until both minimums are reached, but no longer than max_secs."""
    begin_s = time.monotonic()
    passed_s = 0.0
    while (len(each.runs_ms) < least_runs or passed_s < least_s) and passed_s <= limits.max_secs:
        runs = 1
        if each.runs_ms and not limits.run_delay:
            run_s = max(1e-6, each.wall_ms / 1e3 / len(each.runs_ms))
            wanted = max(least_runs - len(each.runs_ms), math.ceil((least_s - passed_s) / run_s))
            runs = max(1, min(wanted, int(_BLOCK_S / run_s)))
        each.block(runs, 0, limits.run_delay if each.runs_ms else 0)
        passed_s = time.monotonic() - begin_s


# Additional rows, of the model's own times.
_MORE: Sequence[tuple[str, Callable[[PathResult], str]]] = (
    ("timed runs", timed(lambda timing: str(timing.runs))),
    ("95th percentile, ms", timed(lambda timing: milliseconds(timing.p95_ms))),
    ("99th percentile, ms", timed(lambda timing: milliseconds(timing.p99_ms))),
    ("maximum, ms", timed(lambda timing: milliseconds(timing.max_ms))),
    ("standard deviation, ms", timed(lambda timing: milliseconds(timing.deviation_ms))),
)


def _table(found: Sequence[Benchmarked], width: int) -> str:
    results = [each.result for each in found]
    warmups = [milliseconds(each.warmup.average_ms if each.warmup else None) for each in found]
    rows = [(name, [*map(of, results)]) for name, of in (*ROWS, *_MORE) if name not in _LEFT_OUT]
    rows.insert(-len(_MORE), ("warm-up, average, ms", warmups))
    table = table_text(width, results[0].path, [each.model for each in found], rows)
    models = (ModelResult(each.model, "", "", [each.result]) for each in found)
    lines = [f"{model.model}: {line}" for model in models for line in notes(model)]
    return "\n".join([table, *lines, *map(_summary, found)])


def _summary(each: Benchmarked) -> str:
    """Return benchmark_model's own summary line, which scripts parse."""
    result, timing = each.result, each.result.timing
    if timing is None or result.load_ms is None or result.first_ms is None:
        return f"{each.model}: no times"
    warmup = (each.warmup.average_ms if each.warmup else 0.0) * 1e3
    return (
        f"INFO: Inference timings in us: Init: {result.load_ms * 1e3:.0f}, First inference: "
        f"{result.first_ms * 1e3:.0f}, Warmup (avg): {warmup:g}, Inference (avg): "
        f"{timing.average_ms * 1e3:g}"
    )
