# SPDX-License-Identifier: Apache-2.0
"""Registry of the functions that lower ops; the op files register themselves on import."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.float16 import widened
from delegate.graph.float_results import FloatResult
from delegate.graph.float_results import register as register_result
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.plan import ieee
from delegate.plan.fp16 import fp16
from delegate.target import Target

Lower = Callable[[Node, Target], tuple[Alternative, ...]]
_LOWER: dict[str, Lower] = {}
_CUSTOM: set[str] = set()  # the custom ops among them


def lowers(*ops: str, floats: FloatResult, is_custom: bool = False) -> Callable[[Lower], Lower]:
    """Register the decorated function for these ops; `is_custom`: they are custom ops.

    `floats`: how their float results are rounded.

    Raises:
        ValueError: an op is already registered.
    """

    def register(lower: Lower) -> Lower:
        for op in ops:
            if op in _LOWER:
                raise ValueError(f"{op} is lowered by {_LOWER[op].__module__} already")
            _LOWER[op] = lower
            register_result(op, floats)
            if is_custom:
                _CUSTOM.add(op)
        return lower

    return register


def lower(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Return the node's alternatives, the portable fallback last.

    An op that does not support float16 is lowered in float32, with conversions around it. With
    precision "ieee" only those are returned whose float results are the same on every device.

    Raises:
        Unsupported: the op is not implemented, or not for this node; the text says why.
    """
    if node.op not in _LOWER or node.is_custom != (node.op in _CUSTOM):
        kind = "custom op" if node.is_custom else "op"
        raise Unsupported(f"{kind} {node.op} is not implemented")
    for tensor in node.inputs:
        # In C a bool with any other byte is undefined behaviour, so TFLite's result is unspecified.
        data = tensor.data if tensor is not None and tensor.dtype == "bool" else None
        if data is not None and data.view(np.uint8).max(initial=0) > 1:
            raise Unsupported("a constant of bool has bytes besides 0 and 1")
    try:
        found = _LOWER[node.op](node, target)
        return ieee.in_order(node, found, target.isa) if target.is_ieee else found
    except Unsupported:
        full = widened(node)
        if full is None:
            raise
        return fp16.of_float16(node, full, target, lower)


def ops() -> tuple[str, ...]:
    """Return the names of all registered ops, sorted."""
    return tuple(sorted(_LOWER))
