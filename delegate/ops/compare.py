# SPDX-License-Identifier: Apache-2.0
"""EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL, LOGICAL_AND, _OR, _NOT: bools."""

from __future__ import annotations

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative
from delegate.ops._checks import quantized
from delegate.ops._checks.node import tensors_of
from delegate.ops._launches.binary import (
    Operands,
    binary,
    identity,
    operands_of,
    require_broadcast,
    rescaling,
)
from delegate.ops._launches.lookup import lookup
from delegate.ops._numbers import fixed_point
from delegate.ops._registry import lowers
from delegate.target import Target

# Op -> expression of binary.cl, and whether left and right change places.
_HOW = {
    "EQUAL": ("EQUAL", False),
    "NOT_EQUAL": ("EQUAL", False),
    "LESS": ("LESS", False),
    "LESS_EQUAL": ("LESS_EQUAL", False),
    "GREATER": ("LESS", True),
    "GREATER_EQUAL": ("LESS_EQUAL", True),
}
_FAIL_IN_OLDER = ("NOT_EQUAL", "GREATER", "LESS_EQUAL")  # of int16, when they run
_LIFT = 1 << 8  # Source: tflite/kernels/comparisons.cc ComparisonQuantized


@lowers("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
def lower_compare(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Compare two tensors; 8-bit ones at a common scale, others as they are.

    int16 has a common scale for EQUAL and NOT_EQUAL, but not in tflite-runtime.

    Raises:
        Unsupported: other types, scales of 1 and more, which end TFLite's process.
    Source: tflite/kernels/comparisons.cc, internal/reference/comparisons.h
    """
    types: tuple[str, ...] = ("uint8", "int8", "int16", "int32", "float32")
    if node.op in ("EQUAL", "NOT_EQUAL"):
        types += ("bool",)
    operands = operands_of(node, types, "bool")
    op, changes_places = _HOW[node.op]
    if changes_places:
        operands = Operands(operands.right, operands.left, operands.result)
    params: dict[str, int] = {"invert": int(node.op == "NOT_EQUAL")} if op == "EQUAL" else {}
    kind = operands.left.dtype
    if kind == "int16" and target.rules.older_comparisons and node.op in _FAIL_IN_OLDER:
        raise Unsupported(f"int16: {node.op} fails in this TFLite")
    is_equal16 = kind == "int16" and op == "EQUAL" and not target.rules.older_comparisons
    if kind in quantized.QUANT8 or is_equal16:
        params |= _rescaled("left", operands.left) | _rescaled("right", operands.right)
    elif kind in ("bool", "int16"):
        params |= identity("left") | identity("right")
    return binary(operands, op, params, target)


def _rescaled(which: str, tensor: Tensor) -> dict[str, int]:
    scale, zero = quantized.per_tensor(tensor, quantized.QUANT)
    multiplier, shift = fixed_point.quantize_multiplier(scale)
    if shift > 0:
        raise Unsupported(f"scale {scale}: {tensor.dtype} is compared at scales below 1 only")
    return rescaling(which, multiplier, shift, zero, _LIFT)


@lowers("LOGICAL_AND", "LOGICAL_OR")
def lower_logical(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Take the smaller of two bools for AND, the larger for OR.

    Source: tflite/kernels/logical.cc
    """
    operands = operands_of(node, ("bool",))
    return binary(operands, "MINIMUM" if node.op == "LOGICAL_AND" else "MAXIMUM", {}, target)


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
