# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl compare`: compares the ways to run a model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from delegate import Options
from tflite_opencl.cli.flags import add_flag, add_flags, add_models, models_of
from tflite_opencl.cli.outputs import as_json, shown
from tflite_opencl.cli.scheduler import require_distributed
from tflite_opencl.compare import fleet_text
from tflite_opencl.compare.records import load, paths_of
from tflite_opencl.compare.report import PATHS, WITHOUT_TFLITE, given_of, report_of
from tflite_opencl.compare.runs import CompareSettings, Given
from tflite_opencl.compare.text import changes_text, csv_of, markdown_of, text_of
from tflite_opencl.console.errors import CommandError, UsageError
from tflite_opencl.console.exit_codes import NOT_SO
from tflite_opencl.console.tables import terminal_width
from tflite_opencl.harness.labels import labels_in

HELP = "time a model on the CPU, on OpenCL devices and through delegates, side by side"
EXAMPLES = (
    ("tflite-opencl compare -m model.tflite -i picture.jpg", "CPU, reference kernels and OpenCL"),
    ("tflite-opencl compare -m a.tflite b.tflite --markdown -", "two models, for a page"),
    ("tflite-opencl compare -m model.tflite --paths cpu,opencl:0 --json before.json",
     "the CPU and device 0; keep the result"),
    ("tflite-opencl compare -m model.tflite --against before.json", "and see what changed"),
    ("tflite-opencl compare -m model.tflite --scheduler tcp://HOST:8786", "on each board"),
)  # fmt: skip


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
        f"(default: {PATHS}; without TFLite: {WITHOUT_TFLITE})")  # fmt: skip
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
    """Return the text to print.

    Raises: CommandError: a model, the picture or the file of --against cannot be used; or a path
        has no result of its own, in which case the text is the result.
    """
    old = load(options.against) if options.against else None
    if options.scheduler and old:
        raise UsageError("--against is of one machine, and --scheduler is given")
    settings = CompareSettings(
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


def _on_boards(
    options: argparse.Namespace, models: Sequence[Given], settings: CompareSettings
) -> str:
    require_distributed()
    # An optional dependency that takes half a second to import.
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
