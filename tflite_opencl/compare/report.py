# SPDX-License-Identifier: Apache-2.0
"""The report of a machine: its description, and the results of its paths for each model."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from delegate.inspect import usable_processors
from tflite_opencl import __version__
from tflite_opencl.compare.records import ModelResult, Report, RunPath, paths_of
from tflite_opencl.compare.runs import CompareSettings, Given, compared
from tflite_opencl.console import bars
from tflite_opencl.console.errors import CommandError
from tflite_opencl.harness.feeds import inputs_for
from tflite_opencl.harness.open_sizes import sized_graph
from tflite_opencl.interpreters.interpreter import read_graph
from tflite_opencl.interpreters.runtime import runtime_if_any
from tflite_opencl.timing.machine import Meter, cpu_name

PATHS, WITHOUT_TFLITE = "cpu,reference,opencl", "opencl"
T = TypeVar("T")


def report_of(
    models: Sequence[Given], paths: Sequence[RunPath] | None, settings: CompareSettings
) -> Report:
    """Return the results of this machine's paths for each model.

    `paths`: None: all available. `settings`: 0 threads mean one per core.
    """
    if paths is None:
        paths = paths_of(WITHOUT_TFLITE if runtime_if_any().why_not else PATHS)
    here = replace(settings, threads=settings.threads or usable_processors())

    def compare(given: Given, tell: Callable[[str], None]) -> ModelResult:
        return compared(given, paths, here, tell)

    return Report(*each_model(models, here.threads, compare))


def each_model(
    models: Sequence[Given], threads: int, time: Callable[[Given, Callable[[str], None]], T]
) -> tuple[Mapping[str, str], list[T]]:
    """Return the machine facts relevant to timings, and the results of `time` for each model.

    `time`: called with a model and a function that reports progress.
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

    `picture`: a file; None: random numbers. `signature`: selects a graph; None: the first.
    `size`: height and width of a picture input that leaves them open; None: the picture's.
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
    load, cores = os.getloadavg()[0], usable_processors()
    busy = f" on {cores} cores: other programs make all times longer" if load > cores / 2 else ""
    return {
        "CPU": cpu_name(),
        "threads": str(threads),
        "load at the start": f"{load:.1f}{busy}",
        "versions": f"tflite-opencl {__version__}, {runtime.text}, "
        f"Python {platform.python_version()}, numpy {np.__version__}",
        "energy": Meter().source or "not told: no counter or sensor that may be read",
    }
