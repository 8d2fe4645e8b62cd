# SPDX-License-Identifier: Apache-2.0
"""Shapes and values that follow from constants and shapes alone: Graph -> Graph that has them.

Converters compute shapes at run time (SHAPE -> STRIDED_SLICE -> PACK -> RESHAPE) and store weights
as float16 (DEQUANTIZE) or sparse (DENSIFY). Nodes stay; their outputs get values. Unknown values
stay unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.graph.edit import with_tensors
from delegate.graph.ir import Graph, Node, Tensor
from delegate.graph.packed import BITS, unpacked
from delegate.graph.partition import may_have_other_shapes
from delegate.graph.shapes import output_shapes
from delegate.graph.shapes.slices import strided_parts

Values = NDArray[Any]
MOST_ELEMENTS = 1 << 12  # of computed bookkeeping: shapes and indices, never pictures
_INDEX_TYPES = ("int32", "int64")
# NumPy may know more: packages such as ml_dtypes add theirs, with another layout than TFLite's.
_WEIGHT_TYPES = ("float32", "float16", "int8", "uint8", "int16", "int32")


def fold(graph: Graph) -> Graph:
    """Return the graph with the values of all nodes that follow from constants and shapes.

    The shapes that follow from the inputs' are set, too, whatever the file has recorded.
    """
    new: dict[Tensor, Tensor] = {}
    # Tensors whose shape TFLite may know only during a run, so that the one it has may be another.
    uncertain = {t for t in graph.tensors if t.data is None and min(t.shape, default=0) < 0}
    changeable = graph.changeable
    for node in graph.nodes:
        inputs = tuple(None if t is None else new.get(t, t) for t in node.inputs)
        current = node if inputs == node.inputs else replace(node, inputs=inputs)
        current = _with_body_s_shapes(current)
        is_changeable = not changeable.isdisjoint(node.inputs)
        shapes = None
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
    return with_tensors(graph, new)


def _with_body_s_shapes(node: Node) -> Node:
    """Return a composite whose decomposition has the shapes of its inputs, other nodes as is."""
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
    """Return the output of a node of constants, None where it is not known here."""
    folder = None if node.is_custom or len(node.outputs) != 1 else FOLDERS.get(node.op)
    inputs = [t for t in node.inputs if t is not None]
    if folder is None or not inputs or len(inputs) < len(node.inputs):
        return None
    result = node.outputs[0]
    is_weights = node.op in ("DEQUANTIZE", "DENSIFY")
    is_known = result.dtype in (_WEIGHT_TYPES if is_weights else _INDEX_TYPES)
    if not is_known and (node.op, result.dtype) != ("RANGE", "float32"):
        return None
    if any(t.is_sparse for t in inputs) and node.op != "DENSIFY":
        return None
    is_of_shape = node.op in ("SHAPE", "RANK")
    arrays = [np.asarray(t.shape if is_of_shape else t.data) for t in inputs]
    bytes_of = BITS if node.op == "DEQUANTIZE" else ()
    if not is_of_shape and any(
        array.dtype.name != ("uint8" if t.dtype in bytes_of else t.dtype)
        for array, t in zip(arrays, inputs, strict=True)
    ):
        return None  # a value that is not known, or bytes of a type that numpy lacks
    try:
        values = folder(arrays, node)
        if is_weights or values.size <= MOST_ELEMENTS:
            return np.ascontiguousarray(values.astype(result.dtype)).reshape(values.shape)
    except (ArithmeticError, IndexError, KeyError, TypeError, ValueError):
        pass  # a malformed node: TFLite reports it
    return None


Folder = Callable[[Sequence[Values], Node], Values]


def _slice(inputs: Sequence[Values], node: Node) -> Values:
    source, begins, _ = inputs
    shapes = output_shapes(node)
    if shapes is None:
        raise ValueError("a slice beyond its tensor")
    rows = zip(begins.tolist(), *shapes, strict=True)
    return source[tuple(slice(begin, begin + size) for begin, size in rows)]


def _strided_slice(inputs: Sequence[Values], node: Node) -> Values:
    if any(node.options.get(name) for name in ("ellipsis_mask", "new_axis_mask", "offset")):
        raise ValueError("masks that are not known here")
    source, *entries = inputs
    begins, ends, strides = (each.tolist() for each in entries)
    parts = strided_parts(source.shape, begins, ends, strides, node.options, is_offset=False)
    for axis, part in enumerate(parts):
        source = source.take(part.taken, axis)
    return source.reshape([len(part.taken) for part in parts if not part.is_dropped])


def _gather(inputs: Sequence[Values], node: Node) -> Values:
    source, indices = inputs
    if node.options.get("batch_dims") or indices.min(initial=0) < 0:
        raise ValueError("an index below 0")
    return np.take(source, indices, axis=node.options.get("axis", 0))


def _reduce_prod(inputs: Sequence[Values], node: Node) -> Values:
    source, axes = inputs
    kept = bool(node.options.get("keep_dims"))
    return np.asarray(np.prod(source, axis=tuple(np.ravel(axes).tolist()), keepdims=kept))


def _floor_div(inputs: Sequence[Values], node: Node) -> Values:
    if not inputs[1].all():
        raise ZeroDivisionError
    return inputs[0] // inputs[1]


def _range(inputs: Sequence[Values], node: Node) -> Values:
    """Return the numbers from a start on, each of which is the sum of the one before and a step.

    Source: tflite/kernels/range.cc
    """
    start, limit, delta = (values.reshape(()) for values in inputs)
    shapes = output_shapes(node)
    if shapes is None or limit.dtype != start.dtype or delta.dtype != start.dtype:
        raise ValueError("no range")
    (count,) = shapes[0]
    steps = np.full(count, delta, start.dtype)
    steps[:1] = start
    return np.add.accumulate(steps, dtype=start.dtype)


def _dequantize(inputs: Sequence[Values], node: Node) -> Values:
    """Return float16 weights or those of 8 bits and fewer as float32.

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
    # Exact before the one rounding: 9 bits times a float32.
    shape = [1] * values.ndim
    if len(quantization.scale) > 1:
        shape[quantization.axis] = len(quantization.scale)
    scale, zero_point = (
        np.asarray(each, np.float64).reshape(shape)
        for each in (quantization.scale, quantization.zero_point)
    )
    return np.asarray((values - zero_point) * scale, np.float32)


