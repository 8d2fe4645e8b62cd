# SPDX-License-Identifier: Apache-2.0
"""Small models from a few arguments: graphs for lower(), and the same as .tflite bytes for TFLite.

model = one_op_model(
    "CONV_2D",
    [t((1, 7, 5, 3), "uint8", 0.5, 128), const(weights, 0.1, 3), const(bias, 0.05)],
    [t((1, 4, 3, 8), "uint8", 0.1, 3)],
    dict(padding="SAME", stride_w=2, stride_h=2, fused_activation_function="RELU6"),
)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from delegate.graph.ir import Graph, Node, Quantization, Tensor
from delegate.tflite.reader import read_model
from delegate.tflite.writer import write_model


def t(
    shape: Sequence[int],
    dtype: str = "float32",
    scale: float | Sequence[float] | None = None,
    zero_point: int | Sequence[int] = 0,
    *,
    data: ArrayLike | None = None,
    axis: int = 0,
    name: str = "",
    is_variable: bool = False,
    shape_signature: Sequence[int] = (),
) -> Tensor:
    """Return a tensor; the same object used twice is the same tensor of the model.

    `scale` is rounded to float32; one zero point serves all scales. `data` makes it a constant.
    """
    return Tensor(
        index=-1,  # given by graph_of
        name=name,
        shape=tuple(shape),
        dtype=dtype,
        quantization=None if scale is None else _quantization(scale, zero_point, axis),
        data=None if data is None else np.asarray(data, dtype).reshape(tuple(shape)),
        is_variable=is_variable,
        shape_signature=tuple(shape_signature),
    )


def const(
    data: ArrayLike,
    scale: float | Sequence[float] | None = None,
    zero_point: int | Sequence[int] = 0,
    *,
    axis: int = 0,
    name: str = "",
) -> Tensor:
    """Return a constant of the array's own shape and type."""
    array = np.asarray(data)
    return t(array.shape, array.dtype.name, scale, zero_point, data=array, axis=axis, name=name)


def _quantization(
    scale: float | Sequence[float], zero_point: int | Sequence[int], axis: int
) -> Quantization:
    scales = tuple(float(np.float32(number)) for number in np.atleast_1d(scale))
    zero_points = (
        (zero_point,) * len(scales) if isinstance(zero_point, int) else tuple(map(int, zero_point))
    )
    return Quantization(scales, zero_points, axis)


def op(
    name: str,
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    options: Mapping[str, Any] | None = None,
    version: int = 1,
    is_custom: bool = False,
) -> Node:
    """Return one step of a model; options left out get the schema's defaults when written."""
    return Node(-1, name, version, tuple(inputs), tuple(outputs), dict(options or {}), is_custom)


def graph_of(
    nodes: Sequence[Node],
    inputs: Sequence[Tensor] | None = None,
    outputs: Sequence[Tensor] | None = None,
) -> Graph:
    """Return the graph of these nodes, tensors and nodes numbered in order of appearance.

    Without `inputs`, they are what is neither constant, variable nor produced by a node; without
    `outputs`, they are what no node consumes.
    """
    used = list(
        dict.fromkeys(
            tensor
            for node in nodes
            for tensor in (*node.inputs, *node.outputs)
            if tensor is not None
        )
    )
    produced = {tensor for node in nodes for tensor in node.outputs}
    consumed = {tensor for node in nodes for tensor in node.inputs}
    if inputs is None:
        inputs = [
            tensor
            for tensor in used
            if tensor not in produced and tensor.data is None and not tensor.is_variable
        ]
    if outputs is None:
        outputs = [tensor for tensor in used if tensor in produced and tensor not in consumed]

    numbered = {
        tensor: dataclasses.replace(tensor, index=index, name=tensor.name or f"t{index}")
        for index, tensor in enumerate(dict.fromkeys([*used, *inputs, *outputs]))
    }

    def own(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
        return tuple(numbered[tensor] for tensor in tensors)

    return Graph(
        tensors=tuple(numbered.values()),
        nodes=tuple(
            dataclasses.replace(
                node,
                index=index,
                inputs=tuple(
                    None if tensor is None else numbered[tensor] for tensor in node.inputs
                ),
                outputs=own(node.outputs),
            )
            for index, node in enumerate(nodes)
        ),
        inputs=own(inputs),
        outputs=own(outputs),
        description="made by tests/support/model.py",
    )


def one_op_graph(
    name: str,
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    options: Mapping[str, Any] | None = None,
    version: int = 1,
    is_custom: bool = False,
) -> Graph:
    """Return the graph of a one-op model as the reader gives it: all options are there."""
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
    """Return a .tflite model of several nodes, joined by the tensors they share."""
    return write_model(graph_of(nodes, inputs, outputs))


def graph_values(graph: Graph) -> dict[str, Any]:
    """Return all a graph holds as plain values, for comparing two graphs by ==."""

    def indices(tensors: Iterable[Tensor | None]) -> list[int | None]:
        return [None if tensor is None else tensor.index for tensor in tensors]

    def values(tensor: Tensor) -> dict[str, Any]:
        fields = {name: getattr(tensor, name) for name in Tensor.__slots__}
        if tensor.data is not None:
            # Bytes, because a NaN differs from itself.
            fields["data"] = (tensor.data.dtype, tensor.data.shape, tensor.data.tobytes())
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
