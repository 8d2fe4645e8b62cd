# SPDX-License-Identifier: Apache-2.0
"""Constant folding: Graph -> Graph with shapes and values that follow from constants and shapes.

Converters compute shapes at run time (SHAPE -> STRIDED_SLICE -> PACK -> RESHAPE) and store weights
as float16 (DEQUANTIZE) or sparse (DENSIFY). Nodes are kept; their outputs get values. Unknown
values stay unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from delegate.graph.edit import with_tensors
from delegate.graph.integers import INDEX_TYPES, INTEGER_FOLDERS, Folder, Values, computed
from delegate.graph.ir import Graph, Node, Tensor
from delegate.graph.packed import BITS, unpacked
from delegate.graph.partition import may_have_other_shapes
from delegate.graph.shapes import output_shapes

MOST_ELEMENTS = 1 << 12  # of folded shapes and indices, never pictures
# NumPy may support more: packages such as ml_dtypes add types with another layout than TFLite's.
_WEIGHT_TYPES = ("float32", "float16", "int8", "uint8", "int16", "int32")


def fold(graph: Graph, inline: Callable[[Node], Node] | None = None) -> Graph:
    """Return the graph with the values of all nodes that follow from constants and shapes.

    Inferred shapes replace recorded ones.
    `inline`: returns a WHILE or an IF with everything known about its calls.
    """
    new: dict[Tensor, Tensor] = {}
    called: dict[int, Node] = {}  # by position
    # Tensors whose shape TFLite may resolve only at run time, so that its current one may be wrong.
    uncertain = {t for t in graph.tensors if t.data is None and min(t.shape, default=0) < 0}
    changeable = graph.changeable
    for place, node in enumerate(graph.nodes):
        inputs = tuple(None if t is None else new.get(t, t) for t in node.inputs)
        current = node if inputs == node.inputs else replace(node, inputs=inputs)
        current = _with_body_s_shapes(current)
        is_changeable = not changeable.isdisjoint(node.inputs)
        shapes = None
        is_known = uncertain.isdisjoint(inputs) and not is_changeable
        if inline is not None and node.calls is not None and is_known:
            called[place] = current = inline(current)
            new |= zip(node.outputs, current.outputs, strict=True)
        if uncertain.isdisjoint(inputs):
            shapes = output_shapes(
                _without_values(current, changeable) if is_changeable else current
            )
        values = None
        is_of_shape = node.op in ("SHAPE", "RANK")
        if not is_changeable and (not is_of_shape or uncertain.isdisjoint(inputs)):
            values = _values(current)
        if values is not None:
            new[node.outputs[0]] = replace(
                node.outputs[0], shape=values.shape, data=values, is_folded=True
            )
        elif shapes is not None:
            for tensor, shape in zip(node.outputs, shapes, strict=True):
                uncertain.discard(tensor)
                if tensor.shape != shape:
                    new[tensor] = replace(tensor, shape=shape)
        elif not uncertain.isdisjoint(inputs) or may_have_other_shapes(current):
            uncertain.update(node.outputs)
    graph = with_tensors(graph, new)
    if not called:
        return graph
    nodes = tuple(called.get(place, node) for place, node in enumerate(graph.nodes))
    return replace(graph, nodes=nodes)


def _with_body_s_shapes(node: Node) -> Node:
    """Return a composite whose decomposition has its inputs' shapes; other nodes unchanged."""
    body = node.body
    if node.op != "STABLEHLO_COMPOSITE" or body is None or len(body.inputs) != len(node.inputs):
        return node
    given = {
        own: replace(own, shape=outer.shape)
        for own, outer in zip(body.inputs, node.inputs, strict=True)
        if outer is not None and own.data is None and own.shape != outer.shape
    }
    return replace(node, body=fold(with_tensors(body, given))) if given else node


def _without_values(node: Node, hidden: Collection[Tensor]) -> Node:
    """Return the node without the values of these inputs, which a caller may set."""
    return replace(
        node,
        inputs=tuple(
            replace(t, data=None) if t is not None and t in hidden else t for t in node.inputs
        ),
    )


