# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl tune`: finds the fastest kernels for models ahead of their use."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from delegate import Model, Options, Unsupported
from delegate.inspect import Graph
from tflite_opencl.cli.flags import (
    PLACED_THREADS,
    add_device_arguments,
    add_flag,
    add_models,
    models_of,
    options_of,
)
from tflite_opencl.cli.outputs import as_json, shown
from tflite_opencl.console import bars
from tflite_opencl.console.errors import CommandError, UsageError
from tflite_opencl.console.exit_codes import NOT_SO
from tflite_opencl.console.tables import columns, render, terminal_width
from tflite_opencl.harness.open_sizes import with_picture_size
from tflite_opencl.interpreters.interpreter import delegated, read_graph
from tflite_opencl.interpreters.runtime import Runtime, find_runtime

HELP = "measure which kernels are the fastest for models on this device, and keep that"
EXAMPLES = (
    ("tflite-opencl tune model.tflite", "on the first device that works"),
    ("tflite-opencl tune a.tflite b.tflite --device pocl", "two models, on a device"),
    ("tflite-opencl tune model.tflite --batch 8", "as label_image --batch 8 runs it"),
)


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result for one model."""

    model: str
    device: str
    nodes: int
    delegated: int
    seconds: float  # in total
    measured_seconds: float  # of these; 0: everything was cached
    tuning_left: int  # choices that are not measured yet
    why_not: str = ""  # why nothing was tuned


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's arguments."""
    add_models(parser)
    add_flag(parser, "input_size")
    add_flag(parser, "batch", more=", which other kernels may be the fastest for")
    add_device_arguments(parser, tune="full")
    add_flag(parser, "threads", PLACED_THREADS, " that --placement times")
    add_flag(parser, "json")


def run(options: argparse.Namespace) -> str:
    """Return the text to print.

    Raises: CommandError: a model cannot be read or run, or there is no device; or none of a model's
        nodes runs on it, in which case the text is the result.
    """
    models = models_of(options)
    leaves = {"exclude_ops": options.exclude_ops, "placement": options.placement != "device"}
    for name in filter(leaves.get, leaves if options.batch else ()):
        raise UsageError(f"--batch: OpenCL runs the whole model, and --{name} is given")
    graphs = [with_picture_size(read_graph(name), options.input_size) for name in models]
    told = options_of(options, graphs, profiling=False)
    named = zip(models, graphs, strict=True)
    if options.batch:
        found = [_tuned_batch(*each, told, options.batch) for each in named]
    else:
        runtime = find_runtime()
        found = [_tuned(*each, told, runtime, options.threads) for each in named]
    width = terminal_width()
    facts = {"models": [asdict(each) for each in found]}
    text = shown(options, _text(found, width), json=lambda: as_json(facts))
    if not all(each.delegated for each in found):
        raise CommandError(text, NOT_SO)
    return text


def _tuned(name: str, graph: Graph, told: Options, runtime: Runtime, threads: int) -> Tuned:
    begun = time.perf_counter()
    with (
        bars.start(os.path.basename(name)) as watch,
        delegated(name, graph, told, runtime, "builtin", False, threads) as (_, delegate),
    ):
        return Tuned(
            model=name,
            device=delegate.device_name,
            nodes=len(graph.nodes),
            delegated=sum(verdict.is_taken for verdict in delegate.verdicts),
            seconds=time.perf_counter() - begun,
            measured_seconds=watch.seconds["tune"],
            tuning_left=delegate.tuning_left,
        )


def _tuned_batch(name: str, graph: Graph, told: Options, batch: int) -> Tuned:
    begun, nodes = time.perf_counter(), len(graph.nodes)
    with bars.start(f"{os.path.basename(name)}, batches of {batch}") as watch:
        try:
            with Model(graph, batch=batch, **told.of_model()) as model:
                device, left = model.device.name, model.tuning_left
        except Unsupported as refusal:
            why = f"OpenCL does not run the whole model: {refusal}"
            return Tuned(name, "", nodes, 0, time.perf_counter() - begun, 0.0, 0, why)
    seconds = time.perf_counter() - begun
    return Tuned(name, device, nodes, nodes, seconds, watch.seconds["tune"], left)


def _text(found: Sequence[Tuned], width: int) -> str:
    rows = []
    for each in found:
        outcome = f"tuned, {each.measured_seconds:.1f} s of it for measuring"
        if not each.delegated:
            outcome = f"nothing to tune: {each.why_not or 'no node runs on OpenCL'}"
        elif each.tuning_left:
            outcome = f"not finished: {each.tuning_left} choices are left"
        elif not each.measured_seconds:
            outcome = "all was known"
        nodes, name = f"{each.delegated} of {each.nodes}", os.path.basename(each.model)
        rows.append((name, nodes, f"{each.seconds:.1f}", outcome))
    shown = columns(("model", "nodes on OpenCL", "seconds", ""), rows, left=1)
    devices = dict.fromkeys(each.device for each in found if each.device)
    return "\n".join([render(width, shown), *(f"device: {each}" for each in devices)])
