# SPDX-License-Identifier: Apache-2.0
"""TFLite's arithmetic of shapes, sizes and indices in numpy: int32 and int64, bit for bit.

Constant folding (fold.py) and execution without TFLite
(tflite_opencl/interpreters/numpy_kernels.py) share these functions, so that they cannot differ.
Sums and products wrap around before the fused activation clamps them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.graph.ir import Node
from delegate.graph.shapes import output_shapes
from delegate.graph.shapes.slices import strided_parts

Values = NDArray[Any]
# The arrays of a node's inputs -> its single output. Raises what `computed` catches.
Folder = Callable[[Sequence[Values], Node], Values]
INDEX_TYPES = ("int32", "int64")
# The bounds of a fused activation, as real numbers; None: unbounded.
# Source: tflite/kernels/kernel_util.h CalculateActivationRange
FUSED_BOUNDS: Mapping[str, tuple[int | None, int | None]] = {
    "NONE": (None, None),
    "RELU": (0, None),
    "RELU6": (0, 6),
    "RELU_N1_TO_1": (-1, 1),
}


def is_known(node: Node) -> bool:
    """Whether a node computes sizes or indices by an op of INTEGER_FOLDERS."""
    types = [tensor.dtype for tensor in node.outputs]
    return not node.is_custom and node.op in INTEGER_FOLDERS and types in (["int32"], ["int64"])


def computed(node: Node, inputs: Sequence[Values]) -> Values | None:
    """Return the output of a node of INTEGER_FOLDERS, in its type; None: it cannot be folded.

    `inputs`: of each input in its shape and type, also for constants; not read for SHAPE and
    RANK.
    """
    try:
        with np.errstate(over="ignore"):  # numpy warns about scalar overflow
            values = INTEGER_FOLDERS[node.op](inputs, node)
        return np.asarray(values).astype(node.outputs[0].dtype)
    except (ArithmeticError, IndexError, KeyError, TypeError, ValueError):
        return None  # a malformed node: TFLite reports it


def _of_one_type(inputs: Sequence[Values], node: Node) -> Sequence[Values]:
    """Return the inputs. Raises: TypeError: the tensors' types differ."""
    if {tensor.dtype for tensor in node.inputs if tensor is not None} != {node.outputs[0].dtype}:
        raise TypeError("tensors of several types")
    return inputs


def _elementwise(function: Callable[[Values, Values], Values]) -> Folder:
    """Return the folder of a binary op with its fused activation."""

    def folder(inputs: Sequence[Values], node: Node) -> Values:
        left, right = _of_one_type(inputs, node)
        low, high = FUSED_BOUNDS[node.options.get("fused_activation_function", "NONE")]
        values = np.asarray(function(left, right), left.dtype)
        return values if low is None else np.clip(values, low, high)

    return folder


def _joined(function: Callable[..., Values]) -> Folder:
    """Return the folder of an op that concatenates its inputs along an axis."""

    def folder(inputs: Sequence[Values], node: Node) -> Values:
        if node.options.get("fused_activation_function", "NONE") != "NONE":
            raise ValueError("TFLite joins without an activation")
        return function(_of_one_type(inputs, node), axis=node.options["axis"])

    return folder


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


def _cast(inputs: Sequence[Values], node: Node) -> Values:
    """Return integers, wrapped around to the output type.

    Floats out of range are left to the device's rules.
    """
    (values,) = inputs
    if values.dtype.kind == "f":
        limits = np.iinfo(node.outputs[0].dtype)
        if not ((values > float(limits.min) - 1) & (values < float(limits.max) + 1)).all():
            raise ValueError("a float that the output does not hold")
    elif values.dtype.kind not in "iub":
        raise TypeError(f"{values.dtype} to integers")
    return values


def _reduce_prod(inputs: Sequence[Values], node: Node) -> Values:
    source, axes = inputs
    kept = bool(node.options.get("keep_dims"))
    axis = tuple(np.ravel(axes).tolist())
    return np.asarray(np.prod(source, axis=axis, keepdims=kept, dtype=source.dtype))


def _floor_div(left: Values, right: Values) -> Values:
    is_least = (left == np.iinfo(left.dtype).min) & (right == -1)
    if not right.all() or is_least.any():
        raise ZeroDivisionError("C leaves this quotient undefined")
    return np.asarray(left // right)


def _range(inputs: Sequence[Values], node: Node) -> Values:
    """Return numbers from a start on, each the sum of the previous one and a step.

    Source: tflite/kernels/range.cc
    """
    start, _, delta = (values.reshape(()) for values in _of_one_type(inputs, node))
    shapes = output_shapes(node)
    if shapes is None:
        raise ValueError("no range")
    (count,) = shapes[0]
    steps = np.full(count, delta, start.dtype)
    steps[:1] = start
    return np.add.accumulate(steps, dtype=start.dtype)


def _shape(inputs: Sequence[Values], node: Node) -> Values:
    (source,) = node.inputs
    if source is None:
        raise ValueError("a shape of nothing")
    return np.asarray(source.shape if node.op == "SHAPE" else len(source.shape))


INTEGER_FOLDERS: Mapping[str, Folder] = {
    "SHAPE": _shape,
    "RANK": _shape,
    "RANGE": _range,
    "WHERE": lambda inputs, node: np.argwhere(inputs[0]),
    "PACK": _joined(np.stack),
    "CONCATENATION": _joined(np.concatenate),
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
    "GATHER": _gather,
    "RESHAPE": lambda inputs, node: inputs[0].reshape(inputs[1]),
    "SQUEEZE": lambda inputs, node: np.squeeze(
        inputs[0], axis=tuple(np.ravel(node.options["squeeze_dims"]).tolist()) or None
    ),
    "EXPAND_DIMS": lambda inputs, node: np.expand_dims(inputs[0], int(inputs[1])),
    "CAST": _cast,
    "ADD": _elementwise(np.add),
    "SUB": _elementwise(np.subtract),
    "MUL": _elementwise(np.multiply),
    "MAXIMUM": _elementwise(np.maximum),
    "MINIMUM": _elementwise(np.minimum),
    "FLOOR_DIV": _elementwise(_floor_div),
    "REDUCE_PROD": _reduce_prod,
}
