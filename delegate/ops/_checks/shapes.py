# SPDX-License-Identifier: Apache-2.0
"""Shapes of tensors: their text, that they are not empty, and that two have the same bytes."""

from __future__ import annotations

import math

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.launch import size_bytes


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
