# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl benchmark`: TFLite's benchmark_model, for any path and several models."""

from __future__ import annotations

import argparse
import csv
import io
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path

from delegate import Options
from tflite_opencl.common.errors import CommandError, require_writable, write
from tflite_opencl.common.exit_codes import NOT_SO, USAGE
from tflite_opencl.common.flag_values import positive, seconds
from tflite_opencl.common.flags import add_flag, add_flags, add_models, as_json, models_of, shown
from tflite_opencl.common.profile import NodeTime
from tflite_opencl.compare.benchmark_run import Benchmarked, Limits, benchmarked
from tflite_opencl.compare.path_run import Settings
from tflite_opencl.compare.paths import EXTERNAL, RunPath, paths_of
from tflite_opencl.compare.records import ModelResult
from tflite_opencl.compare.runs import Given
from tflite_opencl.compare.subcommand import each_model
from tflite_opencl.compare.text import ROWS, machine_text, milliseconds, notes, table_text, timed

HELP = "time models as TFLite's benchmark_model does, with random input"
EXAMPLES = (
    ("tflite-opencl benchmark model.tflite", "on OpenCL, 50 runs or one second at least"),
    ("tflite-opencl benchmark --path cpu --num_threads 2 a.tflite b.tflite", "two models, CPU"),
    ("tflite-opencl benchmark model.tflite --profiling_output_csv_file nodes.csv", "by nodes"),
)
_WIDTH = 100  # without a terminal
_LEFT_OUT = ("top result", "off the reference, quanta")  # of a comparison's rows


# A flag of benchmark_model: how it is read, its default there, and what it says.
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
    add("--graph", dest="tflite_model", action="append", metavar="FILE", help="as MODEL")
    add("--path", type=_path, default="opencl", metavar="PATH",
        help="what runs it, as in compare --paths (default: opencl)")  # fmt: skip
    add_flags(parser, "external_delegate_path", external_delegate_options={})
    for name, (kind, default, text) in _FLAGS.items():
        metavar, text = "N" if kind is positive else "S", f"{text} (default: {default:g})"
        add(f"--{name}", type=kind, default=default, metavar=metavar, help=text)
    add_flag(parser, "warmup_runs", 1, ", at least")
    add_flag(parser, "num_threads", more=" (default: as many as cores)")
    add_flags(parser, tune="quick")
    add("--profiling_output_csv_file", metavar="FILE.csv",
        help="write the time of each node on OpenCL")  # fmt: skip
    add_flag(parser, "json")


def run(options: argparse.Namespace) -> str:
    """Return what to print.

    Raises:
        CommandError: a model cannot be read, or the CSV file cannot be written; or a model did not
            run, or not on the delegate, of which the text is the answer.
    """
    require_writable(options.profiling_output_csv_file)
    limits = Limits(**{each.name: getattr(options, each.name) for each in fields(Limits)})
    path = _chosen(options)
    threads = options.num_threads or len(os.sched_getaffinity(0))
    patience_s = 600 + limits.max_secs  # of one answer
    settings = Settings(limits.num_runs, 0, threads, Options(tune=options.tune), patience_s)
    profiling = options.profiling_output_csv_file is not None

    def time(given: Given, folder: Path, tell: Callable[[str], None]) -> Benchmarked:
        tell(f"{given.model}: {path.text}")
        return benchmarked(given, path, settings, limits, folder, profiling)

    machine, found = each_model(models_of(options), None, threads, time)
    if profiling:
        _write_nodes(options.profiling_output_csv_file, found)
    width = shutil.get_terminal_size((_WIDTH, 24)).columns
    document = {"machine": machine, "models": [asdict(each) for each in found]}
    text = f"{_table(found, width)}\n\n{machine_text(machine)}"
    text = shown(options, text, json=lambda: as_json(document))
    if any(each.result.failure or each.result.is_idle for each in found):
        raise CommandError(text, NOT_SO)
    return text


def _chosen(options: argparse.Namespace) -> RunPath:
    if options.external_delegate_path:
        library, own = options.external_delegate_path, options.external_delegate_options
        return RunPath(f"{EXTERNAL}:{library}", EXTERNAL, library=library, options=own)
    if options.external_delegate_options:
        raise CommandError(
            "--external_delegate_options does nothing without --external_delegate_path", USAGE
        )
    return options.path if isinstance(options.path, RunPath) else _path(options.path)


_MORE: Sequence[tuple[str, Callable[[Benchmarked], str]]] = (
    ("warm-up, average, ms", lambda b: milliseconds(b.warmup.average_ms if b.warmup else None)),
    ("timed runs", lambda b: timed(lambda timing: str(timing.runs))(b.result)),
    ("95th percentile, ms", lambda b: timed(lambda t: milliseconds(t.p95_ms))(b.result)),
    ("99th percentile, ms", lambda b: timed(lambda t: milliseconds(t.p99_ms))(b.result)),
    ("maximum, ms", lambda b: timed(lambda t: milliseconds(t.max_ms))(b.result)),
    ("standard deviation, ms", lambda b: timed(lambda t: milliseconds(t.deviation_ms))(b.result)),
)


def _table(found: Sequence[Benchmarked], width: int) -> str:
    rows = [
        (name, [of(each.result) for each in found]) for name, of in ROWS if name not in _LEFT_OUT
    ]
    rows += [(name, [of(each) for each in found]) for name, of in _MORE]
    table = table_text(width, found[0].result.path, [each.model for each in found], rows)
    lines = [
        f"{each.model}: {line}"
        for each in found
        for line in notes(ModelResult(each.model, "", "", [each.result]))
    ]
    return "\n".join([table, *lines, *map(_summary, found)])


def _summary(each: Benchmarked) -> str:
    """Return benchmark_model's own last line, which scripts read."""
    result, timing = each.result, each.result.timing
    if timing is None or result.load_ms is None or result.first_ms is None:
        return f"{each.model}: no times"
    warmup = (each.warmup.average_ms if each.warmup else 0.0) * 1e3
    return (
        f"INFO: Inference timings in us: Init: {result.load_ms * 1e3:.0f}, First inference: "
        f"{result.first_ms * 1e3:.0f}, Warmup (avg): {warmup:g}, Inference (avg): "
        f"{timing.average_ms * 1e3:g}"
    )


def _write_nodes(path: str, found: Sequence[Benchmarked]) -> None:
    names = [each.name for each in fields(NodeTime)]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["model", *names])
    for each in found:
        writer.writerows([each.model, *(row[name] for name in names)] for row in each.nodes)
    write(path, out.getvalue())


def _path(text: str) -> RunPath:
    (first, *others) = paths_of(text)
    if others:
        raise argparse.ArgumentTypeError(f"'{text}' is more than one path: compare takes several")
    return first
