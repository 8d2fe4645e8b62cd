# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks`: rows of the table -> times and ratios. Nothing else prints or exits."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import (
    chart,
    first_starts,
    language,
    layers,
    loadgen,
    page,
    report,
    rows,
    series,
    service,
    video,
)
from benchmarks.measure import BLOCK_RUNS, Skipped
from benchmarks.results import BenchmarkReport, Layers, load, save
from benchmarks.setup import MODELS, SSD, THREAD_VARIABLES, V1, Setup, machine
from delegate import DelegateError, Options
from tflite_opencl.cli.flag_values import duration, names, positive
from tflite_opencl.cli.flags import add_flag, add_flags, prepare_environment
from tflite_opencl.cli.messages import printable
from tflite_opencl.cli.scheduler import require_distributed
from tflite_opencl.console import bars
from tflite_opencl.console.errors import OneLineError
from tflite_opencl.console.exit_codes import ERROR, NOT_SO, SUCCESS
from tflite_opencl.console.files import file_obstacle
from tflite_opencl.console.start import OutputError
from tflite_opencl.generate import package
from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.models.fetch import fetched

_CLUSTER = ("chunks", "boards", "pictures")
_DOCS = Path(__file__).resolve().parents[1] / "docs"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = parser().parse_args(arguments)
    if options.list:
        for row in rows.ROWS.values():
            print(f"{row.name:<12} {row.case}")
        return SUCCESS
    unknown = [name for name in options.rows or () if name not in rows.ROWS]
    if unknown:
        parser().error(f"--rows {unknown[0]}: there are {', '.join(rows.ROWS)}")
    for path in (options.json, options.chart):
        if path not in (None, "-") and (obstacle := file_obstacle(path)):
            parser().error(f"cannot write {path}: {obstacle}")
    prepare_environment()
    if options.threads is not None:  # drivers on CPUs take no other word for it
        for name in THREAD_VARIABLES:
            os.environ.setdefault(name, str(options.threads))
    try:
        options.models = [Path(fetched(name) or name) for name in options.models]
        if options.service:
            model = options.models[0] if options.models else None
            print(service.service(model, options.service))
            return SUCCESS
        if options.frames:
            threads = options.threads or len(os.sched_getaffinity(0))
            with _setup(options) as setup:
                models = options.models or [Path(setup.model(name)[0]) for name in (V1, SSD)]
                print(video.video(models, options.frames, threads))
            return SUCCESS
        if options.tokens:
            print(_language_model(options))
            return SUCCESS
        if options.loadgen:
            print(_loadgen(options))
            return SUCCESS
        if options.cluster:
            for line in _cluster(options.cluster):
                print(line, flush=True)
            return SUCCESS
        if options.first_starts:
            with _setup(options) as setup:
                given = [each if each.is_file() else str(each) for each in options.models]
                print(first_starts.first_starts(given or first_starts.MODELS, setup))
            return SUCCESS
        reports = [load(path) for path in options.read] if options.read else [_measured(options)]
        _write(reports, options)
    except OutputError:
        raise
    except (DelegateError, OneLineError, OSError, Skipped, ValueError) as error:
        print(printable(f"ERROR: {error}"), file=sys.stderr)
        return ERROR
    return _verdict(reports, options.judge)


def parser() -> argparse.ArgumentParser:
    """Return a new parser of all flags."""
    result = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Time models through OpenCL and everything else that runs them, in turns. "
        "Without a model: every row of the table that this machine can run.",
    )
    add = result.add_argument
    add("models", nargs="*", metavar="MODEL.tflite", help="files instead of the table's rows")
    add("--rows", type=names, metavar="A,B", help="only these rows of the table")
    add_flag(result, "list", more=": rows of the table")
    add_flag(result, "device", more="; for all rows")
    add_flag(result, "count", 200, f" timed runs a path, in blocks of {BLOCK_RUNS}")
    add_flag(result, "threads", more=", for all (default: as many as cores)")
    add_flags(result, tune="full")
    add_flag(
        result, "models", MODELS, ": the table's (default: ../shared/models)", Path, dest="folder"
    )
    add("--before", type=Path, metavar="DIR",
        help="also the delegate of an older checkout, in a process of its own")  # fmt: skip
    add("--series", action="store_true", help="also cost against width, batch and threads")
    add("--layers", action="store_true", help="also every node on the device: time, work, roofline")
    add("--first_starts", action="store_true",
        help="how far a first start is from a tuned one, and exit")  # fmt: skip
    add("--service", type=duration, nargs="?", const=10.0, metavar="SECONDS",
        help="requests a second of tflite-opencl serve and of others behind the same server, each "
        "for so long (default: 10), and exit")  # fmt: skip
    add("--videos", type=positive, nargs="?", const=300, metavar="FRAMES", dest="frames",
        help="label_image --video beside the same loop in OpenCV, on a video of so many frames of "
        "1280x720 (default: 300), and exit")  # fmt: skip
    add("--language_model", type=positive, nargs="?", const=64, metavar="TOKENS", dest="tokens",
        help="SmolLM2, or the .gguf file that is named, beside TFLite's CPU and llama.cpp: so many "
        "tokens after a prompt (default: 64), and exit")  # fmt: skip
    add("--loadgen", type=duration, nargs="?", const=60.0, metavar="SECONDS",
        help="let MLPerf's LoadGen drive MobileNet V1 or the model, SingleStream and Offline, each "
        "for so long (default: 60), and exit")  # fmt: skip
    add("--cluster", type=names, nargs="?", const=_CLUSTER, metavar="A,B",
        help=f"what --scheduler costs: {', '.join(_CLUSTER)} (default: all), and exit")  # fmt: skip
    add("--pictures", type=Path, metavar="DIR", help="with --loadgen: a folder; else random inputs")
    add_flag(result, "expect", None, "; with --loadgen", Path, metavar="FILE.csv")
    add_flag(result, "output", "loadgen", " by --loadgen", Path)
    add_flags(result, "json", "quiet")
    add("--chart", metavar="FILE", help="also draw it: .svg, .png or .pdf")
    add("--judge", action="store_true", help="exit 1 where a figure of the table is missed")
    add("--docs", nargs="?", type=Path, const=_DOCS, metavar="DIR",
        help="measure all and write it into DIR/performance.md (default docs/)")  # fmt: skip
    add("--from", dest="read", nargs="+", metavar="FILE",
        help="take what --json wrote, of one machine or several, instead of measuring")  # fmt: skip
    return result


