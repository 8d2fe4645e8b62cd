# SPDX-License-Identifier: Apache-2.0
"""Shapes of tensors: their text, that they are not empty, and that two are alike."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import size_bytes
from delegate.ops._checks.node import inputs_of, output_of


def shape_text(tensor: Tensor) -> str:
    """A shape for people: "1x224x224x3"; "scalar" for rank 0."""
    return "x".join(map(str, tensor.shape)) or "scalar"


def elements_of(tensor: Tensor) -> int:
    """Return how many elements a tensor has.

    Raises:
        Unsupported: none.
    """
    elements = math.prod(tensor.shape)
    if elements == 0:
        raise Unsupported(f"shape {shape_text(tensor)}: it is empty")
    return elements


def require_same_bytes(source: Tensor, result: Tensor) -> None:
    """Check that a result can be a view of its source.

    Raises:
        Unsupported: the types or sizes differ, they are empty or of no fixed size.
    """
    try:
        same = source.dtype == result.dtype and size_bytes(source) == size_bytes(result)
    except TypeError:
        raise Unsupported(f"{source.dtype}: only types of a fixed size") from None
    if not same or np.dtype(source.dtype).hasobject:
        raise Unsupported(
            f"{source.dtype} {shape_text(source)} -> {result.dtype} {shape_text(result)}: "
            "type and size must stay"
        )
    if 0 in result.shape:
        raise Unsupported(f"shape {shape_text(result)}: it is empty")


def require_same_shape(source: Tensor, result: Tensor) -> int:
    """Return how many elements two tensors of one shape have.

    Raises:
        Unsupported: none, or the shapes differ.
    """
    if source.shape != result.shape:
        raise Unsupported(f"{shape_text(source)} -> {shape_text(result)}: the shape must stay")
    return elements_of(source)


def one_to_one(node: Node, types: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return the input and the output of a node that keeps shape and type.

    Raises:
        Unsupported: it does not, or the type is none of these, or there is nothing to do.
    """
    (source,), _ = inputs_of(node.inputs, 1)
    result = output_of(node.outputs)
    if source.dtype != result.dtype:
        raise Unsupported(f"{source.dtype} in, {result.dtype} out: they must be equal")
    if source.dtype not in types:
        raise Unsupported(f"{source.dtype}: only {', '.join(types)}")
    require_same_shape(source, result)
    return source, result
