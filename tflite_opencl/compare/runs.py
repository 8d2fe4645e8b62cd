# SPDX-License-Identifier: Apache-2.0
"""All paths of one model, each in its own process, timed alternately and compared."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import Options
from delegate.guard.children.child import Child, ChildDied, command_of
from delegate.inspect import Graph
from tflite_opencl.cli.flags import device_asked
from tflite_opencl.compare.records import (
    REFERENCE,
    ModelResult,
    PathResult,
    RunPath,
    Timing,
    timing_of,
)
from tflite_opencl.console import interrupts
from tflite_opencl.console.errors import one_line
from tflite_opencl.harness.feeds import scale_of
from tflite_opencl.harness.labels import are_scores, format_row, top_results
from tflite_opencl.interpreters.interpreter import invoke
from tflite_opencl.interpreters.runtime import Runtime, runtime_if_any
from tflite_opencl.oracle.difference import difference
from tflite_opencl.oracle.finite import not_finite
from tflite_opencl.oracle.in_builtins import replaced_nodes
from tflite_opencl.oracle.judge import open_judge
from tflite_opencl.oracle.oracle import reference_is_wrong
from tflite_opencl.timing.machine import Meter
from tflite_opencl.timing.timing import SETTLE_S, cores, turns


@dataclass(frozen=True, slots=True)
class CompareSettings:
    """Settings common to all paths and models."""

    count: int  # timed runs per path
    warmup_runs: int
    threads: int
    opencl: Options
    seconds: float  # timeout of a path's reply
    labels: Sequence[str] = ()
    signature: str | None = None  # selects one of a model's graphs; None: the first


class PathFailed(Exception):
    """The path has no result; the text is one line."""


class Running:
    """A path being timed."""

    def __init__(
        self, path: RunPath, settings: CompareSettings, model: str, inputs: str, outputs: str
    ) -> None:
        """`inputs`, `outputs`: .npz files, to read and to write."""
        self.path, self.outputs = path, outputs
        self.result = PathResult(path.text)
        self.process: Child | None = None
        self._settings = settings
        self._given = {"model": model, "inputs": inputs, "outputs": outputs}
        self.forget()

    def forget(self) -> None:
        """Discard the measurements so far: they were for warming up."""
        self.meter = Meter()
        self.metered = 0  # runs with measured energy, warm-up included
        self.runs_ms: list[float] = []
        self.wall_ms = self.cpu_ms = 0.0
        self.gpu_ms: float | None = None  # None: no driver reports it

    @contextlib.contextmanager
    def opened(self, profiling: bool = False) -> Iterator[None]:
        """Open the path for the context, and store its description.

        `profiling`: keep our delegate's launches separate. Raises: PathFailed: it cannot be opened.
        """
        opencl = replace(self._settings.opencl, device=device_asked(self.path.device))
        # Ctrl-C must not reach the child.
        command = command_of("tflite_opencl.compare.path_child")
        with Child(command, check=interrupts.check) as self.process:
            facts = self.ask(
                path=asdict(self.path),
                threads=self._settings.threads,
                opencl=asdict(opencl),
                signature=self._settings.signature,
                profiling=profiling,
                **self._given,
            )
            if not profiling:
                self.result = replace(self.result, **facts)
            yield

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return the reply to one of path_child's requests. Raises: PathFailed."""
        assert self.process is not None
        try:
            answer = self.process.ask(self._settings.seconds, **request)
        except ChildDied as died:
            ended = died.exit
            why = f"it {ended} (--timeout)" if ended.is_late else f"its process {ended}"
            raise PathFailed(why) from None
        if "failed" in answer:
            raise PathFailed(answer["failed"])
        return answer

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Turn a failure into the path's result, and stop timing it."""
        try:
            yield
        except PathFailed as error:
            self.result = replace(self.result, failure=str(error))
            if self.process is not None:
                self.process.close()
            self.process = None

    def first(self) -> None:
        """Time the first run. Raises: PathFailed."""
        self.result = replace(self.result, first_ms=self.ask(runs=1, warmup=0)["runs_ms"][0])

    def block(self, runs: int, warmup: int, settle_s: float = SETTLE_S) -> None:
        """Time this many runs, after a pause and warm-up runs. Raises: PathFailed."""
        time.sleep(settle_s)
        with self.meter.measured():
            answer = self.ask(runs=runs, warmup=warmup)
        self.metered += runs + warmup
        self.runs_ms += answer["runs_ms"]
        self.wall_ms += answer["wall_ms"]
        self.cpu_ms += answer["cpu_ms"]
        if (gpu_ms := answer["gpu_ms"]) is not None:
            self.gpu_ms = (self.gpu_ms or 0.0) + gpu_ms

    def timing(self) -> Timing:
        """Return the statistics of all blocks, at least one."""
        wall_ms = self.wall_ms or 1.0  # 0: the clock is coarser than a run
        gpu_load = self.gpu_ms and self.gpu_ms / wall_ms
        return timing_of(self.runs_ms, cores(self.cpu_ms, wall_ms), gpu_load)

    def finish(self) -> None:
        """Make the path write its outputs, and store its statistics. Raises: PathFailed."""
        told = self.ask()
        if self.runs_ms:
            # Energy per run, if the machine reports it.
            told["joules"] = self.meter.joules / self.metered if self.meter.source else None
            told["timing"] = self.timing()
        self.result = replace(self.result, **told)


