# SPDX-License-Identifier: Apache-2.0
"""One model on one path, timed as TFLite's benchmark_model does: by runs and by seconds.

Source: tflite/tools/benchmark/benchmark_model.cc
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tflite_opencl.compare.path_run import Running, Settings
from tflite_opencl.compare.paths import OPENCL, RunPath
from tflite_opencl.compare.records import PathResult, Timing
from tflite_opencl.compare.runs import Given

_BLOCK_S = 0.25  # how long a path is not heard of


@dataclass(frozen=True, slots=True)
class Limits:
    """When to end; the names are benchmark_model's."""

    num_runs: int
    min_secs: float
    max_secs: float
    run_delay: float  # seconds between two runs; 0: none
    warmup_runs: int
    warmup_min_secs: float


@dataclass(frozen=True, slots=True)
class Benchmarked:
    """What a model took."""

    model: str
    result: PathResult
    warmup: Timing | None = None
    nodes: Sequence[Mapping[str, Any]] = ()  # with their times, where they were asked for


def benchmarked(
    given: Given, path: RunPath, settings: Settings, limits: Limits, folder: Path, profiling: bool
) -> Benchmarked:
    """Return a model's times; a failure is in the result.

    `profiling`: take each node's time on OpenCL, too, in another process: launches are apart there.
    """
    inputs = str(folder / "inputs.npz")
    np.savez(inputs, *given.inputs)
    each = Running(path, "")
    warmup, nodes = None, []
    with each.step(), each.opened(given.model, inputs, settings) as facts:
        each.take_facts(facts)
        if limits.warmup_runs or limits.warmup_min_secs:
            _run(each, limits.warmup_runs, limits.warmup_min_secs, limits)
            warmup = each.timing()
            each.forget()
        _run(each, limits.num_runs, limits.min_secs, limits)
        each.finish()
        each.result = replace(each.result, timing=each.timing(), joules=each.joules())
    if profiling and path.kind == OPENCL and not each.result.failure:
        with each.step(), each.opened(given.model, inputs, settings, profiling):
            nodes = each.ask(profile=True)["rows"]
    return Benchmarked(Path(given.model).name, each.result, warmup, nodes)


def _run(each: Running, least_runs: int, least_s: float, limits: Limits) -> None:
    """Run at least so often and so long, but not beyond max_secs."""
    begin_s = time.monotonic()
    passed_s = 0.0
    while (len(each.runs_ms) < least_runs or passed_s < least_s) and passed_s <= limits.max_secs:
        runs = 1
        if each.runs_ms and not limits.run_delay:
            run_s = max(1e-6, each.wall_ms / 1e3 / len(each.runs_ms))
            wanted = max(least_runs - len(each.runs_ms), math.ceil((least_s - passed_s) / run_s))
            runs = max(1, min(wanted, int(_BLOCK_S / run_s)))
        each.block(runs, 0, limits.run_delay if each.runs_ms else 0)
        passed_s = time.monotonic() - begin_s
