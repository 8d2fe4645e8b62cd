# SPDX-License-Identifier: Apache-2.0
"""Error bounds of the float outputs of stateful ops, run after run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from delegate.inspect import Graph, sum_bound, with_tensors
from tflite_opencl.oracle.absolute import gate_sum
from tflite_opencl.oracle.bounds import Bounds, is_hybrid, terms_of
from tflite_opencl.oracle.flips import off_by_flips
from tflite_opencl.oracle.values import Arrays

# A graph and input sets, run in sequence by one interpreter -> the outputs of each.
RunEach = Callable[[Graph, Sequence[Arrays]], list[Arrays]]


def remembered_bounds(
    run: RunEach, graph: Graph, sets: Sequence[Arrays], outputs: Sequence[Arrays]
) -> list[Bounds]:
    """Return error bounds for each input set of a graph with variable tensors.

    With several nodes, each is bounded by the sum over all outputs: only a test of a single node
    is sharp.
    """
    if all(tensor.dtype != "float32" for tensor in graph.outputs):
        return [[None] * len(each) for each in outputs]
    if len(graph.nodes) == 1 and graph.nodes[0].op == "SVDF":
        sizes = run(_absolute(graph), [[np.abs(each) for each in inputs] for inputs in sets])
        terms = terms_of(graph.nodes[0])
        return [[sum_bound(each.astype(np.float64), terms) for each in found] for found in sizes]
    bounds: list[Bounds] = []
    largest = 0.0
    flips = [[np.zeros(each.shape) for each in of_set] for of_set in outputs]
    if len(graph.nodes) == 1 and is_hybrid(graph.nodes[0]) and terms_of(graph.nodes[0]):
        # The graph's outputs may be in another order than the node's.
        places = [graph.nodes[0].outputs.index(tensor) for tensor in graph.outputs]
        flips = [[of_set[at] for at in places] for of_set in off_by_flips(graph.nodes[0], sets)]
    for number, inputs in enumerate(sets):
        largest = max([largest, *(gate_sum(node, inputs[0]) for node in graph.nodes)])
        terms = sum(map(terms_of, graph.nodes)) * (number + 1) ** 2
        bounds.append(
            [
                sum_bound(np.full(each.shape, largest), terms, off)
                if each.dtype == np.float32
                else None
                for each, off in zip(outputs[number], flips[number], strict=True)
            ]
        )
    return bounds


def _absolute(graph: Graph) -> Graph:
    """Return the graph with absolute constants, without a fused activation."""
    changed = {
        tensor: dataclasses.replace(tensor, data=np.abs(tensor.data))
        for tensor in graph.tensors
        if tensor.data is not None
    }
    made = with_tensors(graph, changed)
    (node,) = made.nodes
    options = {**node.options, "fused_activation_function": "NONE"}
    return dataclasses.replace(made, nodes=(dataclasses.replace(node, options=options),))
