# SPDX-License-Identifier: Apache-2.0
"""What outputs have to be: the installed runtime's reference kernels, and how far floats may lie.

Where the reference kernels lack an op, TFLite's built-in ones without a delegate stand in; of an op
that MediaPipe adds, the one of TFLite's that computes the same. Where no TFLite is installed, the
reference is numpy's: numpy_kernels.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from delegate.inspect import Graph, Node, halves_bound, is_wrong_in_reference, write_model
from tflite_opencl.common.bounds import Bounds, float_bounds, is_hybrid
from tflite_opencl.common.build import Array
from tflite_opencl.common.errors import one_line
from tflite_opencl.common.in_builtins import in_builtins
from tflite_opencl.common.interpreter import allocated, invoke
from tflite_opencl.common.remembered import remembered_bounds
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

    def in_halves(self) -> Oracle:
        """Return what holds where floats may be halves."""
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


def run_graph(runtime: Runtime, cpu_kernels: str, graph: Graph, inputs: Sequence[Array]) -> Arrays:
    """Return all outputs of a graph; raises RuntimeError or ValueError."""
    model, keeps_all = write_model(in_builtins(graph)), overwrites(graph)
    return invoke(allocated(runtime, model, cpu_kernels, keeps_all=keeps_all), inputs)


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
    why, keeps_all = "", keeps_all or overwrites(graph)
    builtin = in_builtins(graph)
    if builtin is not graph:
        graph, model = builtin, write_model(builtin)
    choices = ("builtin",) if reference_is_wrong(graph) else ("reference", "builtin")
    for kernels in ("reference",) if runtime.why_not else choices:
        try:
            made = allocated(runtime, model, kernels, keeps_all=keeps_all, graph=graph)
            return kernels, use(made)
        except (RuntimeError, ValueError) as error:
            why = why or one_line(error)
    raise NoOracle(why)


def oracle(runtime: Runtime, graph: Graph, model: bytes | str, sets: Sequence[Arrays]) -> Oracle:
    """Return what the outputs of these input sets have to be.

    Raises: NoOracle: neither the reference kernels nor the built-in ones run the model rightly.
    """

    def run_all(made: Any) -> list[Arrays]:
        return [invoke(made, inputs) for inputs in sets]

    why = _has_no_right_kernels(runtime, graph)
    if why:
        raise NoOracle(why)
    kernels, outputs = reference(runtime, graph, model, run_all)
    if any(tensor.is_variable and tensor.dtype == "float32" for tensor in graph.tensors):
        run_each = partial(_run_each, runtime, kernels)
        return Oracle(kernels, outputs, remembered_bounds(run_each, graph, sets, outputs))
    bounds_of = partial(float_bounds, partial(run_graph, runtime, kernels), graph)
    return Oracle(kernels, outputs, [*map(bounds_of, sets, outputs)])


def _run_each(
    runtime: Runtime, cpu_kernels: str, graph: Graph, sets: Sequence[Arrays]
) -> list[Arrays]:
    made = allocated(runtime, write_model(graph), cpu_kernels)
    return [invoke(made, inputs) for inputs in sets]


def _has_no_right_kernels(runtime: Runtime, graph: Graph) -> str:
    """Return which node all kernels of this TFLite compute wrongly; "" for none."""
    if runtime.name == "ai-edge-litert":
        return ""
    # NOTE: tflite-runtime gives the bias alone.
    if any(_is_product_of_channels(node) for node in graph.nodes):
        return (
            "FULLY_CONNECTED of floats, int8 weights with a scale a channel: this TFLite is wrong"
        )
    # NOTE: tflite-runtime reads two weights as one.
    if any(node.op == "CONV_2D" and _has_int4(node) for node in graph.nodes):
        return "CONV_2D of int4 weights: this TFLite is wrong"
    # NOTE: tflite-runtime knows no blocks.
    if any(tensor.blocks is not None for tensor in graph.tensors):
        return "weights in blocks: this TFLite does not know them"
    # NOTE: tflite-runtime gives zeros.
    if any(node.op == "EMBEDDING_LOOKUP" and _scales(node) > 1 for node in graph.nodes):
        return "EMBEDDING_LOOKUP of a table with a scale a row: this TFLite is wrong"
    return ""


def _has_int4(node: Node) -> bool:
    return any(each is not None and each.dtype == "int4" for each in node.inputs)


def _is_product_of_channels(node: Node) -> bool:
    return node.op == "FULLY_CONNECTED" and is_hybrid(node) and _scales(node) > 1


def _scales(node: Node) -> int:
    """Return how many scales the second input of a node has."""
    weights = node.inputs[1]
    return len(weights.quantization.scale) if weights and weights.quantization else 0


def overwrites(graph: Graph) -> bool:
    """Whether TFLite may write over a tensor that is read later, unless it keeps all tensors."""
    # NOTE: a view of DYNAMIC_UPDATE_SLICE's operand, by RESHAPE, reads the updated one.
    return any(node.op == "DYNAMIC_UPDATE_SLICE" for node in graph.nodes)


def reference_is_wrong(graph: Graph) -> bool:
    """Whether TFLite's reference kernels compute an op of the graph wrongly."""
    return any(map(is_wrong_in_reference, graph.nodes))
