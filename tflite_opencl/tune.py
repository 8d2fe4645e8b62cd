# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl tune`: measure which kernels are the fastest for models, before they are used."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from delegate import Options
from delegate.inspect import Graph
from tflite_opencl.common import bars
from tflite_opencl.common.errors import CommandError
from tflite_opencl.common.exit_codes import NOT_SO
from tflite_opencl.common.flags import (
    add_device_arguments,
    add_flag,
    add_models,
    as_json,
    models_of,
    options_of,
    shown,
)
from tflite_opencl.common.interpreter import delegated, read_graph
from tflite_opencl.common.runtime import Runtime, find_runtime
from tflite_opencl.common.tables import columns, render, terminal_width

HELP = "measure which kernels are the fastest for models on this device, and keep that"
EXAMPLES = (
    ("tflite-opencl tune model.tflite", "on the first device that works"),
    ("tflite-opencl tune a.tflite b.tflite --device pocl", "two models, on a device"),
)


@dataclass(frozen=True, slots=True)
class Tuned:
    """What became of one model."""

    model: str
    device: str
    nodes: int
    delegated: int
    seconds: float  # in all
    measured_seconds: float  # of it; 0: all was known
    tuning_left: int  # choices that could not be measured yet


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's arguments."""
    add_models(parser)
    add_device_arguments(parser, tune="full")
    add_flag(parser, "json")


def run(options: argparse.Namespace) -> str:
    """Return what to print.

    Raises: CommandError: a model cannot be read or run, or there is no device; or none of a model's
        nodes runs on it, of which the text is the answer.
    """
    models = models_of(options)
    graphs = [read_graph(name) for name in models]
    told = options_of(options, graphs, profiling=False)
    runtime = find_runtime()
    found = [_tuned(*each, told, runtime) for each in zip(models, graphs, strict=True)]
    width = terminal_width()
    facts = {"models": [asdict(each) for each in found]}
    text = shown(options, _text(found, width), json=lambda: as_json(facts))
    if not all(each.delegated for each in found):
        raise CommandError(text, NOT_SO)
    return text


def _tuned(name: str, graph: Graph, told: Options, runtime: Runtime) -> Tuned:
    begun = time.perf_counter()
    with (
        bars.start(os.path.basename(name)) as watch,
        delegated(name, graph, told, runtime, "builtin", is_shown=False) as (_, delegate),
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


def _text(found: Sequence[Tuned], width: int) -> str:
    rows = []
    for each in found:
        outcome = f"tuned, {each.measured_seconds:.1f} s of it for measuring"
        if not each.delegated:
            outcome = "nothing to tune: no node runs on OpenCL"
        elif each.tuning_left:
            outcome = f"not finished: {each.tuning_left} choices are left"
        elif not each.measured_seconds:
            outcome = "all was known"
        nodes, name = f"{each.delegated} of {each.nodes}", os.path.basename(each.model)
        rows.append((name, nodes, f"{each.seconds:.1f}", outcome))
    shown = columns(("model", "nodes on OpenCL", "seconds", ""), rows, left=1)
    return f"{render(width, shown)}\ndevice: {found[0].device}"
