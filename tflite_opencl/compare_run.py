# SPDX-License-Identifier: Apache-2.0
"""All paths of one model, each in its own process, timed in turns and compared."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import Graph, Options
from label_image.compare import difference
from label_image.feeds import scale_of
from label_image.labels import format_row, top_results
from tflite_opencl.common.energy import Meter
from tflite_opencl.common.timing import SETTLE_S, turns
from tflite_opencl.compare_paths import REFERENCE, RunPath
from tflite_opencl.compare_records import ModelResult, PathResult, timing_of
from tflite_opencl.path_process import PathFailed, PathProcess

_ROUNDS = 5
_WARM_UP_RUNS = 2  # of later blocks: they find other paths' data in the caches
Outputs = Sequence[NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for all paths and models."""

    count: int  # timed runs a path
    warmup_runs: int
    threads: int
    opencl: Options
    seconds: float  # the longest that one answer of a path may take
    labels: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Given:
    """A model and what it is given."""

    model: str  # its file
    graph: Graph
    inputs: Outputs
    what: str  # for people


class _Running:
    """One path while it is timed."""

    def __init__(self, path: RunPath, outputs: str) -> None:
        self.path = path
        self.outputs = outputs  # the file that they are written to
        self.result = PathResult(path.text)
        self.process: PathProcess | None = None
        self.meter = Meter()
        self.metered = 0  # runs whose energy was measured, warm-up included
        self.runs_ms: list[float] = []
        self.wall_ms = self.cpu_ms = 0.0

    @contextlib.contextmanager
    def step(self) -> Any:
        """Turn a failure into the path's result; it is not timed any more."""
        try:
            yield
        except PathFailed as error:
            self.result = replace(self.result, failure=str(error))
            if self.process is not None:
                self.process.close()
            self.process = None

    def block(self, runs: int, warmup: int) -> None:
        assert self.process is not None
        time.sleep(SETTLE_S)
        with self.meter.measured():
            answer = self.process.time(runs, warmup)
        self.metered += runs + warmup
        self.runs_ms += answer["runs_ms"]
        self.wall_ms += answer["wall_ms"]
        self.cpu_ms += answer["cpu_ms"]

    def finish(self) -> None:
        assert self.process is not None
        self.result = replace(self.result, peak_bytes=self.process.end())


def compared(
    given: Given,
    paths: Sequence[RunPath],
    settings: Settings,
    folder: Path,
    tell: Callable[[str], None],
) -> ModelResult:
    """Return what each path gives for the model; a path that fails says why.

    `folder`: for files on the way. `tell`: is told what is done, for people.
    """
    inputs = str(folder / "inputs.npz")
    np.savez(inputs, *given.inputs)
    running = [_Running(path, str(folder / f"{n}.npz")) for n, path in enumerate(paths)]
    with contextlib.ExitStack() as stack:
        for each in running:
            tell(f"{given.what}: {each.path.text} opens")
            with each.step():
                each.process = stack.enter_context(_opened(each, given.model, inputs, settings))
                _take_facts(each)
        _time(running, settings, tell)
        for each in running:
            with each.step():
                if each.process is not None:
                    each.finish()
    tell("the reference kernels run")
    expected, why_not = _reference(running, given.model, inputs, settings, folder)
    found = [_judged(each, given, settings, expected, why_not) for each in running]
    digest = hashlib.sha256(Path(given.model).read_bytes()).hexdigest()
    return ModelResult(Path(given.model).name, digest, given.what, found)


def _opened(each: _Running, model: str, inputs: str, settings: Settings) -> PathProcess:
    return PathProcess(
        each.path, model, inputs, each.outputs, settings.threads, settings.opencl, settings.seconds
    )


def _take_facts(each: _Running) -> None:
    assert each.process is not None
    each.result = replace(each.result, **each.process.facts)
    first = each.process.time(1, 0)
    each.result = replace(each.result, first_ms=first["runs_ms"][0])


def _time(running: Sequence[_Running], settings: Settings, tell: Callable[[str], None]) -> None:
    rounds = min(_ROUNDS, settings.count)
    for number, each in turns(running, rounds):
        if each.process is None:
            continue
        tell(f"round {number + 1} of {rounds}: {each.path.text}")
        runs = settings.count // rounds + (number < settings.count % rounds)
        warmup = settings.warmup_runs if number == 0 else min(_WARM_UP_RUNS, settings.warmup_runs)
        with each.step():
            each.block(runs, warmup)


def _reference(
    running: Sequence[_Running], model: str, inputs: str, settings: Settings, folder: Path
) -> tuple[Outputs | None, str]:
    """Return the outputs of the reference kernels, or why there are none."""
    for each in running:
        if each.path.kind == REFERENCE:
            return _outputs(each), each.result.failure
    each = _Running(RunPath(REFERENCE, REFERENCE), str(folder / "reference.npz"))
    with each.step(), _opened(each, model, inputs, settings) as each.process:
        each.process.time(1, 0)
        each.finish()
    return _outputs(each), each.result.failure


def _outputs(each: _Running) -> Outputs | None:
    if each.result.failure:
        return None
    with np.load(each.outputs) as kept:
        return [kept[f"arr_{number}"] for number in range(len(kept.files))]


def _judged(
    each: _Running, given: Given, settings: Settings, expected: Outputs | None, why_not: str
) -> PathResult:
    outputs = _outputs(each)
    if outputs is None:
        return each.result
    why = f"the reference kernels cannot run this model: {why_not}" if why_not else ""
    apart = difference(outputs, expected, why)
    return replace(
        each.result,
        timing=timing_of(each.runs_ms, each.cpu_ms / each.wall_ms if each.wall_ms else 0.0),
        joules=each.meter.joules / each.metered if each.meter.source else None,
        top=_top(outputs, given.graph, settings.labels),
        quanta=apart.quanta,
        difference=apart.floats,
        no_difference="" if apart.quanta is not None or apart.floats is not None else apart.reason,
    )


def _top(outputs: Outputs, graph: Graph, labels: Sequence[str]) -> str:
    """Return the best class of the first output; "" where it has no classes."""
    if not outputs[0].ndim or outputs[0].shape[-1] < 2:
        return ""
    scale, zero_point = scale_of(graph.outputs[0])
    dtype = graph.inputs[0].dtype
    try:
        best = top_results(outputs[0], dtype, 1, -np.inf, scale, zero_point)
    except (ValueError, TypeError):
        return ""
    return format_row(best[0], labels) if best else ""


def machine_facts(facts: Mapping[str, str], meter: Meter | None = None) -> Mapping[str, str]:
    """Return these facts, and where energy is read."""
    source = (meter or Meter()).source
    return {**facts, "energy": source or "not told: no counter or sensor that may be read"}
