# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl run`: runs any model on arrays, sound or numbers, also frame by frame."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph
from tflite_opencl.cli.flag_values import named_file, output_folder
from tflite_opencl.cli.flags import add_device_arguments, add_flag, add_models, model_of, options_of
from tflite_opencl.cli.outputs import as_json, shown
from tflite_opencl.console.errors import CommandError, require_writable
from tflite_opencl.console.exit_codes import NOT_SO, USAGE
from tflite_opencl.console.files import replaced_file
from tflite_opencl.console.tables import columns, render, terminal_width
from tflite_opencl.harness.feeds import feeds_of, names_of, number_of, place_of
from tflite_opencl.harness.open_sizes import with_file_shapes, with_picture_size
from tflite_opencl.interpreters.interpreter import allocated, delegated, failures, read_graph
from tflite_opencl.interpreters.runtime import Runtime, runtime_if_any
from tflite_opencl.models.build import sizes
from tflite_opencl.oracle.difference import difference
from tflite_opencl.oracle.finite import not_finite
from tflite_opencl.run.frames import RunInputs, frames_of
from tflite_opencl.run.judging import OutputAccuracy, judge_series
from tflite_opencl.run.runs import RunSeries, series

HELP = "run any model on files: arrays, sound or numbers; beside the CPU, with what differs"
EXAMPLES = (
    ("tflite-opencl run model.tflite --input x=values.npy --output results",
     "results/NAME.npy of each output"),
    ("tflite-opencl run wake_word.tflite --input 0=speech.wav --frames --output results",
     "a streaming model over a whole file"),
    ("tflite-opencl run dtln.tflite --input 0=speech.wav --frames --carry 1=1 --output results",
     "output 1 is input 1 of the next run"),
)  # fmt: skip
_BEYOND_NAMES = re.compile(r"[^\w.-]+")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's arguments."""
    add_models(parser)
    add_flag(parser, "signature")
    kinds = (
        ": .npy; .wav, as samples from -1 to 1 at the input's scale; .txt, numbers of the input's "
        "own type. Inputs without one get zeros"
    )
    add_flag(parser, "input", [], kinds, action="append")
    add_flag(parser, "input_size", more="; an input of open sizes has else those of its .npy file")
    parser.add_argument(
        "--frames",
        action="store_true",
        help="cut files into frames of an input's size and run once for each; variables keep what "
        "they hold. A file of one frame serves every run",
    )
    parser.add_argument(
        "--carry",
        type=named_file,
        action="append",
        default=[],
        metavar="OUTPUT=INPUT",
        help="an output that is an input of the next run, by name or number, as state is",
    )
    add_flag(parser, "output", convert=output_folder, required=True)
    add_device_arguments(parser)
    add_flag(parser, "json")


def run(options: argparse.Namespace) -> str:
    """Return the text to print.

    Raises:
        CommandError: the model cannot be read or run, no input is given, or a file cannot be
            written; or an output is not finite, in which case the text is the result. RunError: a
            file does not fit its input.
    """
    model, folder = model_of(options), Path(options.output)
    graph = with_file_shapes(read_graph(model, options.signature), options.input)
    graph = with_picture_size(graph, options.input_size, files=options.input)
    feeds_of(graph, ())  # rejects unsupported inputs
    if not options.input and graph.inputs:
        raise CommandError("no input is given: --input NAME=FILE", USAGE)
    files: dict[int, tuple[str, str]] = {}
    for name, path in options.input:
        number = number_of(name, graph)
        if number in files:
            raise CommandError(f"--input {name}: this input is given twice", USAGE)
        files[number] = (f"--input {name}", path)
    carried = _carried(graph, options.carry)
    written = _paths(folder, graph)
    for path in written if folder.is_dir() else ():
        require_writable(path)
    frames = frames_of(graph, files, options.frames)
    runtime, told = runtime_if_any(), options_of(options, [graph], profiling=False)
    with delegated(model, graph, told, runtime, "builtin") as (made, delegate):
        left = [verdict.node for verdict in delegate.verdicts if not verdict.is_taken]
        nodes = f"{len(delegate.verdicts) - len(left)} of {len(graph.nodes)}"
        ours = series(made, f"opencl on {delegate.device.name}", nodes, graph, frames, carried)
    theirs, why = None, ""
    try:
        with failures(model):
            alone = allocated(runtime, model, _beside(runtime), graph=graph)
        name = "numpy" if runtime.why_not else "cpu"
        theirs = series(alone, name, "", graph, frames, carried)
    except CommandError as error:
        if not runtime.why_not:
            raise
        why = f"nothing is beside it: {runtime.why_not}; numpy: {error}"
    judgement = judge_series(ours, runtime, graph, model, frames, carried, left)
    _write(folder, written, ours, is_stacked=options.frames)
    fault = "" if told.allows_fp16 else judgement.fault
    no_result = not_finite(ours.outputs, graph.outputs)
    failure = f"no result: {no_result}" if no_result else ""
    table = _text(graph, frames, ours, theirs, written, judgement)
    people = "\n".join(filter(None, (table, why, *judgement.notes, fault, failure)))
    document = _document(graph, ours, theirs, written, judgement) | {"failure": no_result}
    text = shown(options, people, json=lambda: as_json(document))
    if fault or no_result:
        raise CommandError(text, NOT_SO)
    return text


