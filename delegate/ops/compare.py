# SPDX-License-Identifier: Apache-2.0
"""EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL, LOGICAL_AND, _OR, _NOT.

Also SELECT and SELECT_V2, which only copy elements.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.float_results import EXACT, SELECTS
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.node import shape_text, tensors_of
from delegate.ops._launches.binary import (
    Operands,
    binary,
    identity,
    operands_of,
    over_rows,
    require_broadcast,
    rescaling,
    rows_of,
)
from delegate.ops._launches.lookup import lookup
from delegate.ops._launches.types import copy_type
from delegate.ops._numbers import fixed_point
from delegate.ops._registry import lowers
from delegate.target import Target

# Op -> expression of binary.cl, and whether the operands are swapped.
_EXPRESSIONS = {
    "EQUAL": ("EQUAL", False),
    "NOT_EQUAL": ("EQUAL", False),
    "LESS": ("LESS", False),
    "LESS_EQUAL": ("LESS_EQUAL", False),
    "GREATER": ("LESS", True),
    "GREATER_EQUAL": ("LESS_EQUAL", True),
}
_FAIL_IN_OLDER = ("NOT_EQUAL", "GREATER", "LESS_EQUAL")  # on int16, at run time
_LIFT = 1 << 8  # Source: tflite/kernels/comparisons.cc ComparisonQuantized


@lowers("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL", floats=EXACT)
def lower_compare(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Compare two tensors: at a common scale for 8 bits, by stored values otherwise.

    int16 is compared at a common scale for EQUAL and NOT_EQUAL, except in tflite-runtime.

    Raises:
        Unsupported: other types, scales of 1 and more, which abort TFLite's process.
    Source: tflite/kernels/comparisons.cc, internal/reference/comparisons.h
    """
    types: tuple[str, ...] = ("uint8", "int8", "int16", "int32", "int64", "float32")
    if node.op in ("EQUAL", "NOT_EQUAL"):
        types += ("bool",)
    operands = operands_of(node, types, "bool")
    op, changes_places = _EXPRESSIONS[node.op]
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


@lowers("LOGICAL_AND", "LOGICAL_OR", floats=EXACT)
def lower_logical(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Return the minimum of two bools for AND, the maximum for OR.

    Source: tflite/kernels/logical.cc
    """
    operands = operands_of(node, ("bool",))
    return binary(operands, "MINIMUM" if node.op == "LOGICAL_AND" else "MAXIMUM", {}, target)


@lowers("LOGICAL_NOT", floats=EXACT)
def lower_logical_not(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Invert a bool.

    Source: tflite/kernels/elementwise.cc
    """
    source, result = tensors_of(node, 1)
    if not source.dtype == result.dtype == "bool":
        raise Unsupported(f"{source.dtype} -> {result.dtype}: only bool")
    require_broadcast(result, source)
    return lookup(source, result, lambda values: values == 0, target)


@lowers("SELECT", "SELECT_V2", floats=SELECTS)
def lower_select(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Return the left element where the condition is true, else the right one.

    Shapes:
        SELECT_V2: all are broadcast to the result. SELECT: left and right have the result's shape,
        the condition too, or it is a scalar, or one bool per index of the first dimension
    Raises:
        Unsupported: types that differ, a condition that is no bool, mismatched shapes.
    Source: tflite/kernels/select.cc
    """
    condition, left, right, result = tensors_of(node, 3)
    if condition.dtype != "bool":
        raise Unsupported(f"{condition.dtype} condition: only bool")
    if not left.dtype == right.dtype == result.dtype:
        raise Unsupported(f"{left.dtype} or {right.dtype} -> {result.dtype}: they must be equal")
    elem = copy_type(result)
    broadcast_condition = condition  # with the shape that is broadcast
    if node.op == "SELECT":
        broadcast_condition = _of_first_dimension(condition, result)
        if not left.shape == right.shape == result.shape:
            raise Unsupported(
                f"{shape_text(left)} or {shape_text(right)} -> {shape_text(result)}: "
                "they must be equal"
            )
    require_broadcast(result, broadcast_condition, left, right)
    tensors: Params = {"condition": condition, "left": left, "right": right, "output": result}
    rows = rows_of(result, {"condition": broadcast_condition, "left": left, "right": right})
    width = np.dtype(result.dtype).itemsize
    most = {1: 16, 2: 8, 4: 8}.get(width, 1)
    # The kernel is not "select": OpenCL C has a function of that name.
    return over_rows("select", "select_row", tensors | rows, {"ELEM": elem}, width, most, target)


def _of_first_dimension(condition: Tensor, result: Tensor) -> Tensor:
    """Return SELECT's condition with the shape that is broadcast."""
    if condition.shape in ((), result.shape):
        return condition
    if len(condition.shape) != 1 or condition.shape[0] != (result.shape or (0,))[0]:
        raise Unsupported(
            f"condition {shape_text(condition)} -> {shape_text(result)}: a scalar, the same, or "
            "one for each of the first dimension"
        )
    return replace(condition, shape=(*condition.shape, *(1,) * (len(result.shape) - 1)))
