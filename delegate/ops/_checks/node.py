# SPDX-License-Identifier: Apache-2.0
"""A node's tensors, constants and options: their number, types, shapes and values, checked."""

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
    """Return the required inputs, then the optional ones, None where one is left out.

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
        Unsupported: none is there, or several.
    """
    if len(outputs) != 1:
        raise Unsupported(f"{len(outputs)} outputs: 1 is expected")
    return outputs[0]


def require_floats(*tensors: Tensor) -> None:
    """Raise Unsupported where one is of another type than float32."""
    for tensor in tensors:
        if tensor.dtype != "float32":
            raise Unsupported(f"{tensor.dtype}: only float32 is implemented")


def tensors_of(node: Node, inputs: int, types: Sequence[str] = ()) -> list[Tensor]:
    """Return a node's inputs, and then its output.

    `types`: of the first input and of the output, which are equal; none: they are not looked at.

    Raises:
        Unsupported: another number of either, or see `require_types`.
    """
    found, _ = inputs_of(node.inputs, inputs)
    result = output_of(node.outputs)
    if types:
        require_types(found[0], result, types)
    return [*found, result]


def one_to_one(node: Node, types: Sequence[str]) -> list[Tensor]:
    """Return the input and the output of a node that keeps shape and type.

    Raises:
        Unsupported: it does not, or the type is none of these, or there is nothing to do.
    """
    tensors = tensors_of(node, 1, types)
    require_same_shape(*tensors)
    return tensors


def require_types(source: Tensor, result: Tensor, types: Sequence[str] = ANY) -> None:
    """Check that an op takes a type to itself.

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
    """A shape for people: "1x224x224x3"; "scalar" for rank 0."""
    return "x".join(map(str, tensor.shape)) or "scalar"


def elements_of(tensor: Tensor) -> int:
    """Return how many elements a tensor has.

    Raises:
        Unsupported: none, a type of no fixed size, or more bytes than kernels count by int32.
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
    """Return how many elements two tensors of one shape have.

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
    """Check what TFLite checks of an op that only moves bytes, where it does.

    Raises:
        Unsupported: the scales or zero points differ.
    """
    ours, theirs = (
        tensor.quantization and (tensor.quantization.scale, tensor.quantization.zero_point)
        for tensor in (source, result)
    )
    if ours != theirs:
        raise Unsupported("input and output differ in scale or zero point")


def require_constant(tensor: Tensor, what: str) -> NDArray[np.generic]:
    """Return a constant's values.

    Raises:
        Unsupported: the tensor is computed.
    """
    if tensor.data is None:
        raise Unsupported(f"{what} are not constant")
    return tensor.data


def integers_of(tensor: Tensor, what: str) -> NDArray[np.int64]:
    """Return the values of a constant tensor of axes, sizes or positions, in its shape.

    Raises:
        Unsupported: it is computed, or not of int32 or int64.
    """
    if tensor.dtype not in ("int32", "int64"):
        raise Unsupported(f"{tensor.dtype} {what}: only int32 and int64")
    if tensor.data is None:
        raise Unsupported(f"computed {what}: only constant")
    return np.asarray(tensor.data).astype(np.int64)


def vector_of(tensor: Tensor, what: str, length: int | None = None) -> list[int]:
    """Return the values of a constant tensor of one dimension.

    Raises:
        Unsupported: it is computed, of another type, rank or length.
    """
    values = integers_of(tensor, what)
    if values.ndim != 1 or length not in (None, values.size):
        raise Unsupported(f"{what} of shape {values.shape}: ({length or 'n'},) is needed")
    return [int(value) for value in values]


def scalar_of(tensor: Tensor, what: str) -> int:
    """Return the one value of a constant tensor.

    Raises:
        Unsupported: it is computed, of another type, or several.
    """
    values = integers_of(tensor, what)
    if values.size != 1:
        raise Unsupported(f"{what} of shape {values.shape}: one number is needed")
    return int(values.ravel()[0])


def axis_of(axis: int, rank: int) -> int:
    """Return an axis counted from the first, one below 0 is counted from the last.

    Raises:
        Unsupported: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise Unsupported(f"axis {axis}: outside of {rank} dimensions")
    return axis % rank


def integer(options: Mapping[str, Any], name: str, absent: int) -> int:
    """Return an option, or `absent` where the node has none of that name.

    Raises:
        Unsupported: it is no number of 32 bits.
    """
    value = options.get(name, absent)
    if not isinstance(value, int) or not -(2**31) <= value < 2**31:
        raise Unsupported(f"{name} is {value!r}: an int32 is needed")
    return value