def _cluster(parts: Sequence[str]) -> Iterator[str]:
    if unknown := [name for name in parts if name not in _CLUSTER]:
        parser().error(f"--cluster {unknown[0]}: there are {', '.join(_CLUSTER)}")
    require_distributed()
    # An extra, which takes half a second to import.
    from benchmarks import cluster

    return cluster.cluster(parts)


def _language_model(options: argparse.Namespace) -> str:
    gguf = str(options.models[0] if options.models else package.weights(is_fetched=False))
    delegate_options = Options(options.device, tune=options.tune)
    threads = options.threads or len(os.sched_getaffinity(0))
    with bars.waiting("") as tell:
        return language.language_model(gguf, options.tokens, threads, delegate_options, tell)


def _loadgen(options: argparse.Namespace) -> str:
    with _setup(options) as setup:
        name = options.models[0] if options.models else V1
        model, _ = setup.model(name)
        device = options.device if options.device is not None else 0
        return loadgen.loadgen(
            Path(model), options.loadgen, options.output,
            lambda batch: setup.opened(model, device, batch), options.pictures, options.expect,
        )  # fmt: skip


@contextlib.contextmanager
def _setup(options: argparse.Namespace) -> Iterator[Setup]:
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        threads = options.threads or len(os.sched_getaffinity(0))
        more = threads, options.count, options.tune, options.folder, options.before
        yield Setup(find_runtime(), Path(folder), options.device, *more)


def _measured(options: argparse.Namespace) -> BenchmarkReport:
    load_before = os.getloadavg()[0]
    chosen = [row for row in rows.ROWS.values() if row.name in (options.rows or rows.ROWS)]
    if options.models:
        chosen = [*map(rows.model_row, options.models)]
    with _setup(options) as setup:
        results, matches = [], []
        for row in chosen:
            with _progress(row.name, options, not options.models):
                results.append(row.result(setup))
                gc.collect()  # a peer's threads go with it
        for name in series.NAMES if options.series else ():
            with _progress(name, options):
                matches.append(series.measured(name, setup))
        profiled = list(_taken_apart(options, setup)) if options.layers else []
        return BenchmarkReport(
            machine(setup.runtime, setup.threads, load_before), results, matches, profiled
        )


@contextlib.contextmanager
def _progress(what: str, options: argparse.Namespace, tells_time: bool = True) -> Iterator[None]:
    """Say on stderr what is being measured, and how long it took; with --quiet nothing."""
    begin_s = time.monotonic()
    with Console(stderr=True, quiet=options.quiet).status(what):
        yield
    if tells_time and not options.quiet:
        print(f"{what}: {time.monotonic() - begin_s:.0f} s", file=sys.stderr)


def _taken_apart(options: argparse.Namespace, setup: Setup) -> Iterator[Layers]:
    """Yield the layers of the models that are given, or of the rows' models, or of V1."""
    given = [rows.ROWS[name] for name in options.rows or () if rows.ROWS[name].model]
    chosen = [*map(rows.model_row, options.models)] or given or [rows.ROWS["v1"]]
    for model, device in {row.model: row.device for row in chosen}.items():
        try:
            path, _ = setup.model(model)
            with _progress(f"layers of {model}", options, not options.models):
                yield layers.layers_of(path, setup.find(device), setup)
        except (DelegateError, OSError, RuntimeError, Skipped, ValueError) as reason:
            print(f"layers of {model}: left out: {reason}", file=sys.stderr)


def _write(reports: Sequence[BenchmarkReport], options: argparse.Namespace) -> None:
    is_apart = options.json == "-"  # stdout then holds nothing else
    console = Console(width=max(160, Console().width), highlight=False, stderr=is_apart)
    for each in reports:
        for name, value in each.machine.items():
            console.print(f"{name}: {value}", markup=False)
        for part in report.tables(each):
            console.print(part, markup=False, soft_wrap=isinstance(part, str))
    if options.json is not None:
        save(reports[0], options.json)
    if options.chart is not None:
        chart.write_report(reports[0], options.chart)
    if options.docs:
        for path in page.write(reports, options.docs):
            console.print(f"written: {path}", markup=False)


def _verdict(reports: Sequence[BenchmarkReport], is_check: bool) -> int:
    failed = False
    for row in (row for each in reports for row in each.rows):
        if row.failed:
            print(f"ERROR: {row.row}: {row.failed}", file=sys.stderr)
            failed = True
        if is_check:
            for line in row.misses:
                print(f"MISSED: {row.row}: {line}", file=sys.stderr)
                failed = True
    return NOT_SO if failed else SUCCESS
