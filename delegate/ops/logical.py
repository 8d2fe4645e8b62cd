# SPDX-License-Identifier: Apache-2.0
"""LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT: of bools, which are bytes of 0 and 1."""

from __future__ import annotations

from delegate.errors import Unsupported
from delegate.graph.ir import Node
from delegate.launch import Alternative
from delegate.ops._checks.node import tensors_of
from delegate.ops._launches.binary import Expression, binary, operands_of, require_broadcast
from delegate.ops._launches.lookup import lookup
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("LOGICAL_AND", "LOGICAL_OR")
def lower_logical(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Take the smaller of two bools for AND, the larger for OR.

    Source: tflite/kernels/logical.cc
    """
    operands = operands_of(node, ("bool",))
    return binary(
        Expression(operands, "MINIMUM" if node.op == "LOGICAL_AND" else "MAXIMUM", {}), target
    )


@lowers("LOGICAL_NOT")
def lower_logical_not(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Invert a bool.

    Source: tflite/kernels/elementwise.cc
    """
    source, result = tensors_of(node, 1)
    if not source.dtype == result.dtype == "bool":
        raise Unsupported(f"{source.dtype} -> {result.dtype}: only bool")
    require_broadcast(result, source)
    return lookup(source, result, lambda values: values == 0, target)
