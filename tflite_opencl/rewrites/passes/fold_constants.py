# SPDX-License-Identifier: Apache-2.0
"""Nodes that follow from constants and fixed shapes become constants (exact).

    x -SHAPE-> s -STRIDED_SLICE-> n -PACK-> r       becomes        a constant r
    w float16 -DEQUANTIZE-> w float32               becomes        a constant w float32
    w float32 -QUANTIZE-> w int8                    becomes        a constant w int8

The values are those of delegate/graph/fold.py, which the delegate itself takes for known; QUANTIZE
rounds as TFLite (reference/quantize.h, AffineQuantize). A shape counts as fixed where no input of
the graph has an unknown size (-1) in its signature.

It is for every target: such nodes are left to a CPU, and cut a graph into parts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.graph.fold import fold
from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.rewrites.editing import new_tensor, rebuilt
from tflite_opencl.rewrites.notes import Notes

_QUANTISED = ("int8", "uint8", "int16")


def rewrite(graph: Graph, notes: Notes | None = None) -> Graph:
    """Return the graph with constants for what is known; the same one where nothing is."""
    notes = Notes() if notes is None else notes
    is_fixed = all(min(tensor.shape_signature, default=1) > 0 for tensor in graph.inputs)
    known: dict[Tensor, NDArray[Any]] = {}
    nodes = []
    for node, folded in zip(graph.nodes, fold(graph).nodes, strict=True):
        values = _values(graph, node, folded, known)
        if values is None:
            nodes.append(node)
            continue
        reason = _reason(graph, node, known, is_fixed)
        if reason is not None:
            notes.left(node, reason)
            nodes.append(node)
            continue
        notes.treated(node, "a constant")
        known[node.outputs[0]] = values
    made = {tensor: _constant(tensor, values) for tensor, values in known.items()}
    return rebuilt(graph, nodes, made)


def _constant(tensor: Tensor, values: NDArray[Any]) -> Tensor:
    return new_tensor(tensor.name, values.shape, tensor.dtype, tensor.quantization, values)


def _values(
    graph: Graph, node: Node, folded: Node, known: dict[Tensor, NDArray[Any]]
) -> NDArray[Any] | None:
    """Return what a node of constants computes; None: that is not known."""
    if len(node.outputs) != 1:
        return None
    if folded.outputs[0].is_folded:
        return folded.outputs[0].data
    source = node.inputs[0] if node.inputs else None
    if node.op != "QUANTIZE" or node.is_custom or source is None or source in graph.changeable:
        return None
    values = known.get(source, source.data)
    return None if values is None or source.is_sparse else _quantised(values, node.outputs[0])


def _quantised(values: NDArray[Any], result: Tensor) -> NDArray[Any] | None:
    quantization = result.quantization
    if values.dtype != np.float32 or result.dtype not in _QUANTISED or quantization is None:
        return None
    if len(quantization.scale) != 1 or not np.isfinite(values).all():
        return None
    # A quotient of float32, then halves away from zero; float64 adds 0.5 to it exactly.
    quotient = (values / np.float32(quantization.scale[0])).astype(np.float64)
    rounded = np.copysign(np.floor(np.abs(quotient) + 0.5), quotient)
    limits = np.iinfo(result.dtype)
    codes = np.clip(rounded + quantization.zero_point[0], limits.min, limits.max)
    return np.asarray(codes, result.dtype)


def _reason(
    graph: Graph, node: Node, known: dict[Tensor, NDArray[Any]], is_fixed: bool
) -> str | None:
    """Return why a node whose value is known stays a node."""
    if node.outputs[0] in graph.outputs:
        return "its output is the graph's"
    if node.op == "SHAPE":
        return None if is_fixed else "an input of the graph has a size that may change"
    if any(t is not None and t.data is None and t not in known for t in node.inputs):
        return "it follows from a node that is left"
    source = node.inputs[0]
    if node.op == "DEQUANTIZE" and source is not None and source.dtype != "float16":
        return f"weights of {source.dtype} would take four times the bytes"
    return None