_ROUNDS = 5
_WARM_UP_RUNS = 2  # of later blocks: other paths have evicted the caches
Outputs = Sequence[NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Given:
    """A model and its input data."""

    model: str  # its file
    graph: Graph
    inputs: Outputs
    what: str  # for people
    folder: Path = Path()  # for temporary files

    def on(self, path: RunPath, settings: CompareSettings, name: str) -> Running:
        """Return a path to run it; `name`: of its output file."""
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
    """Open all paths, `time` them, and make them write their outputs; failures become results.

    `tell`: called with progress messages.
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
    given: Given, paths: Sequence[RunPath], settings: CompareSettings, tell: Callable[[str], None]
) -> ModelResult:
    """Return each path's result for the model; failures are results."""
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
    judge = _judge(given, running, runtime_if_any())
    found = [_judged(each, judge, given, settings) for each in running]
    digest = hashlib.sha256(Path(given.model).read_bytes()).hexdigest()
    return ModelResult(Path(given.model).name, digest, given.what, found, judge.other_kernels)


def _outputs(each: Running) -> Outputs | None:
    if each.result.failure:
        return None
    with np.load(each.outputs) as kept:
        return [kept[f"arr_{number}"] for number in range(len(kept.files))]


@dataclass(frozen=True, slots=True)
class _ExpectedOutputs:
    """The reference outputs."""

    outputs: Outputs | None  # None: not available
    why_not: str = ""
    other_kernels: str = ""  # as in ModelResult


def _judge(given: Given, running: Sequence[Running], runtime: Runtime) -> _ExpectedOutputs:
    """Compute the reference, or use a path's outputs if it runs on correct reference kernels."""
    path = next((each for each in running if each.path.kind == REFERENCE), None)
    replaced = "" if runtime.why_not else replaced_nodes(given.graph)
    if path is not None and not path.result.failure and not reference_is_wrong(given.graph):
        return _ExpectedOutputs(_outputs(path), other_kernels=replaced)
    try:
        opened = open_judge(runtime, given.graph, given.model)
        with contextlib.closing(opened):
            outputs = invoke(opened, given.inputs)
            kernels = "; ".join(filter(None, (replaced, opened.reasons)))
            return _ExpectedOutputs(outputs, other_kernels=kernels)
    except (RuntimeError, ValueError) as error:
        return _ExpectedOutputs(None, f"no kernels judge this model: {one_line(error)}")


def _judged(
    each: Running, judge: _ExpectedOutputs, given: Given, settings: CompareSettings
) -> PathResult:
    outputs = _outputs(each)
    if outputs is None:
        return each.result
    if no_result := not_finite(outputs, given.graph.outputs):
        return replace(each.result, failure=no_result)
    apart = difference(outputs, judge.outputs, judge.why_not)
    return replace(
        each.result,
        top=_top(outputs, given.graph, settings.labels),
        quanta=apart.quanta,
        difference=apart.floats,
        no_difference="" if apart.quanta is not None or apart.floats is not None else apart.reason,
    )


def _top(outputs: Outputs, graph: Graph, labels: Sequence[str]) -> str:
    """Return the best class of the first output; "" if that holds no scores."""
    first, fed = replace(graph.outputs[0], shape=outputs[0].shape), graph.inputs[0]
    if not are_scores(graph, first, fed, len(labels)):
        return ""
    scale, zero_point = scale_of(first)
    best = top_results(outputs[0], fed.dtype, 1, -np.inf, scale, zero_point)
    return format_row(best[0], labels) if best else ""  # all may be NaN
