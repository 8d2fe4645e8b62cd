# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl run`: any model on files of arrays, sound or numbers, frame by frame too."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph
from tflite_opencl.common.build import sizes
from tflite_opencl.common.difference import difference
from tflite_opencl.common.errors import CommandError
from tflite_opencl.common.exit_codes import NOT_SO, USAGE
from tflite_opencl.common.feeds import feeds_of, names_of, number_of, place_of
from tflite_opencl.common.finite import not_finite
from tflite_opencl.common.flag_values import named_file
from tflite_opencl.common.flags import (
    add_device_arguments,
    add_flag,
    add_models,
    as_json,
    model_of,
    options_of,
    shown,
)
from tflite_opencl.common.interpreter import allocated, delegated, failures, read_graph
from tflite_opencl.common.runtime import Runtime, runtime_if_any
from tflite_opencl.common.tables import columns, render, terminal_width
from tflite_opencl.run.frames import Frames, frames_of
from tflite_opencl.run.runs import Series, series

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
    add_flag(parser, "output", required=True)
    add_device_arguments(parser)
    add_flag(parser, "json")


def run(options: argparse.Namespace) -> str:
    """Return what to print.

    Raises:
        CommandError: the model cannot be read or run, no input is given, or a file cannot be
            written; or an output is not finite, of which the text is the answer. RunError: a file
            does not fit its input.
    """
    model, folder = model_of(options), Path(options.output)
    graph = read_graph(model, options.signature)
    feeds_of(graph, ())  # complains of what cannot be fed
    if not options.input and graph.inputs:
        raise CommandError("no input is given: --input NAME=FILE", USAGE)
    files: dict[int, tuple[str, str]] = {}
    for name, path in options.input:
        number = number_of(name, graph)
        if number in files:
            raise CommandError(f"--input {name}: this input is given twice", USAGE)
        files[number] = (f"--input {name}", path)
    carried = _carried(graph, options.carry)
    frames = frames_of(graph, files, options.frames)
    runtime, told = runtime_if_any(), options_of(options, [graph], profiling=False)
    with delegated(model, graph, told, runtime, "builtin") as (made, delegate):
        taken = sum(verdict.is_taken for verdict in delegate.verdicts)
        nodes = f"{taken} of {len(graph.nodes)}"
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
    written = _write(folder, graph, ours, is_stacked=options.frames)
    no_result = not_finite(ours.outputs, graph.outputs)
    failure = f"no result: {no_result}" if no_result else ""
    people = "\n".join(filter(None, (_text(graph, frames, ours, theirs, written), why, failure)))
    document = _document(graph, ours, theirs, written) | {"failure": no_result}
    text = shown(options, people, json=lambda: as_json(document))
    if no_result:
        raise CommandError(text, NOT_SO)
    return text


def _beside(runtime: Runtime) -> str:
    """Return the CPU's kernels; where no TFLite is installed, they are numpy's."""
    return "reference" if runtime.why_not else "builtin"


def _carried(graph: Graph, asked: Sequence[tuple[str, str]]) -> dict[int, int]:
    """Return the output that each input gets after a run.

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


def _write(folder: Path, graph: Graph, ours: Series, is_stacked: bool) -> list[str]:
    """Write each output as a file of its name; return their paths."""
    paths: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, (tensor, values) in enumerate(zip(graph.outputs, ours.outputs, strict=True)):
            name = _BEYOND_NAMES.sub("_", tensor.name).strip("._") or f"output_{number}"
            path = folder / f"{name}.npy"
            if str(path) in paths:
                path = folder / f"{name}_{number}.npy"
            np.save(path, values if is_stacked else values[0])
            paths.append(str(path))
    except OSError as error:
        raise CommandError(f"cannot write to {folder}: {error.strerror or error}") from error
    return paths


def _text(
    graph: Graph, frames: Frames, ours: Series, theirs: Series | None, written: Sequence[str]
) -> str:
    rows = [
        (each.name, each.nodes, str(len(each.times_ms)), f"{each.times_ms[0]:.3f}",
         f"{each.median_ms:.3f}")
        for each in filter(None, (ours, theirs))
    ]  # fmt: skip
    heads = ("path", "nodes on the device", "runs", "first ms", "median ms")
    apart = _differences(ours, theirs)
    results = [
        (path, f"{sizes(tensor.shape)} {tensor.dtype}", _apart(far, values))
        for path, tensor, far, values in zip(
            written, graph.outputs, apart, ours.outputs, strict=True
        )
    ]
    beside = f"beside {theirs.name}" if theirs else "beside it"
    tables = [columns(heads, rows, 1), columns(("output", "one run's", beside), results, 3)]
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


def _differences(ours: Series, theirs: Series | None) -> Sequence[int | float | None]:
    """Return how far each output is from the other path's; None: they are not compared."""
    found = difference(ours.outputs, theirs.outputs if theirs else None, "").each
    return found or [None] * len(ours.outputs)


def _document(
    graph: Graph, ours: Series, theirs: Series | None, written: Sequence[str]
) -> dict[str, Any]:
    apart = _differences(ours, theirs)
    return {
        "paths": [
            {"name": each.name, "nodes": each.nodes, "times_ms": each.times_ms}
            for each in filter(None, (ours, theirs))
        ],
        "outputs": [
            {"name": tensor.name, "file": path, "shape": list(tensor.shape),
             "dtype": tensor.dtype, "apart": far}
            for tensor, path, far in zip(graph.outputs, written, apart, strict=True)
        ],
    }  # fmt: skip
