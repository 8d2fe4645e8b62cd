# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl compare`: the ways to run a model, side by side."""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from delegate import Options
from tflite_opencl import __version__
from tflite_opencl.common import bars
from tflite_opencl.common.cluster.scheduler import require_distributed
from tflite_opencl.common.errors import CommandError, UsageError
from tflite_opencl.common.exit_codes import NOT_SO
from tflite_opencl.common.feeds import inputs_for
from tflite_opencl.common.flags import add_flag, add_flags, add_models, as_json, models_of, shown
from tflite_opencl.common.interpreter import read_graph
from tflite_opencl.common.labels import labels_in
from tflite_opencl.common.machine import Meter, cpu_name
from tflite_opencl.common.open_sizes import sized_graph
from tflite_opencl.common.runtime import runtime_if_any
from tflite_opencl.common.tables import terminal_width
from tflite_opencl.compare import fleet_text
from tflite_opencl.compare.records import ModelResult, Report, RunPath, load, paths_of
from tflite_opencl.compare.runs import Given, Settings, compared
from tflite_opencl.compare.text import changes_text, csv_of, markdown_of, text_of

HELP = "time a model on the CPU, on OpenCL devices and through delegates, side by side"
EXAMPLES = (
    ("tflite-opencl compare -m model.tflite -i picture.jpg", "CPU, reference kernels and OpenCL"),
    ("tflite-opencl compare -m a.tflite b.tflite --markdown -", "two models, for a page"),
    ("tflite-opencl compare -m model.tflite --paths cpu,opencl:0 --json before.json",
     "the CPU and device 0; keep the result"),
    ("tflite-opencl compare -m model.tflite --against before.json", "and see what changed"),
    ("tflite-opencl compare -m model.tflite --scheduler tcp://HOST:8786", "on each board"),
)  # fmt: skip
_PATHS, _WITHOUT_TFLITE = "cpu,reference,opencl", "opencl"
T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's arguments."""
    add = parser.add_argument
    add_models(parser, "; several make a matrix")
    add_flag(parser, "signature")
    add_flag(parser, "image", more="; else random")
    add_flags(parser, "labels", "input_size")
    add("--paths", type=paths_of, metavar="P,P",
        help="cpu, builtin, reference, opencl, opencl:DEVICE, external:PATH.so:KEY:VALUE;..., "
        "chain:PATH.so:KEY:VALUE;... (that library's delegate first, then opencl) "
        f"(default: {_PATHS}; without TFLite: {_WITHOUT_TFLITE})")  # fmt: skip
    add_flag(parser, "count", 50, " timed runs")
    add_flag(parser, "warmup_runs", 5)
    add_flag(parser, "threads", more=" (default: as many as cores)")
    add_flags(parser, tune="quick")
    add_flag(parser, "timeout", 600.0, ": a path to open, or its runs of a round")
    add_flags(parser, "json", "csv", "markdown")
    add_flag(parser, "against", more=" by --json")
    add_flag(parser, "scheduler", more=": all paths on each board, side by side; a board is the "
             "workers of a name")  # fmt: skip


def run(options: argparse.Namespace) -> str:
    """Return what to print.

    Raises: CommandError: a model, the picture or the file of --against cannot be used; or a path
        gave no result of its own, of which the text is the answer.
    """
    old = load(options.against) if options.against else None
    if options.scheduler and old:
        raise UsageError("--against is of one machine, and --scheduler is given")
    settings = Settings(
        count=options.count,
        warmup_runs=options.warmup_runs,
        threads=options.threads or 0,
        opencl=Options(tune=options.tune),
        seconds=options.timeout,
        labels=labels_in(options.labels) if options.labels else (),
        signature=options.signature,
    )
    models = [
        given_of(name, options.image, options.signature, options.input_size)
        for name in models_of(options)
    ]
    if options.scheduler:
        return _on_boards(options, models, settings)
    report = report_of(models, options.paths, settings)
    width = terminal_width()
    changes = f"\n\nsince {options.against}:\n{changes_text(old, report, width)}" if old else ""
    text = shown(
        options,
        text_of(report, width) + changes,
        json=lambda: as_json(asdict(report)),
        csv=lambda: csv_of(report),
        markdown=lambda: markdown_of(report) + changes,
    )
    if report.is_no_result:
        raise CommandError(text, NOT_SO)
    return text


def _on_boards(options: argparse.Namespace, models: Sequence[Given], settings: Settings) -> str:
    require_distributed()
    # An extra, which takes half a second to import.
    from tflite_opencl.compare.board import compared_on_boards

    fleet = compared_on_boards(options.scheduler, models, options.paths, settings)
    text = shown(
        options,
        fleet_text.text_of(fleet, terminal_width()),
        json=lambda: as_json(asdict(fleet)),
        csv=lambda: fleet_text.csv_of(fleet),
        markdown=lambda: fleet_text.markdown_of(fleet),
    )
    if fleet.is_no_result:
        raise CommandError(text, NOT_SO)
    return text


def report_of(
    models: Sequence[Given], paths: Sequence[RunPath] | None, settings: Settings
) -> Report:
    """Return what this machine's paths give for each model.

    `paths`: None: those that it has. `settings`: 0 threads are as many as it has cores.
    """
    if paths is None:
        paths = paths_of(_WITHOUT_TFLITE if runtime_if_any().why_not else _PATHS)
    here = replace(settings, threads=settings.threads or len(os.sched_getaffinity(0)))

    def compare(given: Given, tell: Callable[[str], None]) -> ModelResult:
        return compared(given, paths, here, tell)

    return Report(*each_model(models, here.threads, compare))


def each_model(
    models: Sequence[Given], threads: int, time: Callable[[Given, Callable[[str], None]], T]
) -> tuple[Mapping[str, str], list[T]]:
    """Return what a reader of times must know of this machine, and what `time` returns of each.

    `time`: is given a model, and a function to tell what is done.
    """
    facts, found = _machine(threads), []
    with bars.waiting("") as tell:
        for given in models:
            with tempfile.TemporaryDirectory(prefix="compare-") as folder:
                found.append(time(replace(given, folder=Path(folder)), tell))
    return facts, found


def given_of(
    name: str,
    picture: str | None,
    signature: str | None,
    size: tuple[int, int] | None = None,
) -> Given:
    """Return a model and its inputs.

    `picture`: a file; None: random numbers. `signature`: which of its graphs; None: the first.
    `size`: height and width of a picture's input that leaves them open; None: the picture's.
    Raises: CommandError: the model or the picture cannot be used.
    """
    graph = read_graph(name, signature)
    if not graph.inputs or not graph.outputs:
        raise CommandError(f"{name} has no input or no output: there is nothing to run")
    graph = sized_graph(graph, name, size, picture, runtime_if_any())
    what = "random input" if picture is None else Path(picture).name
    return Given(name, graph, inputs_for(graph, picture), what)


def _machine(threads: int) -> Mapping[str, str]:
    runtime = runtime_if_any()
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    busy = f" on {cores} cores: other programs make all times longer" if load > cores / 2 else ""
    return {
        "CPU": cpu_name(),
        "threads": str(threads),
        "load at the start": f"{load:.1f}{busy}",
        "versions": f"tflite-opencl {__version__}, {runtime.text}, "
        f"Python {platform.python_version()}, numpy {np.__version__}",
        "energy": Meter().source or "not told: no counter or sensor that may be read",
    }
