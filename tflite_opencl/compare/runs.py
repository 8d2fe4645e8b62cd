# SPDX-License-Identifier: Apache-2.0
"""All paths of one model, each in its own process, timed in turns and compared."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph
from tflite_opencl.common.difference import difference
from tflite_opencl.common.feeds import scale_of
from tflite_opencl.common.labels import format_row, top_results
from tflite_opencl.common.scores import are_scores
from tflite_opencl.common.timing import turns
from tflite_opencl.compare.path_run import Running, Settings
from tflite_opencl.compare.paths import REFERENCE, RunPath
from tflite_opencl.compare.records import ModelResult, PathResult

_ROUNDS = 5
_WARM_UP_RUNS = 2  # of later blocks: they find other paths' data in the caches
Outputs = Sequence[NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Given:
    """A model and what it is given."""

    model: str  # its file
    graph: Graph
    inputs: Outputs
    what: str  # for people


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
    running = [Running(path, str(folder / f"{n}.npz")) for n, path in enumerate(paths)]
    with contextlib.ExitStack() as stack:
        for each in running:
            tell(f"{given.what}: {each.path.text} opens")
            with each.step():
                each.take_facts(stack.enter_context(each.opened(given.model, inputs, settings)))
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


def _time(running: Sequence[Running], settings: Settings, tell: Callable[[str], None]) -> None:
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
    running: Sequence[Running], model: str, inputs: str, settings: Settings, folder: Path
) -> tuple[Outputs | None, str]:
    """Return the outputs of the reference kernels, or why there are none."""
    for each in running:
        if each.path.kind == REFERENCE:
            return _outputs(each), each.result.failure
    each = Running(RunPath(REFERENCE, REFERENCE), str(folder / "reference.npz"))
    with each.step(), each.opened(model, inputs, settings):
        each.ask(runs=1, warmup=0)
        each.finish()
    return _outputs(each), each.result.failure


def _outputs(each: Running) -> Outputs | None:
    if each.result.failure:
        return None
    with np.load(each.outputs) as kept:
        return [kept[f"arr_{number}"] for number in range(len(kept.files))]


def _judged(
    each: Running, given: Given, settings: Settings, expected: Outputs | None, why_not: str
) -> PathResult:
    outputs = _outputs(each)
    if outputs is None:
        return each.result
    why = f"the reference kernels cannot run this model: {why_not}" if why_not else ""
    apart = difference(outputs, expected, why)
    return replace(
        each.result,
        timing=each.timing(),
        joules=each.joules(),
        top=_top(outputs, given.graph, settings.labels),
        quanta=apart.quanta,
        difference=apart.floats,
        no_difference="" if apart.quanta is not None or apart.floats is not None else apart.reason,
    )


def _top(outputs: Outputs, graph: Graph, labels: Sequence[str]) -> str:
    """Return the best class of the first output; "" where it is no row of scores."""
    first, fed = replace(graph.outputs[0], shape=outputs[0].shape), graph.inputs[0]
    if not are_scores(graph, first, fed, len(labels)):
        return ""
    scale, zero_point = scale_of(first)
    best = top_results(outputs[0], fed.dtype, 1, -np.inf, scale, zero_point)
    return format_row(best[0], labels) if best else ""  # all may be NaN
