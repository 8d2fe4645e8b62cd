# SPDX-License-Identifier: Apache-2.0
"""Checks of a node's tensors, constants and options: number, types, shapes and values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import size_bytes

ANY = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "bool")


def inputs_of(
    inputs: Sequence[Tensor | None], required: int, optional: int = 0
) -> tuple[list[Tensor], list[Tensor | None]]:
    """Return the required inputs, then the optional ones, with None for those that are omitted.

    Raises:
        Unsupported: a required one is missing, there are too many, or one is sparse.
    """
    present = [tensor for tensor in inputs[:required] if tensor is not None]
    rest = list(inputs[required:])
    if len(present) < required or len(rest) > optional:
        most = f" to {required + optional}" if optional else ""
        raise Unsupported(f"{len(inputs)} inputs: {required}{most} expected")
    for position, tensor in enumerate(inputs):
        if tensor is not None and tensor.is_sparse:
            raise Unsupported(f"input {position} is sparse: only dense tensors are implemented")
    return present, rest + [None] * (optional - len(rest))


def output_of(outputs: Sequence[Tensor]) -> Tensor:
    """Return the one output.

    Raises:
        Unsupported: there is none, or several.
    """
    if len(outputs) != 1:
        raise Unsupported(f"{len(outputs)} outputs: 1 is expected")
    return outputs[0]


def require_floats(*tensors: Tensor) -> None:
    """Raise Unsupported if a tensor is not float32."""
    for tensor in tensors:
        if tensor.dtype != "float32":
            raise Unsupported(f"{tensor.dtype}: only float32 is implemented")


def tensors_of(node: Node, inputs: int, types: Sequence[str] = ()) -> list[Tensor]:
    """Return a node's inputs, and then its output.

    `types`: those allowed for the first input and the output, which must be equal; empty: any.

    Raises:
        Unsupported: another number of inputs or outputs, or see `require_types`.
    """
    tensors, _ = inputs_of(node.inputs, inputs)
    result = output_of(node.outputs)
    if types:
        require_types(tensors[0], result, types)
    return [*tensors, result]


def one_to_one(node: Node, types: Sequence[str]) -> list[Tensor]:
    """Return the input and the output of a node, which must have equal shapes and types.

    Raises:
        Unsupported: they differ, the type is not in `types`, or the tensors are empty.
    """
    tensors = tensors_of(node, 1, types)
    require_same_shape(*tensors)
    return tensors


def require_types(source: Tensor, result: Tensor, types: Sequence[str] = ANY) -> None:
    """Check that two tensors have the same type, and that the op supports it.

    Raises:
        Unsupported: the types differ, are not among `types`, or a tensor is empty or too large.
    """
    if source.dtype != result.dtype:
        raise Unsupported(f"{source.dtype} in, {result.dtype} out: they must be equal")
    if source.dtype not in types:
        raise Unsupported(f"{source.dtype}: only {', '.join(types)}")
    elements_of(source)
    elements_of(result)


def shape_text(tensor: Tensor) -> str:
    """Return a shape for messages: "1x224x224x3"; "scalar" for rank 0."""
    return "x".join(map(str, tensor.shape)) or "scalar"


def elements_of(tensor: Tensor) -> int:
    """Return the number of elements of a tensor.

    Raises:
        Unsupported: none, a type without a fixed size, or more bytes than an int32 counts.
    """
    try:
        is_large = size_bytes(tensor) >= 2**31
    except TypeError:
        raise Unsupported(f"{tensor.dtype}: only types of a fixed size") from None
    if is_large:
        raise Unsupported(f"{tensor.dtype} {shape_text(tensor)}: 2^31 bytes or more")
    elements = math.prod(tensor.shape)
    if elements == 0:
        raise Unsupported(f"shape {shape_text(tensor)}: it is empty")
    return elements


def require_same_shape(source: Tensor, result: Tensor) -> int:
    """Return the number of elements of two tensors with equal shapes.

    Raises:
        Unsupported: none, or the shapes differ.
    """
    if source.shape != result.shape:
        raise Unsupported(f"{shape_text(source)} -> {shape_text(result)}: the shape must stay")
    return elements_of(source)


def require_shape(result: Tensor, shape: Sequence[int]) -> None:
    """Check that a result has the shape that follows from the inputs.

    Raises:
        Unsupported: it has another.
    """
    if result.shape != tuple(shape):
        expected = "x".join(map(str, shape)) or "scalar"
        raise Unsupported(f"output {shape_text(result)}: the inputs give {expected}")


def require_same_scale(source: Tensor, result: Tensor) -> None:
    """Check that quantisation is equal, as TFLite does for some ops that only copy.

    Raises:
        Unsupported: the scales or zero points differ.
    """
    source_quant, result_quant = (
        tensor.quantization and (tensor.quantization.scale, tensor.quantization.zero_point)
        for tensor in (source, result)
    )
    if source_quant != result_quant:
        raise Unsupported("input and output differ in scale or zero point")


def require_constant(tensor: Tensor, what: str) -> NDArray[np.generic]:
    """Return a constant's values.

    Raises:
        Unsupported: the tensor is not constant.
    """
    if tensor.data is None:
        raise Unsupported(f"{what} are not constant")
    return tensor.data


def integers_of(tensor: Tensor, what: str) -> NDArray[np.int64]:
    """Return the values of a constant tensor of axes, sizes or positions, in its shape.

    Raises:
        Unsupported: it is not constant, or not int32 or int64.
    """
    if tensor.dtype not in ("int32", "int64"):
        raise Unsupported(f"{tensor.dtype} {what}: only int32 and int64")
    if tensor.data is None:
        raise Unsupported(f"{what}: not constant")
    return np.asarray(tensor.data).astype(np.int64)


def vector_of(tensor: Tensor, what: str, length: int | None = None) -> list[int]:
    """Return the values of a constant one-dimensional tensor.

    Raises:
        Unsupported: it is not constant, or of another type, rank or length.
    """
    values = integers_of(tensor, what)
    if values.ndim != 1 or length not in (None, values.size):
        raise Unsupported(f"{what} of shape {values.shape}: ({length or 'n'},) is needed")
    return [int(value) for value in values]


def scalar_of(tensor: Tensor, what: str) -> int:
    """Return the single value of a constant tensor.

    Raises:
        Unsupported: it is not constant, of another type, or has several values.
    """
    values = integers_of(tensor, what)
    if values.size != 1:
        raise Unsupported(f"{what} of shape {values.shape}: one number is needed")
    return int(values.ravel()[0])


def axis_of(axis: int, rank: int) -> int:
    """Return a non-negative axis; a negative one counts from the last.

    Raises:
        Unsupported: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise Unsupported(f"axis {axis}: outside of {rank} dimensions")
    return axis % rank


def integer(options: Mapping[str, Any], name: str, default: int) -> int:
    """Return an integer option, or `default` if the node lacks it.

    Raises:
        Unsupported: it is no int32.
    """
    value = options.get(name, default)
    if not isinstance(value, int) or not -(2**31) <= value < 2**31:
        raise Unsupported(f"{name} is {value!r}: an int32 is needed")
    return value