FOLDERS: Mapping[str, Folder] = {
    "SHAPE": lambda inputs, node: inputs[0],
    "RANK": lambda inputs, node: np.asarray(inputs[0].size),
    "RANGE": _range,
    "WHERE": lambda inputs, node: np.argwhere(inputs[0]),
    "PACK": lambda inputs, node: np.stack(inputs, axis=node.options["axis"]),
    "CONCATENATION": lambda inputs, node: np.concatenate(inputs, axis=node.options["axis"]),
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
    "GATHER": _gather,
    "RESHAPE": lambda inputs, node: inputs[0].reshape(inputs[1]),
    "SQUEEZE": lambda inputs, node: np.squeeze(
        inputs[0], axis=tuple(np.ravel(node.options["squeeze_dims"]).tolist()) or None
    ),
    "EXPAND_DIMS": lambda inputs, node: np.expand_dims(inputs[0], int(inputs[1])),
    "CAST": lambda inputs, node: inputs[0],
    "ADD": lambda inputs, node: inputs[0] + inputs[1],
    "SUB": lambda inputs, node: inputs[0] - inputs[1],
    "MUL": lambda inputs, node: inputs[0] * inputs[1],
    "MAXIMUM": lambda inputs, node: np.maximum(inputs[0], inputs[1]),
    "MINIMUM": lambda inputs, node: np.minimum(inputs[0], inputs[1]),
    "FLOOR_DIV": _floor_div,
    "REDUCE_PROD": _reduce_prod,
    "DEQUANTIZE": _dequantize,
    "DENSIFY": lambda inputs, node: inputs[0],
}
