# SPDX-License-Identifier: Apache-2.0
"""The oracle: outputs of the runtime's reference kernels, and error bounds for floats.

TFLite's built-in kernels without a delegate replace reference kernels that are missing or wrong
(mixed.py); MediaPipe's ops are replaced by equivalent TFLite ops.
Where no TFLite is installed, the reference is numpy's: numpy_kernels.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from delegate.inspect import (
    Graph,
    Node,
    halves_bound,
    is_equal_to_reference,
    is_wrong_in_reference,
    write_model,
)
from tflite_opencl.console.errors import one_line
from tflite_opencl.interpreters.interpreter import allocated, invoke
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.models.build import Array
from tflite_opencl.oracle.absolute import inlined, of_halves
from tflite_opencl.oracle.bounds import Bounds, float_bounds, is_hybrid
from tflite_opencl.oracle.mixed import MixedInterpreter
from tflite_opencl.oracle.node_kernels import BUILTIN, REFERENCE, NodeKernels, NoOracle
from tflite_opencl.oracle.remembered import remembered_bounds
from tflite_opencl.oracle.values import Arrays


@dataclass(frozen=True, slots=True)
class Oracle:
    """A model on TFLite's own kernels."""

    # that computed the outputs; None: numpy's, as no TFLite is installed
    kernels: NodeKernels | None
    outputs: list[Arrays]  # of each input set
    bounds: list[Bounds]  # of each input set; None: exact

    @property
    def cpu_kernels(self) -> str:
        """The kernels for nodes that a delegate leaves to the CPU, to keep it comparable."""
        kinds = {*self.kernels.by_node} if self.kernels else set()
        return REFERENCE if kinds <= {REFERENCE} else BUILTIN

    def in_halves(self) -> Oracle:
        """Return the oracle for runs that may use half precision."""
        pairs = zip(self.bounds, self.outputs, strict=True)
        wide: list[Bounds] = [
            [
                halves_bound(bound, each)
                if bound is not None and each.dtype == np.float32
                else bound
                for bound, each in zip(bounds, outputs, strict=True)
            ]
            for bounds, outputs in pairs
        ]
        return replace(self, bounds=wide)

    def without_tolerance(self, graph: Graph) -> Oracle:
        """Return the oracle for runs with precision "ieee".

        No float output may differ, except where the reference calls functions of the C library, or
        other kernels than the reference's compute a node.
        """
        known = inlined(graph)
        has_calls = any(node.calls is not None for node in known.nodes)
        if self.cpu_kernels != REFERENCE or not self.kernels or has_calls or of_halves(known):
            return self
        if not all(map(is_equal_to_reference, known.nodes)):
            return self
        bounds: list[Bounds] = [
            [None if bound is None else np.zeros_like(bound) for bound in each]
            for each in self.bounds
        ]
        return replace(self, bounds=bounds)


def run_graph(runtime: Runtime, graph: Graph, inputs: Sequence[Array]) -> Arrays:
    """Return all outputs of a graph; raises RuntimeError or ValueError."""
    return invoke(opened(runtime, graph, write_model(graph)), inputs)


def opened(runtime: Runtime, graph: Graph, model: bytes | str, left: Collection[int] = ()) -> Any:
    """Return an interpreter of the reference, in this process, which it may crash.

    Commands use judge.py's `open_judge` instead. `left`: nodes that the CPU runs in the compared
    path. Raises: NoOracle: no kernels run the graph.
    """
    if not runtime.why_not:
        return MixedInterpreter(runtime, graph, model, left=left)
    try:
        return allocated(runtime, model, "reference")
    except RuntimeError as error:
        raise NoOracle(one_line(error)) from error


def oracle(
    runtime: Runtime,
    graph: Graph,
    model: bytes | str,
    sets: Sequence[Arrays],
    left: Collection[int] = (),
) -> Oracle:
    """Return the reference outputs for these input sets; `left`: as for `opened`.

    Raises: NoOracle: no kernels run the model correctly.
    """
    why = _has_no_right_kernels(runtime, graph)
    if why:
        raise NoOracle(why)
    made = opened(runtime, graph, model, left)
    try:
        outputs = [invoke(made, inputs) for inputs in sets]
    except (RuntimeError, ValueError) as error:
        raise NoOracle(one_line(error)) from error
    kernels = made.kernels if isinstance(made, MixedInterpreter) else None
    if any(tensor.is_variable and tensor.dtype == "float32" for tensor in graph.tensors):
        bounds = remembered_bounds(partial(_run_each, runtime), graph, sets, outputs)
    else:
        bounds_of = partial(float_bounds, partial(run_graph, runtime), graph)
        bounds = [*map(bounds_of, sets, outputs)]
    return Oracle(kernels, outputs, bounds)


def _run_each(runtime: Runtime, graph: Graph, sets: Sequence[Arrays]) -> list[Arrays]:
    made = opened(runtime, graph, write_model(graph))
    return [invoke(made, inputs) for inputs in sets]


def _has_no_right_kernels(runtime: Runtime, graph: Graph) -> str:
    """Return which node all kernels of this TFLite compute wrongly; "": none."""
    if runtime.name == "ai-edge-litert":
        return ""
    # NOTE: tflite-runtime returns only the bias.
    if any(_is_product_of_channels(node) for node in graph.nodes):
        return (
            "FULLY_CONNECTED of floats, int8 weights with a scale a channel: this TFLite is wrong"
        )
    # NOTE: tflite-runtime reads pairs of weights as one.
    if any(node.op == "CONV_2D" and _has_int4(node) for node in graph.nodes):
        return "CONV_2D of int4 weights: this TFLite is wrong"
    # NOTE: tflite-runtime does not support blocks.
    if any(tensor.blocks is not None for tensor in graph.tensors):
        return "weights in blocks: this TFLite does not know them"
    # NOTE: tflite-runtime returns zeros.
    if any(node.op == "EMBEDDING_LOOKUP" and _scales(node) > 1 for node in graph.nodes):
        return "EMBEDDING_LOOKUP of a table with a scale a row: this TFLite is wrong"
    return ""


def _has_int4(node: Node) -> bool:
    return any(each is not None and each.dtype == "int4" for each in node.inputs)


def _is_product_of_channels(node: Node) -> bool:
    return node.op == "FULLY_CONNECTED" and is_hybrid(node) and _scales(node) > 1


def _scales(node: Node) -> int:
    """Return the number of scales of a node's second input."""
    weights = node.inputs[1]
    return len(weights.quantization.scale) if weights and weights.quantization else 0


def reference_is_wrong(graph: Graph) -> bool:
    """Whether TFLite's reference kernels compute an op of the graph wrongly."""
    return any(map(is_wrong_in_reference, graph.nodes))
