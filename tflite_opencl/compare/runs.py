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
from tflite_opencl.common.labels import are_scores, format_row, top_results
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
    folder: Path = Path()  # for files on the way

    def on(self, path: RunPath, settings: Settings, name: str) -> Running:
        """Return a path that is to run it; `name`: of the file with its outputs."""
        inputs = self.folder / "inputs.npz"
        if not inputs.exists():
            np.savez(inputs, *self.inputs)
        return Running(path, settings, self.model, str(inputs), str(self.folder / f"{name}.npz"))


def run_all(
    given: Given,
    running: Sequence[Running],
    time: Callable[[], None],
    tell: Callable[[str], None],
) -> None:
    """Open all paths, `time` them, and let them write their outputs; a path that fails says why.

    `tell`: is told what is done, for people.
    """
    with contextlib.ExitStack() as stack:
        for each in running:
            tell(f"{Path(given.model).name}: {each.path.text} opens")
            with each.step():
                stack.enter_context(each.opened())
                each.first()
        time()
        for each in running:
            with each.step():
                if each.process is not None:
                    each.finish()


def compared(
    given: Given, paths: Sequence[RunPath], settings: Settings, tell: Callable[[str], None]
) -> ModelResult:
    """Return what each path gives for the model; a path that fails says why."""
    running = [given.on(path, settings, str(number)) for number, path in enumerate(paths)]
    rounds = min(_ROUNDS, settings.count)

    def time() -> None:
        for number, each in turns(running, rounds):
            if each.process is None:
                continue
            tell(f"round {number + 1} of {rounds}: {each.path.text}")
            runs = settings.count // rounds + (number < settings.count % rounds)
            most = _WARM_UP_RUNS if number else settings.warmup_runs
            with each.step():
                each.block(runs, min(most, settings.warmup_runs))

    run_all(given, running, time, tell)
    reference = next((each for each in running if each.path.kind == REFERENCE), None)
    if reference is None:
        reference = given.on(RunPath(REFERENCE, REFERENCE), settings, "reference")
        run_all(given, [reference], lambda: None, tell)
    found = [_judged(each, reference, given, settings) for each in running]
    digest = hashlib.sha256(Path(given.model).read_bytes()).hexdigest()
    return ModelResult(Path(given.model).name, digest, given.what, found)


def _outputs(each: Running) -> Outputs | None:
    if each.result.failure:
        return None
    with np.load(each.outputs) as kept:
        return [kept[f"arr_{number}"] for number in range(len(kept.files))]


def _judged(each: Running, reference: Running, given: Given, settings: Settings) -> PathResult:
    outputs, why_not = _outputs(each), reference.result.failure
    if outputs is None:
        return each.result
    why = f"the reference kernels cannot run this model: {why_not}" if why_not else ""
    apart = difference(outputs, _outputs(reference), why)
    return replace(
        each.result,
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
