# SPDX-License-Identifier: Apache-2.0
"""Constant folding: nodes of constants and fixed shapes become constants (exact).

    x -SHAPE-> s -STRIDED_SLICE-> n -PACK-> r       becomes        a constant r
    w float16 -DEQUANTIZE-> w float32               becomes        a constant w float32
    w float32 -QUANTIZE-> w int8                    becomes        a constant w int8

The values are those of delegate/graph/fold.py, which the delegate also uses; QUANTIZE
rounds as TFLite (reference/quantize.h, AffineQuantize). A shape is fixed if no input of
the graph has an unknown size (-1) in its signature.

For all targets: such nodes run on the CPU, and split the graph into parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.graph.fold import fold
from delegate.inspect import Graph, Node, Tensor
from delegate.ops._numbers.fixed_point import clamped
from tflite_opencl.rewrites.changes import Change, NoMatch, Notes, changed, new_tensor, quanta

_QUANTISED = ("int8", "uint8", "int16")


def rewrite(graph: Graph, notes: Notes | None = None) -> Graph:
    """Return the graph with known values as constants; the same object if there are none."""
    is_fixed = all(min(tensor.shape_signature, default=1) > 0 for tensor in graph.inputs)
    known: dict[Tensor, NDArray[Any]] = {}
    folded = dict(zip(graph.nodes, fold(graph).nodes, strict=True))

    def change(node: Node) -> Change | None:
        values = _values(graph, node, folded[node], known)
        if values is None:
            return None
        _require_use(graph, node, known, is_fixed)
        (old,) = node.outputs
        known[old] = values
        made = new_tensor(old.name, values.shape, old.dtype, old.quantization, values)
        return Change("a constant", {node: []}, {old: made})

    return changed(graph, notes, change)


def _values(
    graph: Graph, node: Node, folded: Node, known: Mapping[Tensor, NDArray[Any]]
) -> NDArray[Any] | None:
    """Return the results of a node of constants; None: unknown."""
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
    if values.dtype != np.float32 or result.dtype not in _QUANTISED or not result.quantization:
        return None
    if len(result.quantization.scale) != 1 or not np.isfinite(values).all():
        return None
    scale, zero_point = quanta(result)
    # A float32 quotient, rounded half away from zero; float64 adds 0.5 to it exactly.
    quotient = (values / np.float32(scale)).astype(np.float64)
    rounded = np.copysign(np.floor(np.abs(quotient) + 0.5), quotient)
    return clamped(rounded + zero_point, result.dtype).astype(result.dtype)


def _require_use(
    graph: Graph, node: Node, known: Mapping[Tensor, NDArray[Any]], is_fixed: bool
) -> None:
    """Require that a node with known values may be removed."""
    if node.outputs[0] in graph.outputs:
        raise NoMatch("its output is the graph's")
    if node.op == "SHAPE":
        if not is_fixed:
            raise NoMatch("an input of the graph has a size that may change")
    elif any(t is not None and t.data is None and t not in known for t in node.inputs):
        raise NoMatch("it follows from a node that is left")
    source = node.inputs[0]
    if node.op == "DEQUANTIZE" and source is not None and source.dtype != "float16":
        raise NoMatch(f"weights of {source.dtype} would take four times the bytes")
