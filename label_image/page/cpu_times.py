# SPDX-License-Identifier: Apache-2.0
"""The CPU's time of each node, each as a model of its own.

TFLite's Python runtime tells no times of nodes. So each node becomes a model of one node, which
gets the values that it gets in the whole model, and is timed from outside.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import ModelError
from delegate.inspect import Graph, Node, write_model
from tflite_opencl.common import bars, interrupts
from tflite_opencl.common.build import graph as graph_of
from tflite_opencl.common.errors import one_line
from tflite_opencl.common.job import Job
from tflite_opencl.common.open_job import allocate
from tflite_opencl.common.profile import RUNS
from tflite_opencl.common.runtime import Runtime

_WARMUP_RUNS = 2
MOST_SECONDS = 30.0  # for all nodes
_OVER = f"there was no time left for it within {MOST_SECONDS:g} seconds"

Values = Mapping[int, NDArray[Any]]  # a tensor's index -> what it held


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """What was measured."""

    microseconds: Mapping[int, float]  # a node's index -> the shortest of some runs
    left_out: Mapping[int, str]  # a node's index -> why it was not measured


def cpu_times(job: Job, graph: Graph, runtime: Runtime) -> CpuTimes:
    """Time each node by itself on the CPU's kernels of the job, with the job's threads.

    Raises: RuntimeError, ValueError: TFLite cannot run the model. KeyboardInterrupt: Ctrl-C.
    """
    values = _values(job, graph, runtime)
    until = time.monotonic() + MOST_SECONDS
    found: dict[int, float] = {}
    left_out: dict[int, str] = {}
    with bars.steps("timing the nodes on the CPU", lambda: len(graph.nodes)) as step:
        for node in graph.nodes:
            interrupts.check()
            step()
            if time.monotonic() > until:
                left_out[node.index] = _OVER
                continue
            try:
                found[node.index] = _microseconds(node, values, job, runtime)
            except (RuntimeError, ValueError, ModelError) as error:
                left_out[node.index] = f"it does not run alone: {one_line(error)}"
    return CpuTimes(found, left_out)


def _values(job: Job, graph: Graph, runtime: Runtime) -> Values:
    """Run the model once on the built-in kernels; return every tensor that numpy can hold."""
    interpreter = runtime.interpreter(job.model, job.threads, "builtin", keeps_all=True)
    allocate(dataclasses.replace(job, opencl=None, external=None), interpreter, None)
    interpreter.invoke()
    found = {}
    for tensor in {*graph.inputs, *(t for node in graph.nodes for t in node.outputs)}:
        try:
            found[tensor.index] = np.array(interpreter.get_tensor(tensor.index))
        except ValueError:  # it has no memory: a state, or a list
            continue
    return found


def _microseconds(node: Node, values: Values, job: Job, runtime: Runtime) -> float:
    """Return the shortest of some runs.

    Raises: ValueError, RuntimeError, ModelError: such a model cannot be made or run.
    """
    part, given = _model_of(node, values)
    interpreter = runtime.interpreter(write_model(part), job.threads, job.cpu_kernels)
    interpreter.allocate_tensors()
    for details, array in zip(interpreter.get_input_details(), given, strict=True):
        interpreter.set_tensor(details["index"], array)
    return min(_runs(interpreter))


def _runs(interpreter: Any) -> Iterator[float]:
    for _ in range(_WARMUP_RUNS):
        interpreter.invoke()
    for _ in range(RUNS):
        begun = time.perf_counter()
        interpreter.invoke()
        yield (time.perf_counter() - begun) * 1e6


def _model_of(node: Node, values: Values) -> tuple[Graph, list[NDArray[Any]]]:
    """Return the node as a graph with the shapes it has now, and the values of its inputs."""
    own = dict.fromkeys(t for t in (*node.inputs, *node.outputs) if t is not None)
    now = {
        t: dataclasses.replace(t, shape=values[t.index].shape, shape_signature=())
        if t.index in values
        else t
        for t in own
    }
    given = [t for t in dict.fromkeys(node.inputs) if t is not None]
    given = [t for t in given if t.index in values or (t.data is None and not t.is_variable)]
    for tensor in given:
        if tensor.index not in values:
            raise ValueError(f"TFLite does not tell what tensor {tensor.index} holds")
    made = dataclasses.replace(
        node,
        inputs=tuple(None if t is None else now[t] for t in node.inputs),
        outputs=tuple(now[t] for t in node.outputs),
    )
    part = graph_of([made], [now[t] for t in given], [now[t] for t in node.outputs])
    return part, [values[t.index] for t in given]
