# SPDX-License-Identifier: Apache-2.0
"""What outputs have to be: the installed runtime's reference kernels, and how far floats may lie.

Where the reference kernels lack an op, TFLite's built-in ones without a delegate stand in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from delegate.inspect import Graph, write_model
from tflite_opencl.common.bounds import Bounds, float_bounds
from tflite_opencl.common.build import Array
from tflite_opencl.common.errors import one_line
from tflite_opencl.common.interpreter import allocated, invoke
from tflite_opencl.common.runtime import Runtime
from tflite_opencl.common.values import Arrays

T = TypeVar("T")


class NoOracle(Exception):
    """TFLite itself does not take or run the model; the text is its message."""


@dataclass(frozen=True, slots=True)
class Oracle:
    """A model on TFLite's own kernels."""

    cpu_kernels: str  # "reference" or "builtin"
    outputs: list[Arrays]  # of each input set
    bounds: list[Bounds]  # of each input set; None: exact


def run_graph(runtime: Runtime, cpu_kernels: str, graph: Graph, inputs: Sequence[Array]) -> Arrays:
    """Return all outputs of a graph; raises RuntimeError or ValueError."""
    return invoke(allocated(runtime, write_model(graph), cpu_kernels), inputs)


def reference(
    runtime: Runtime,
    graph: Graph,
    model: bytes | str,
    use: Callable[[Any], T],
    keeps_all: bool = False,
) -> tuple[str, T]:
    """Return the kernels whose outputs are right, and what `use` returns of an interpreter on them.

    They are the built-in ones where the reference kernels are wrong, or do not take the model.

    Raises: NoOracle: neither run the model; `use` may raise RuntimeError or ValueError.
    """
    why = ""
    for kernels in ("builtin",) if reference_is_wrong(graph) else ("reference", "builtin"):
        try:
            return kernels, use(allocated(runtime, model, kernels, keeps_all=keeps_all))
        except (RuntimeError, ValueError) as error:
            why = why or one_line(error)
    raise NoOracle(why)


def oracle(runtime: Runtime, graph: Graph, model: bytes | str, sets: Sequence[Arrays]) -> Oracle:
    """Return what the outputs of these input sets have to be.

    Raises: NoOracle: neither the reference kernels nor the built-in ones run the model.
    """

    def run_all(made: Any) -> list[Arrays]:
        return [invoke(made, inputs) for inputs in sets]

    kernels, outputs = reference(runtime, graph, model, run_all)
    bounds_of = partial(float_bounds, partial(run_graph, runtime, kernels), graph)
    return Oracle(kernels, outputs, [*map(bounds_of, sets, outputs)])


def reference_is_wrong(graph: Graph) -> bool:
    """Whether TFLite's reference kernels compute an op of the graph wrongly."""
    # NOTE: the reference kernels' signed sums are wrong: [-76, -1] for [180, -108].
    signed = ("int8", "int16")
    return any(node.op == "SUM" and node.outputs[0].dtype in signed for node in graph.nodes)