def _beside(runtime: Runtime) -> str:
    """Return the CPU's kernels; numpy's if no TFLite is installed."""
    return "reference" if runtime.why_not else "builtin"


def _carried(graph: Graph, asked: Sequence[tuple[str, str]]) -> dict[int, int]:
    """Return the output that is copied to each input after a run.

    Raises: CommandError: there is no such output, or it does not fit the input.
    """
    found = {}
    for giver, taker in asked:
        target = number_of(taker, graph)
        place = place_of(giver, graph.outputs, graph.output_names)
        if place is None:
            names = ", ".join(names_of(graph.outputs, graph.output_names))
            raise CommandError(f"--carry: there is no output {giver}; the model has {names}", USAGE)
        source, result = graph.outputs[place], graph.inputs[target]
        if (source.shape, source.dtype) != (result.shape, result.dtype):
            raise CommandError(
                f"--carry {giver}={taker}: {sizes(source.shape)} {source.dtype} does not fit "
                f"{sizes(result.shape)} {result.dtype}",
                USAGE,
            )
        found[target] = place
    return found


def _paths(folder: Path, graph: Graph) -> list[str]:
    """Return each output's file, named after the output."""
    paths: list[str] = []
    for number, tensor in enumerate(graph.outputs):
        name = _BEYOND_NAMES.sub("_", tensor.name).strip("._") or f"output_{number}"
        path = str(folder / f"{name}.npy")
        paths.append(str(folder / f"{name}_{number}.npy") if path in paths else path)
    return paths


def _write(folder: Path, paths: Sequence[str], ours: RunSeries, is_stacked: bool) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, values in zip(paths, ours.outputs, strict=True):
            with replaced_file(path, "wb") as file:
                np.save(file, values if is_stacked else values[0])
    except OSError as error:
        raise CommandError(f"cannot write to {folder}: {error.strerror or error}") from error


def _text(
    graph: Graph,
    frames: RunInputs,
    ours: RunSeries,
    theirs: RunSeries | None,
    written: Sequence[str],
    judgement: OutputAccuracy,
) -> str:
    rows = [
        (each.name, each.nodes, str(len(each.times_ms)), f"{each.times_ms[0]:.3f}",
         f"{each.median_ms:.3f}")
        for each in filter(None, (ours, theirs))
    ]  # fmt: skip
    heads = ("path", "nodes on the device", "runs", "first ms", "median ms")
    apart = _differences(ours, theirs)
    right = judgement.each or [None] * len(apart)
    results = [
        (path, f"{sizes(tensor.shape)} {tensor.dtype}", _apart(far, values), _apart(off, values))
        for path, tensor, far, off, values in zip(
            written, graph.outputs, apart, right, ours.outputs, strict=True
        )
    ]
    beside = f"beside {theirs.name}" if theirs else "beside it"
    names = "output", "one run's", beside, f"beside {judgement.short_name}"
    tables = [columns(heads, rows, 1), columns(names, results, 4)]
    lines = [render(terminal_width(), *tables)]
    if frames.padded:
        lines.append(f"{frames.padded} zeros are behind the last frame")
    return "\n".join(lines)


def _apart(far: float | None, values: NDArray[Any]) -> str:
    if far is None:
        return "not compared"
    if far == 0:
        return "equal"
    return f"up to {far:g} apart" + ("" if values.dtype.kind == "f" else " quanta")


def _differences(ours: RunSeries, theirs: RunSeries | None) -> Sequence[int | float | None]:
    """Return each output's difference from the other path's; None: not compared."""
    found = difference(ours.outputs, theirs.outputs if theirs else None, "").each
    return found or [None] * len(ours.outputs)


def _document(
    graph: Graph,
    ours: RunSeries,
    theirs: RunSeries | None,
    written: Sequence[str],
    judgement: OutputAccuracy,
) -> dict[str, Any]:
    apart = _differences(ours, theirs)
    right = judgement.each or [None] * len(apart)
    return {
        "paths": [
            {"name": each.name, "nodes": each.nodes, "times_ms": each.times_ms}
            for each in filter(None, (ours, theirs))
        ],
        "outputs": [
            {"name": tensor.name, "file": path, "shape": list(tensor.shape),
             "dtype": tensor.dtype, "apart": far, "off": off}
            for tensor, path, far, off in zip(
                graph.outputs, written, apart, right, strict=True
            )
        ],
        "judge": {"kernels": judgement.name, "notes": [*judgement.notes]},
    }  # fmt: skip
