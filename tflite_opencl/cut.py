# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl cut`: extracts nodes of a model as models, with their actual input values."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from delegate.inspect import Graph, infer
from tflite_opencl.cli.flag_values import output_folder
from tflite_opencl.cli.flags import add_flag, add_flags, add_models, model_of
from tflite_opencl.console import bars
from tflite_opencl.console.errors import CommandError, require_writable
from tflite_opencl.console.exit_codes import USAGE
from tflite_opencl.harness.feeds import inputs_for
from tflite_opencl.harness.open_sizes import sized_graph
from tflite_opencl.interpreters.interpreter import read_graph
from tflite_opencl.interpreters.runtime import runtime_if_any
from tflite_opencl.models.cut import Uncut, cut, part_name, write_part
from tflite_opencl.oracle.judge import Values, values_of

HELP = "write nodes of a model as models of their own, as a driver's author wants to have them"
EXAMPLES = (
    ("tflite-opencl cut model.tflite --nodes all --output parts", "parts/000.tflite, ..."),
    ("tflite-opencl cut model.tflite --nodes 12,20-23 --output parts --inputs -i picture.jpg",
     "one node, and four together, with what a picture makes of their inputs and outputs"),
)  # fmt: skip
_PART = re.compile(r"(\d+)(?:-(\d+))?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's arguments."""
    add_models(parser)
    add_flags(parser, "signature", "input_size")
    parser.add_argument(
        "--nodes",
        default="all",
        metavar="12|3-9|all",
        help="a node, several as one model, a list of these, or each by itself (default: all)",
    )
    add_flag(parser, "output", convert=output_folder, required=True)
    parser.add_argument(
        "--inputs",
        action="store_true",
        help="write, too, what arrives there and what TFLite's reference kernels make of it, as "
        ".npy: of a picture, or of random numbers",
    )
    add_flag(parser, "image")


def run(options: argparse.Namespace) -> str:
    """Return the text to print.

    Raises:
        CommandError: the model cannot be read or run, --nodes is out of range, none of these
            nodes can be cut, or a file cannot be written.
    """
    model, folder = model_of(options), Path(options.output)
    runtime, graph = runtime_if_any(), read_graph(model, options.signature)
    graph = infer(sized_graph(graph, model, options.input_size, options.image, runtime))
    parts = _parts(options.nodes, len(graph.nodes))
    if options.image is not None and not options.inputs:
        raise CommandError("--image is for --inputs", USAGE)
    for first, last in parts if folder.is_dir() else ():
        require_writable(str(folder / f"{part_name(first, last)}.tflite"))
    values, told = None, ""
    if options.inputs:
        told = f", with the values of {runtime.reference}"
        inputs = inputs_for(graph, options.image)
        with bars.waiting("running the whole model"):
            values = values_of(runtime, model, graph, inputs)
    lines, written = [], 0
    with bars.parts() as tell:
        for number, (first, last) in enumerate(parts):
            tell(number / len(parts), f"writing node {first}")
            try:
                files = _write(folder, graph, first, last, values)
            except Uncut as error:
                lines.append(f"{part_name(first, last)}: not written: {error}")
            else:
                written += 1
                lines.append(f"{files[0]}: {', '.join(_ops(graph, first, last))}")
    if not written:
        raise CommandError("\n".join([*lines, "none of these nodes makes a model of its own"]))
    return "\n".join([*lines, f"{written} of {len(parts)} written to {folder}{told}"])


def _parts(asked: str, count: int) -> list[tuple[int, int]]:
    """Return the first and last node of each file."""
    if asked == "all":
        return [(number, number) for number in range(count)]
    found = []
    for word in asked.split(","):
        match = _PART.fullmatch(word.strip())
        if match is None:
            raise CommandError(f"--nodes: '{word}' is not 12, 3-9 or all", USAGE)
        first = int(match[1])
        last = int(match[2] or first)
        if not first <= last < count:
            raise CommandError(f"--nodes: {word}: the model has nodes 0 to {count - 1}", USAGE)
        found.append((first, last))
    return found


def _ops(graph: Graph, first: int, last: int) -> Iterator[str]:
    return (node.op for node in graph.nodes[first : last + 1])


def _write(folder: Path, graph: Graph, first: int, last: int, values: Values | None) -> list[str]:
    part = cut(graph, first, last)
    inputs, outputs = (
        [] if values is None else [*map(values, tensors)] for tensors in (part.inputs, part.outputs)
    )
    return write_part(folder, part_name(first, last), part, inputs, outputs)
