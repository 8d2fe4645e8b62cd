# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl verify`: compares every node on the device with TFLite's reference kernels."""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from delegate import Options
from delegate.inspect import Graph, infer, write_model
from tflite_opencl.cli.flag_values import OutputFolder, OutputPath, positive
from tflite_opencl.cli.flags import (
    add_device_arguments,
    add_flag,
    add_flags,
    add_models,
    model_of,
    options_of,
)
from tflite_opencl.cli.outputs import as_json, shown
from tflite_opencl.console.errors import CommandError, write
from tflite_opencl.console.exit_codes import NOT_SO
from tflite_opencl.console.tables import terminal_width
from tflite_opencl.faults.find import Suspect, write_faults
from tflite_opencl.harness.feeds import picture_inputs
from tflite_opencl.harness.open_sizes import sized_graph
from tflite_opencl.interpreters.interpreter import read_graph
from tflite_opencl.interpreters.runtime import Runtime, runtime_if_any
from tflite_opencl.models.build import Array
from tflite_opencl.models.cut import (
    Uncut,
    cut,
    part_name,
    script_of,
    write_part,
)
from tflite_opencl.oracle.judge import Values, judged_outputs, values_of
from tflite_opencl.oracle.values import input_sets
from tflite_opencl.verify.errors import errors, map_image
from tflite_opencl.verify.records import Fault, InputSets, NothingRuns, Verification
from tflite_opencl.verify.runs import verified
from tflite_opencl.verify.suspects import Suspects
from tflite_opencl.verify.text import document, text_of

HELP = "compare each node on the device with TFLite's reference kernels; exit code 1 if one differs"
EXAMPLES = (
    ("tflite-opencl verify -m model.tflite", "on random input"),
    ("tflite-opencl verify -m model.tflite -i picture.jpg --heatmap wrong.png",
     "on a picture; draw where the first wrong node is wrong"),
    ("tflite-opencl verify -m model.tflite --fault bug", "a C program for the driver's authors"),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's arguments."""
    add_models(parser)
    add_flags(parser, "signature", "input_size")
    add_device_arguments(parser)
    given = parser.add_mutually_exclusive_group()
    add_flag(given, "image")
    given.add_argument(
        "--random", type=positive, default=1, metavar="N", help="random inputs (default: 1)"
    )
    add_flag(parser, "tolerance", 0)
    parser.add_argument(
        "--alternative", metavar="NAME", help='take it wherever a node has it, as "plain"'
    )
    parser.add_argument(
        "--heatmap", type=OutputPath, metavar="FILE.png",
        help="draw where the first wrong node is wrong",
    )  # fmt: skip
    parser.add_argument(
        "--cut",
        type=OutputFolder,
        metavar="DIR",
        help="write the first wrong node as a model of its own, with its inputs, what the "
        "reference kernels make of them, and a script that shows the fault",
    )
    add_flags(parser, "fault", "json")


def run(options: argparse.Namespace) -> str:
    """Return the text to print.

    Raises: CommandError: the model, the picture, the device or the alternative cannot be used,
        nothing runs on the device, or a node differs, in which case the text is the result.
    """
    model = model_of(options)
    runtime = runtime_if_any()
    graph = read_graph(model, options.signature)
    graph = sized_graph(graph, model, options.input_size, options.image, runtime)
    told = options_of(options, [graph], profiling=True)
    if options.image is None:
        sets = InputSets(options.random, lambda seed: input_sets(graph, seed)[0])
    else:
        picture = picture_inputs(graph, options.image)
        sets = InputSets(1, lambda number: picture)
    suspects = Suspects(model, graph, runtime, sets)
    try:
        found = verified(model, graph, told, runtime, sets, options.tolerance)
    except NothingRuns as error:
        written = _faults(options.fault, suspects.left(error.verdicts), told, runtime)
        raise CommandError("\n".join([str(error), *written])) from error
    lines = [] if options.heatmap is None else [_drawn(found, options.heatmap)]
    if options.cut is not None and found.fault is None:
        lines.append(f"{options.cut} is not written: no node is wrong")
    elif options.cut is not None and (fault := found.fault) is not None:
        values = values_of(runtime, model, graph, sets.of(fault.number))
        lines.append(_cut(fault, graph, values, told.device, runtime, Path(options.cut)))
    lines += _faults(options.fault, suspects.of(found), told, runtime)
    width = terminal_width()
    people = "\n\n".join([text_of(found, width), *lines])
    text = shown(options, people, json=lambda: as_json(document(found)))
    if found.is_wrong:
        raise CommandError(text, NOT_SO)
    return text


def _faults(
    folder: str | None, suspects: Iterable[Suspect], options: Options, runtime: Runtime
) -> list[str]:
    """Write the faults if there is a folder for them; return lines that say so."""
    if folder is None:
        return []
    plain = replace(options, profiling=False)
    lines = [*write_faults(Path(folder), suspects, plain, runtime)]
    return lines or [f"{folder} is not written: no kernel is wrong when it runs alone"]


def _cut(
    fault: Fault,
    graph: Graph,
    values: Values,
    device: str | int | None,
    runtime: Runtime,
    folder: Path,
) -> str:
    """Write the wrong node and a reproducer; return a line that says so."""
    step, nodes = fault.check.step, [fault.check.step.node, *fault.check.with_nodes]
    name, why = part_name(min(nodes), max(nodes)), f"{step.op}, alternative {step.alternative}"
    try:
        part = cut(infer(graph), min(nodes), max(nodes))
        # A node wrong only on the device's inputs gets these.
        own: dict[int | None, Array] = dict(fault.inputs.items())
        inputs = [own[t.origin] if t.origin in own else values(t) for t in part.inputs]
    except Uncut as error:
        return f"{folder} is not written: {error}"
    outputs = judged_outputs(runtime, part, write_model(part), inputs)
    how = f"device={device!r}, alternative={step.alternative!r}"
    made = f"__import__('delegate').OpenCLDelegate({f'{name}.tflite'!r}, {how})"
    script = script_of(name, len(inputs), runtime, made, why)
    files = write_part(folder, name, part, inputs, outputs, script)
    return f"{folder}: {', '.join(files)}"


def _drawn(found: Verification, path: str) -> str:
    """Draw the map of the first fault; return a line that says so."""
    if found.fault is None:
        return f"{path} is not written: no node is wrong"
    plane, name = errors(found.fault.got, found.fault.expected).plane
    png = io.BytesIO()
    map_image(plane).save(png, format="PNG")
    write(path, png.getvalue())
    return f"{path}: {name}; white is equal, red too much, blue too little"
