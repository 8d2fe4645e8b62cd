# SPDX-License-Identifier: Apache-2.0
"""What outputs have to be: the installed runtime's reference kernels, and how far floats may lie.

Where the reference kernels lack an op, TFLite's built-in ones without a delegate stand in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from delegate.inspect import Graph, write_model
from tflite_opencl.common.bounds import Bounds, float_bounds
from tflite_opencl.common.build import Array
from tflite_opencl.common.runtime import Runtime
from tflite_opencl.common.values import Arrays


class NoOracle(Exception):
    """TFLite itself does not take or run the model; the text is its message."""


@dataclass(frozen=True, slots=True)
class Oracle:
    """A model on TFLite's own kernels."""

    cpu_kernels: str  # "reference" or "builtin"
    outputs: list[Arrays]  # of each input set
    bounds: list[Bounds]  # of each input set; None: exact


def interpreter(
    runtime: Runtime, model: bytes | str, cpu_kernels: str, delegates: Sequence[object] = ()
) -> Any:
    """Return an allocated interpreter on one thread; raises RuntimeError or ValueError."""
    made = runtime.interpreter(model, 1, cpu_kernels, delegates)
    made.allocate_tensors()
    return made


def invoke(made: Any, inputs: Sequence[Array]) -> Arrays:
    """Return all outputs for these inputs."""
    for detail, values in zip(made.get_input_details(), inputs, strict=True):
        made.set_tensor(detail["index"], values)
    made.invoke()
    return [np.array(made.get_tensor(detail["index"])) for detail in made.get_output_details()]


def run_graph(runtime: Runtime, cpu_kernels: str, graph: Graph, inputs: Sequence[Array]) -> Arrays:
    """Return all outputs of a graph; raises RuntimeError or ValueError."""
    return invoke(interpreter(runtime, write_model(graph), cpu_kernels), inputs)


def oracle(runtime: Runtime, graph: Graph, model: bytes | str, sets: Sequence[Arrays]) -> Oracle:
    """Return what the outputs of these input sets have to be.

    Raises: NoOracle: neither the reference kernels nor the built-in ones run the model.
    """
    why = ""
    for kernels in ("builtin",) if reference_is_wrong(graph) else ("reference", "builtin"):
        try:
            made = interpreter(runtime, model, kernels)
            outputs = [invoke(made, inputs) for inputs in sets]
        except (RuntimeError, ValueError) as error:
            why = why or " ".join(str(error).split())
            continue
        run = partial(run_graph, runtime, kernels)
        bounds = [
            float_bounds(run, graph, inputs, results)
            for inputs, results in zip(sets, outputs, strict=True)
        ]
        return Oracle(kernels, outputs, bounds)
    raise NoOracle(why)


def reference_is_wrong(graph: Graph) -> bool:
    """Whether TFLite's reference kernels compute an op of the graph wrongly."""
    # NOTE: the reference kernels' signed sums are wrong: [-76, -1] for [180, -108].
    return any(
        node.op == "SUM" and node.outputs[0].dtype in ("int8", "int16") for node in graph.nodes
    )
