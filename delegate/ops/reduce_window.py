# SPDX-License-Identifier: Apache-2.0
"""STABLEHLO_REDUCE_WINDOW and REDUCE_WINDOW: a reduction of each window of a tensor."""

from __future__ import annotations

import math

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.float_results import Growth, roundings
from delegate.graph.ir import Node
from delegate.graph.reduced_windows import STABLEHLO, axes_of, function_of
from delegate.launch import Alternative, Constant, Defines, Params
from delegate.ops._checks.node import (
    elements_of,
    inputs_of,
    output_of,
    require_shape,
    require_types,
    shape_text,
)
from delegate.ops._launches.copy import steps_of
from delegate.ops._launches.tiles import launch_over, most_rounds, one_each
from delegate.ops._launches.types import ELEM
from delegate.ops._registry import lowers
from delegate.target import Target

_TYPES = ("uint8", "int8", "int16", "int32", "float32", "bool")
# Reduction -> expression of reduce_window.cl
_EXPRESSIONS = {
    "ADD": "SUM",
    "MUL": "PRODUCT",
    "MINIMUM": "LEAST",
    "MAXIMUM": "GREATEST",
    "ALL": "ALL_OF",
    "ANY": "ANY_OF",
}
_MOST_TAPS = most_rounds(1, 1_000)  # of a window, each with a loop over the dimensions


@lowers("STABLEHLO_REDUCE_WINDOW", "REDUCE_WINDOW", floats=roundings(Growth.UNBOUNDED))
def lower_reduce_window(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Reduce each window, starting with an initial value, in TFLite's order.

    Shapes:
        input (d0, d1, ...), initial value () -> output (number of window positions per dimension)
    Raises:
        Unsupported: types without a kernel, windows that are not constant or invalid, bodies that
            are not a single op; too large a window.
    Source: tflite/kernels/stablehlo_reduce_window.cc
    """
    (source, initial, *_), _ = inputs_of(node.inputs, 2 if node.op == STABLEHLO else 5)
    result = output_of(node.outputs)
    require_types(source, result, _TYPES)
    require_types(initial, result)
    if math.prod(initial.shape) != 1:
        raise Unsupported(f"initial value {shape_text(initial)}: one number is needed")
    try:
        axes, function = axes_of(node), function_of(node)
    except ValueError as error:
        raise Unsupported(str(error)) from None
    if function not in _EXPRESSIONS:
        raise Unsupported(f"function {function}: only {', '.join(_EXPRESSIONS)}")
    if source.dtype == "bool" and function in ("ADD", "MUL"):
        raise Unsupported(f"{function} of bool: the results would not be booleans")
    require_shape(result, [axis.places for axis in axes])
    taps = math.prod(axis.window for axis in axes)
    if taps * (len(axes) + 1) > _MOST_TAPS:
        raise Unsupported(f"a window of {taps}: at most {_MOST_TAPS // (len(axes) + 1)}")
    rows = [
        (
            axis.places,
            axis.window,
            axis.size,
            axis.stride,
            axis.low,
            axis.apart,
            axis.dilation,
            step,
        )
        for axis, step in zip(axes, steps_of(source.shape), strict=True)
    ]
    elements = elements_of(result)
    params: Params = {
        "input": source,
        "initial": initial,
        "output": result,
        "axes": Constant(32 * len(rows), lambda: np.array(rows, np.int32)),
        "taps": taps,
        "elements": elements,
    }
    is_float = source.dtype == "float32"
    defines: Defines = {
        "ELEM": ELEM[source.dtype],
        "VALUE": "float" if is_float else "int",
        "WIDE": "float" if is_float else "uint",
        "RANK": len(rows),
        "OP": _EXPRESSIONS[function],
    }
    launch = launch_over("reduce_window", "reduce_window", one_each(elements), params, defines)
    return (Alternative("plain", (launch,)),)
