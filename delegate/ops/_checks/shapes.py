# SPDX-License-Identifier: Apache-2.0
"""Shapes of tensors: their text, and that they are not empty."""

from __future__ import annotations

import math

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor


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
