# SPDX-License-Identifier: Apache-2.0
"""Runs a model on frames in sequence, on one of two paths, each with its own state."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph
from tflite_opencl.console import bars, interrupts
from tflite_opencl.interpreters.interpreter import failures, outputs_of, run
from tflite_opencl.run.frames import RunInputs


@dataclass(frozen=True, slots=True)
class RunSeries:
    """The runs of a path."""

    name: str  # "opencl" or "cpu"
    nodes: str  # how many of the model's nodes our delegate runs
    outputs: list[NDArray[Any]]  # (frames, ...) of each output
    times_ms: list[float]  # of each run

    @property
    def median_ms(self) -> float:
        """The median time."""
        return float(np.median(self.times_ms))


def series(
    made: Any, name: str, nodes: str, graph: Graph, frames: RunInputs, carried: Mapping[int, int]
) -> RunSeries:
    """Run an allocated interpreter on each frame; variables persist from run to run.

    `carried`: index of an input -> index of the output copied to it after each run.

    Raises: CommandError: a run fails.
    """
    kept: list[Sequence[NDArray[Any]]] = []
    times = []
    with bars.parts() as tell, failures():
        for number in range(frames.count):
            tell(number / frames.count, f"{name}: run {number + 1} of {frames.count}")
            inputs = frames.of(number, graph)
            for taker, giver in carried.items():
                if kept:
                    inputs[taker] = kept[-1][giver]
            begun = time.perf_counter()
            run(made, inputs)
            times.append(1e3 * (time.perf_counter() - begun))
            interrupts.check()
            kept.append(outputs_of(made))
    return RunSeries(name, nodes, [np.stack(each) for each in zip(*kept, strict=True)], times)
