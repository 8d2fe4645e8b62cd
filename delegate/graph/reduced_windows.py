# SPDX-License-Identifier: Apache-2.0
"""The windows of STABLEHLO_REDUCE_WINDOW and REDUCE_WINDOW, and their reduction.

Source: tflite/kernels/stablehlo_reduce_window.cc
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from delegate.graph.ir import Node

STABLEHLO = "STABLEHLO_REDUCE_WINDOW"
# The reduction for the single op of the body.
_BODIES = {
    "ADD": "ADD",
    "MUL": "MUL",
    "MAXIMUM": "MAXIMUM",
    "MINIMUM": "MINIMUM",
    "LOGICAL_AND": "ALL",
    "LOGICAL_OR": "ANY",
    "STABLEHLO_ADD": "ADD",
    "STABLEHLO_MULTIPLY": "MUL",
    "STABLEHLO_MAXIMUM": "MAXIMUM",
    "STABLEHLO_MINIMUM": "MINIMUM",
    "STABLEHLO_AND": "ALL",
}
_MOST_AXES = 6


@dataclass(frozen=True, slots=True)
class Axis:
    """The window along one dimension."""

    size: int  # of the input
    window: int  # elements in it
    stride: int
    low: int  # padding before the input; negative: elements cut off
    high: int
    apart: int  # base dilation: distance of input elements; initial values lie between
    dilation: int  # window dilation: distance of the window's elements

    @property
    def places(self) -> int:
        """Output size."""
        whole = (self.size - 1) * self.apart + 1 + self.low + self.high
        reach = (self.window - 1) * self.dilation + 1
        return 0 if whole < reach else (whole - reach) // self.stride + 1


def axes_of(node: Node) -> list[Axis]:
    """Return the window of a node along each dimension.

    Raises:
        ValueError: windows that are computed, of another rank, or invalid.
    """
    source = node.inputs[0]
    if source is None or not 1 <= (rank := len(source.shape)) <= _MOST_AXES:
        raise ValueError(f"1 to {_MOST_AXES} dimensions are needed")
    if node.op == STABLEHLO:
        names = "window_dimensions", "window_strides", "base_dilations", "window_dilations"
        windows, *others = (_numbers(node, name) for name in names)
        rows = [windows, *(each or [1] * rank for each in others)]
        paddings = _numbers(node, "padding") or [0] * (2 * rank)
    else:
        rows = [_constant(node, place) for place in (2, 3, 4)]
        rows.insert(2, [1] * rank)
        paddings = [0] * (2 * rank)
    if [*map(len, rows), len(paddings)] != [rank] * 4 + [2 * rank]:
        raise ValueError(f"windows of another rank than {rank}")
    windows, strides, aparts, dilations = rows
    lows, highs = paddings[0::2], paddings[1::2]
    columns = (source.shape, windows, strides, lows, highs, aparts, dilations)
    axes = [Axis(*map(int, each)) for each in zip(*columns, strict=True)]
    for axis in axes:
        if min(axis.window, axis.stride, axis.apart, axis.dilation) < 1:
            raise ValueError("a window, stride or dilation below 1")
        if max(map(abs, (*astuple(axis), axis.size * axis.apart, axis.places))) >= 2**31:
            raise ValueError("a window beyond 32 bits")
    return axes


def function_of(node: Node) -> str:
    """Return the reduction: ADD, MUL, MAXIMUM, MINIMUM, ALL or ANY.

    Raises:
        ValueError: the node's body is none of these.
    """
    if node.op != STABLEHLO:
        return str(node.options.get("reduce_function"))
    nodes = () if node.body is None else node.body.nodes
    if len(nodes) != 1 or nodes[0].op not in _BODIES:
        raise ValueError("the body must be one op: a sum, product, extreme or logical op")
    return _BODIES[nodes[0].op]


def _numbers(node: Node, option: str) -> list[int]:
    values = node.options.get(option, ())
    if not isinstance(values, Sequence) or not all(isinstance(each, int) for each in values):
        raise ValueError(f"{option} {values!r}: no numbers")
    return [*values]


def _constant(node: Node, place: int) -> list[int]:
    tensor = node.inputs[place]
    if tensor is None or tensor.data is None or tensor.dtype != "int64":
        raise ValueError("windows that are constants of int64 are needed")
    return [int(value) for value in tensor.data.reshape(-1)]
