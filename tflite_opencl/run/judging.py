# SPDX-License-Identifier: Apache-2.0
"""Compares the device's first runs with the reference kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from delegate.inspect import Graph
from tflite_opencl.console.errors import CommandError
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.models.cut import why_uncut
from tflite_opencl.oracle.difference import difference, judged
from tflite_opencl.oracle.judge import open_judge
from tflite_opencl.oracle.node_kernels import NoOracle
from tflite_opencl.run.frames import RunInputs
from tflite_opencl.run.runs import RunSeries, series

_MOST = 8  # runs: the reference kernels are slow


@dataclass(frozen=True, slots=True)
class OutputAccuracy:
    """The differences of the device's outputs from the reference."""

    name: str  # of the reference kernels
    notes: Sequence[str]  # for people: nodes on other kernels, why not compared, how many runs
    each: Sequence[int | float | None] = ()  # of each output; (): not compared
    quanta: int = 0  # largest difference of outputs that must be bit-exact

    @property
    def short_name(self) -> str:
        """The kernels' name in a table's head."""
        return self.name.removeprefix("TFLite's ")

    @property
    def fault(self) -> str:
        """The message that the device computes wrong results; "": it does not."""
        if not self.quanta:
            return ""
        return f"the device computes wrongly: up to {self.quanta} quanta from {self.name}"


def judge_series(
    ours: RunSeries,
    runtime: Runtime,
    graph: Graph,
    model: str,
    frames: RunInputs,
    carried: Mapping[int, int],
    left: Collection[int],
) -> OutputAccuracy:
    """Compute the reference of the first frames; `left`: nodes on the CPU's built-in kernels."""
    name, count = runtime.reference, min(frames.count, _MOST)
    if left and (why := why_uncut(graph)):
        words = f"not compared with {name}: the CPU runs a part of the nodes, and {why}"
        return OutputAccuracy(name, [words])
    try:
        judge = open_judge(runtime, graph, model, left=left)
        with contextlib.closing(judge):
            right = series(judge, "judge", "", graph, replace(frames, count=count), carried)
    except (NoOracle, CommandError) as error:
        return OutputAccuracy(name, [f"not compared with {name}: {error}"])
    first = [values[:count] for values in ours.outputs]
    found = judged(difference(first, right.outputs, ""), graph)
    notes = [judge.reasons] if judge.reasons else []
    if count < frames.count:
        notes.append(f"compared with {judge.name}: the first {count} of {frames.count} runs")
    return OutputAccuracy(judge.name, notes, found.each, found.quanta or 0)
