# SPDX-License-Identifier: Apache-2.0
"""SELECT, SELECT_V2: of two tensors the one a bool says, element by element; only bytes move."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Params
from delegate.ops._checks.node import shape_text, tensors_of
from delegate.ops._launches.binary import over_rows, require_broadcast, rows_of
from delegate.ops._launches.types import moved_type
from delegate.ops._registry import lowers
from delegate.target import Target


@lowers("SELECT", "SELECT_V2")
def lower_select(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Take the left element where the condition holds, else the right one.

    Shapes:
        SELECT_V2: all are broadcast to the result; SELECT: left and right as the result, the
        condition too, or a scalar, or one bool for each of the result's first dimension
    Raises:
        Unsupported: types that differ, a condition that is no bool, shapes that do not fit.
    Source: tflite/kernels/select.cc
    """
    condition, left, right, result = tensors_of(node, 3)
    if condition.dtype != "bool":
        raise Unsupported(f"{condition.dtype} condition: only bool")
    if not left.dtype == right.dtype == result.dtype:
        raise Unsupported(f"{left.dtype} or {right.dtype} -> {result.dtype}: they must be equal")
    elem = moved_type(result)
    mask = condition  # with the shape by which it is broadcast
    if node.op == "SELECT":
        mask = _of_first_dimension(condition, result)
        if not left.shape == right.shape == result.shape:
            raise Unsupported(
                f"{shape_text(left)} or {shape_text(right)} -> {shape_text(result)}: "
                "they must be equal"
            )
    require_broadcast(result, mask, left, right)
    tensors: Params = {"condition": condition, "left": left, "right": right, "output": result}
    rows = rows_of(result, {"condition": mask, "left": left, "right": right})
    wide = np.dtype(result.dtype).itemsize
    most = {1: 16, 2: 8, 4: 8}.get(wide, 1)
    # OpenCL C has a function select.
    return over_rows("select", "select_row", tensors | rows, {"ELEM": elem}, wide, most, target)


def _of_first_dimension(condition: Tensor, result: Tensor) -> Tensor:
    """Return SELECT's condition with the shape by which it is broadcast."""
    if condition.shape in ((), result.shape):
        return condition
    if len(condition.shape) != 1 or condition.shape[0] != (result.shape or (0,))[0]:
        raise Unsupported(
            f"condition {shape_text(condition)} -> {shape_text(result)}: a scalar, the same, or "
            "one for each of the first dimension"
        )
    return replace(condition, shape=(*condition.shape, *(1,) * (len(result.shape) - 1)))
