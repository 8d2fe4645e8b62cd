# SPDX-License-Identifier: Apache-2.0
"""Small models for TFLite and lower(): the builder of tflite_opencl, under shorter names.

model = one_op_model(
    "CONV_2D",
    [t((1, 7, 5, 3), "uint8", 0.5, 128), const(weights, 0.1, 3), const(bias, 0.05)],
    [t((1, 4, 3, 8), "uint8", 0.1, 3)],
    dict(padding="SAME", stride_w=2, stride_h=2, fused_activation_function="RELU6"),
)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from delegate.format.reader import read_model
from delegate.format.writer import write_model
from delegate.graph.ir import Graph, Node, Tensor
from delegate.graph.persistent import with_variables, written_variables
from tflite_opencl.models.build import constant as const
from tflite_opencl.models.build import graph as graph_of
from tflite_opencl.models.build import node as op
from tflite_opencl.models.build import tensor as t

__all__ = [
    "chain_model",
    "const",
    "graph_of",
    "graph_values",
    "one_op_graph",
    "one_op_model",
    "op",
    "remembering",
    "t",
]


def one_op_graph(
    name: str,
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    options: Mapping[str, Any] | None = None,
    version: int = 1,
    is_custom: bool = False,
) -> Graph:
    """Return the graph of a one-op model as the reader returns it, with all options."""
    return read_model(one_op_model(name, inputs, outputs, options, version, is_custom))


def one_op_model(
    name: str,
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    options: Mapping[str, Any] | None = None,
    version: int = 1,
    is_custom: bool = False,
) -> bytes:
    """Return a .tflite model of one node."""
    return chain_model([op(name, inputs, outputs, options, version, is_custom)], outputs=outputs)


def chain_model(
    nodes: Sequence[Node],
    inputs: Sequence[Tensor] | None = None,
    outputs: Sequence[Tensor] | None = None,
) -> bytes:
    """Return a .tflite model of several nodes, connected by shared tensors.

    Nodes may have the outputs that `remembering` adds; the file omits them.
    """
    own = [
        replace(node, outputs=node.outputs[: len(node.outputs) - len(written_variables(node))])
        for node in nodes
    ]
    versions = {t for node in nodes for t in node.outputs} - {t for n in own for t in n.outputs}
    ends = None if outputs is None else [each for each in outputs if each not in versions]
    return write_model(graph_of(own, inputs, ends))


def remembering(node: Node) -> Node:
    """Return a node as `lower` sees it: new values of its variable tensors are outputs."""
    return with_variables(graph_of([node])).nodes[0]


def graph_values(graph: Graph) -> dict[str, Any]:
    """Return a graph's contents as plain values, which `==` can compare."""

    def indices(tensors: Iterable[Tensor | None]) -> list[int | None]:
        return [None if tensor is None else tensor.index for tensor in tensors]

    def values(tensor: Tensor) -> dict[str, Any]:
        fields = {name: getattr(tensor, name) for name in Tensor.__slots__}
        if tensor.data is not None:
            # Bytes, because a NaN differs from itself.
            fields["data"] = (tensor.data.dtype, tensor.data.shape, tensor.data.tobytes())
        if tensor.blocks is not None:
            fields["blocks"] = (tensor.blocks.size, tensor.blocks.scales.tobytes())
        return fields

    return {
        "tensors": [values(tensor) for tensor in graph.tensors],
        "nodes": [
            {
                "index": node.index,
                "op": node.op,
                "version": node.version,
                "inputs": indices(node.inputs),
                "outputs": indices(node.outputs),
                "inner": indices(node.inner),
                "intermediates": indices(node.intermediates),
                "options": dict(node.options),
                "is_custom": node.is_custom,
            }
            for node in graph.nodes
        ],
        "inputs": indices(graph.inputs),
        "outputs": indices(graph.outputs),
        "description": graph.description,
        "subgraphs": graph.subgraphs,
    }
