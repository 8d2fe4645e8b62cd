# SPDX-License-Identifier: Apache-2.0
"""The model with absolute values, which gives the magnitude of the terms in its sums.

Also the model with subgraph calls inlined, so that its sums include theirs.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from delegate.inspect import Graph, Node, Quantization, Tensor, infer, plain_nodes, with_tensors
from tflite_opencl.models.build import Array
from tflite_opencl.models.build import graph as graph_of

_ONE = Quantization((1.0,), (0,), 0)  # of floats


def near(values: Array) -> Array:
    """Return each pixel's largest neighbour: a weight of 0 may come out slightly positive."""
    if values.ndim != 4 or values.dtype.kind != "f":
        return values
    wide = np.pad(values, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
    height, width = values.shape[1:3]
    shifted = [wide[:, y : y + height, x : x + width] for y in range(3) for x in range(3)]
    return np.asarray(np.maximum.reduce(shifted))


def sizes_of(values: Array) -> Array:
    """Return the absolute values of floats."""
    return np.asarray(np.abs(values)) if values.dtype.kind == "f" else values


def absolute(graph: Graph) -> Graph:
    """Return the model with absolute constants, without activations and differences."""
    constants = {
        tensor: dataclasses.replace(tensor, data=sizes_of(tensor.data))
        for tensor in graph.tensors
        if tensor.data is not None
    }

    def changed(node: Node) -> Node:
        options: dict[str, Any] = dict(node.options)
        if "fused_activation_function" in options:
            options["fused_activation_function"] = "NONE"
        op, version = node.op, node.version
        if op == "SUB":
            op, version = "ADD", 1
            options.pop("pot_scale_int16", None)
        if op in ("NEG", "RELU6", "MINIMUM", "REDUCE_MIN"):
            op = {"NEG": "ABS", "RELU6": "RELU", "MINIMUM": "MAXIMUM"}.get(op, "REDUCE_MAX")
        return dataclasses.replace(node, op=op, version=version, options=options)

    made = with_tensors(graph, constants)
    return dataclasses.replace(made, nodes=tuple(map(changed, made.nodes)))


def gate_sum(node: Node, values: Array) -> float:
    """Return approximately the largest sum of absolute terms behind an LSTM's or RNN's output.

    `values`: its input. The output is a function of a cell, and the cell a sum of products of
    gates: an output near 0 is a difference of larger numbers, and inherits their errors. A
    gate's error is at most that of its sum, since no activation's slope exceeds 1; the state's
    values are at most 1, and so are the cell's terms.
    """
    rows = [
        np.abs(tensor.data.astype(np.float64)) * (tensor.quantization or _ONE).scale[0]
        for tensor in node.inputs
        if tensor is not None and tensor.data is not None and len(tensor.shape) == 2
    ]
    reach = float(np.abs(values.astype(np.float64)).max(initial=0))
    return max((float(each.sum(1).max()) * max(reach, 1.0) for each in rows), default=1.0) + 4.0


def inlined(graph: Graph) -> Graph:
    """Return the graph with WHILE and IF nodes replaced by their inlined forms, if any."""
    if all(node.calls is None for node in graph.nodes):
        return graph
    known = infer(graph)
    nodes = [
        each for each in plain_nodes(known.nodes) if not all(t.is_folded for t in each.outputs)
    ]
    return graph_of(nodes, known.inputs, known.outputs)


def of_halves(graph: Graph) -> set[Tensor]:
    """Return the tensors that are float16, or depend on float16."""
    found = {each for each in graph.tensors if each.dtype == "float16" and each.data is None}
    for node in graph.nodes:
        if not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return found