def _values(node: Node) -> Values | None:
    """Return the output of a node of constants, None if it cannot be folded."""
    inputs = [t for t in node.inputs if t is not None]
    if node.is_custom or node.op not in FOLDERS or len(node.outputs) != 1:
        return None
    if not inputs or len(inputs) < len(node.inputs):
        return None
    result = node.outputs[0]
    is_weights = node.op in ("DEQUANTIZE", "DENSIFY")
    of_others = _WEIGHT_TYPES if is_weights else INDEX_TYPES
    is_known = result.dtype in (("bool",) if node.op in _OF_BOOLS else of_others)
    if not is_known and (node.op, result.dtype) != ("RANGE", "float32"):
        return None
    if any(t.is_sparse for t in inputs) and node.op != "DENSIFY":
        return None
    is_of_shape = node.op in ("SHAPE", "RANK")
    arrays = [] if is_of_shape else [np.asarray(t.data) for t in inputs]
    bytes_of = BITS if node.op == "DEQUANTIZE" else ()
    if not is_of_shape and any(
        array.dtype.name != ("uint8" if t.dtype in bytes_of else t.dtype)
        for array, t in zip(arrays, inputs, strict=True)
    ):
        return None  # an unknown value, or a type that numpy lacks
    if node.op in _OF_BOOLS and not all(map(_is_comparable, arrays)):
        return None
    values = computed(node, arrays) if node.op in INTEGER_FOLDERS else _others(node, arrays)
    if values is None or (values.size > MOST_ELEMENTS and not is_weights):
        return None
    return np.ascontiguousarray(values).reshape(values.shape)


def _is_comparable(values: Values) -> bool:
    if values.dtype == np.bool_:  # other bytes are undefined in C
        return bool(values.view(np.uint8).max(initial=0) <= 1)
    return values.dtype.name in INDEX_TYPES


def _others(node: Node, inputs: Sequence[Values]) -> Values | None:
    """Return the output of a node on weights, or of a part of a condition."""
    try:
        return FOLDERS[node.op](inputs, node).astype(node.outputs[0].dtype)
    except (ArithmeticError, IndexError, KeyError, TypeError, ValueError):
        return None  # a malformed node: TFLite reports it


def _dequantize(inputs: Sequence[Values], node: Node) -> Values:
    """Return float16 weights, or those of at most 8 bits, as float32.

    Source: tflite/kernels/internal/reference/dequantize.h, reference/dequantize.h PerChannel
    """
    (values,), (source,) = inputs, node.inputs
    if values.dtype == np.float16:
        return values.astype(np.float32)
    if source is not None and source.dtype in BITS:
        values = unpacked(values, source.shape, source.dtype)
    quantization = source.quantization if source is not None else None
    if values.dtype not in (np.uint8, np.int8) or quantization is None:
        raise TypeError("no weights")
    # Exact before the single rounding: 9 bits times a float32.
    shape = [1] * values.ndim
    if len(quantization.scale) > 1:
        shape[quantization.axis] = len(quantization.scale)
    scale, zero_point = (
        np.asarray(each, np.float64).reshape(shape)
        for each in (quantization.scale, quantization.zero_point)
    )
    return np.asarray((values - zero_point) * scale, np.float32)


# Ops in conditions of WHILE and IF.
_OF_BOOLS: Mapping[str, Folder] = {
    "LESS": lambda inputs, node: inputs[0] < inputs[1],
    "LESS_EQUAL": lambda inputs, node: inputs[0] <= inputs[1],
    "GREATER": lambda inputs, node: inputs[0] > inputs[1],
    "GREATER_EQUAL": lambda inputs, node: inputs[0] >= inputs[1],
    "EQUAL": lambda inputs, node: inputs[0] == inputs[1],
    "NOT_EQUAL": lambda inputs, node: inputs[0] != inputs[1],
    "LOGICAL_AND": lambda inputs, node: inputs[0] & inputs[1],
    "LOGICAL_OR": lambda inputs, node: inputs[0] | inputs[1],
    "LOGICAL_NOT": lambda inputs, node: ~inputs[0],
}
FOLDERS: Mapping[str, Folder] = {
    **INTEGER_FOLDERS,
    **_OF_BOOLS,
    "DEQUANTIZE": _dequantize,
    "DENSIFY": lambda inputs, node: inputs[0],
}
