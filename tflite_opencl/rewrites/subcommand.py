# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl rewrite IN OUT --pass NAME...`: rewrites a .tflite file for limited targets."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

from delegate import ModelError
from delegate.inspect import Graph
from tflite_opencl.cli.flag_values import OutputPath, positive
from tflite_opencl.cli.flags import add_flag
from tflite_opencl.cli.messages import did_you_mean
from tflite_opencl.cli.outputs import as_json, keep_inputs, require_outputs, shown
from tflite_opencl.console.bars import steps
from tflite_opencl.console.errors import CommandError, cannot_read, write
from tflite_opencl.console.exit_codes import NOT_SO, USAGE
from tflite_opencl.console.tables import terminal_width
from tflite_opencl.harness.feeds import feeds_of, picture_inputs
from tflite_opencl.harness.open_sizes import with_picture_size
from tflite_opencl.interpreters.interpreter import read_graph
from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.oracle.values import input_sets
from tflite_opencl.pictures.find_pictures import find_pictures, picture_paths
from tflite_opencl.rewrites import RewrittenModel, graph_passes, pass_bundles, rewrite_model
from tflite_opencl.rewrites.agreement import Agreement, Arrays, agreement
from tflite_opencl.rewrites.text import agreement_text, document, listing, text_of

HELP = "rewrite a .tflite file by passes, so that targets with fewer ops take it"
EXAMPLES = (
    ("tflite-opencl rewrite --list", "all passes, and the bundles of --for"),
    ("tflite-opencl rewrite model.tflite new.tflite --for teflon --check 3",
     "for Mesa's Teflon drivers; compare both models on random inputs"),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's arguments."""
    add = parser.add_argument
    add("source", metavar="MODEL", nargs="?", help="the model")
    add_flag(parser, "tflite_model", more=", as MODEL")
    add("target", type=OutputPath, metavar="OUT_FILE", nargs="?",
        help="where the rewritten model goes")  # fmt: skip
    add("--pass", dest="passes", metavar="NAME", nargs="+", action="extend", default=[],
        help="passes, in the order in which they run")  # fmt: skip
    add(
        "--for",
        dest="bundle",
        choices=pass_bundles(),
        metavar="TARGET",
        help=f"the passes that a target wants, before --pass: {', '.join(pass_bundles())}",
    )
    add_flag(parser, "list", more=": passes, and bundles of --for")
    given = parser.add_mutually_exclusive_group()
    given.add_argument(
        "--check",
        type=positive,
        metavar="N",
        help="compare both models on N random inputs, by TFLite's reference kernels",
    )
    given.add_argument("--images", metavar="DIR", help="the same on all pictures of a folder")
    add_flag(parser, "signature", more=", in --check and --images; passes change all graphs")
    add_flag(parser, "input_size", more=", in --check and --images")
    add_flag(parser, "json")


def run(options: argparse.Namespace) -> str:
    """Return the text to print.

    Raises:
        CommandError: the model cannot be read, rewritten or run, a pass is unknown, or the file
            cannot be written; or exact passes changed an output, in which case nothing is written.
    """
    width = terminal_width()
    if options.list:
        return listing(width)
    names = _names(options)
    named = [each for each in (options.tflite_model, options.source, options.target) if each]
    if len(named) < 2:
        raise CommandError("MODEL and OUT_FILE are missing; --list shows the passes", USAGE)
    if len(named) > 2:
        raise CommandError(f"one model at a time: {named[0]} and {named[1]} are named", USAGE)
    if options.input_size and options.check is None and options.images is None:
        raise CommandError("--input_size is for --check and --images", USAGE)
    options.source, options.target = named[0], OutputPath(named[1])
    keep_inputs(vars(options))  # again: now inputs and outputs are known
    require_outputs(vars(options))
    graph = read_graph(options.source, options.signature)
    made = _rewritten(options.source, names, graph.subgraphs)
    found = _checked(options, graph, made)
    if (
        found is not None
        and found.equal < found.inputs
        and all(graph_passes()[name].is_exact for name in names)
    ):
        text = (
            f"{agreement_text(found)}; these passes are exact, so {options.target} is not written"
        )
        raise CommandError(text, NOT_SO)
    write(options.target, made.content)
    before = os.path.getsize(options.source)
    size = f"{options.target}: {len(made.content):,} bytes, {before:,} before"
    people = f"{text_of(made, found, width)}\n\n{size}"
    return shown(options, people, json=lambda: as_json(document(made, found)))


def _names(options: argparse.Namespace) -> list[str]:
    names = [*(pass_bundles()[options.bundle].passes if options.bundle else ()), *options.passes]
    for name in names:
        if name not in graph_passes():
            meant = did_you_mean(name, graph_passes())
            raise CommandError(f"no pass is called {name!r}{meant} (--list shows all)", USAGE)
    if not names:
        raise CommandError("no pass is asked for; --list shows all", USAGE)
    return names


def _rewritten(source: str, names: list[str], subgraphs: int) -> RewrittenModel:
    try:
        with steps("passes", lambda: len(names) * subgraphs) as step:
            return rewrite_model(source, names, step)
    except ModelError as error:
        raise CommandError(str(error)) from error
    except ValueError as error:
        raise CommandError(f"{source} cannot be rewritten: {error}") from error
    except OSError as error:
        raise cannot_read(source, error) from error


def _checked(options: argparse.Namespace, graph: Graph, made: RewrittenModel) -> Agreement | None:
    if options.check is None and options.images is None:
        return None
    graph = with_picture_size(graph, options.input_size)
    runtime = find_runtime()
    feeds_of(graph, ())  # rejects unsupported inputs
    pictures = (
        [] if options.images is None else list(picture_paths(find_pictures([options.images])))
    )
    sets: Iterator[Arrays]
    if options.images is None:
        sets = (input_sets(graph, seed)[0] for seed in range(options.check))
    else:
        sets = (picture_inputs(graph, each) for each in pictures)
    with steps("inputs", lambda: options.check or len(pictures)) as step:
        return agreement(
            options.source, made.content, sets, runtime, step, graph, options.signature
        )
